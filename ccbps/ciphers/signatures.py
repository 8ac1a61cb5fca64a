"""Signatures under keys handed over beforehand: proof of a message's writer and its integrity.

The writer has a `ccbps.keys.SigningKey`. The reader holds its `identity`, 32 public bytes, and
ignores a message's own claims about its writer. The scheme is Ed25519, about 128 bits. It draws no
randomness: the same message has the same signature.

*Batches.* One signature serves many messages: the writer signs the root of their Merkle tree, and
each message carries its path, 32 bytes for each level. The tree is that of RFC 6962, whose leaves
and nodes are hashed with different first bytes, and the number of messages is signed with the root.

Hazards: an identity is only as trustworthy as the way it came. Signatures convince third
parties, too. A signature does not bind its purpose: sign bytes that name it.
Sources: [RFC8032], RFC 6962 (Merkle trees).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Meta, structs

from ccbps.checks import octets
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import SigningKey
from ccbps.records import Message, Number, Record

IDENTITY_BYTES: Final = 32
NAME_BYTES: Final = 8
SIGNATURE_BYTES: Final = 64
HASH_BYTES: Final = 32
DEEPEST: Final = 63
"""Greatest number of hashes of a path."""
UNSIGNED: Final = bytes(SIGNATURE_BYTES)
"""Signature of a message that nobody has signed yet."""
_BATCH: Final = b"ccbps signed batch 1\0"

Hash: TypeAlias = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
Signature: TypeAlias = Annotated[
    bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)
]


class SignedMessage(Message, frozen=True):
    """Base of messages whose field `signature` is that of all their other fields."""

    @property
    def signed(self) -> bytes:
        """Bytes that the message's writer signs."""
        return structs.replace(self, signature=UNSIGNED).to_bytes()


def signed_by(identity: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of `identity` signed this message."""
    with contextlib.suppress(InvalidSignature):
        _public(identity).verify(signature, message)
        return True
    return False


@lru_cache(maxsize=1024)
def _public(identity: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(identity)


def check_identity(identity: Any) -> bytes:
    """Return the identity; a ParameterError if it does not have 32 bytes."""
    return octets("identity", identity, IDENTITY_BYTES, hint="the other party's .identity is one")


def name_of(identity: bytes) -> bytes:
    """Return 8 bytes that identify a known identity among others. They prove nothing."""
    return sha256(b"ccbps identity\0" + identity).digest()[:NAME_BYTES]


# -- batches -------------------------------------------------------------------------------------


class BatchProof(Record, frozen=True):
    """Proof that a message is one of a signed batch.

    Attributes:
        place: place of the message in its batch.
        size: number of messages of the batch.
        path: hashes beside the way from the message to the root, from the leaf on.
        signature: signature of the size and the root.
    """

    place: Number
    size: Number
    path: Annotated[tuple[Hash, ...], Meta(max_length=DEEPEST)]
    signature: Signature


def sign_batch(key: SigningKey, messages: Sequence[bytes]) -> list[BatchProof]:
    """Sign messages with one signature, and return the proof of each.

    Example:
        >>> from ccbps.ciphers.signatures import sign_batch, signed_in_batch
        >>> from ccbps.keys import SigningKey
        >>> key = SigningKey.generate()
        >>> proofs = sign_batch(key, [b"up", b"down", b"up again"])
        >>> [signed_in_batch(key.identity, m, proofs[1]) for m in (b"down", b"up")]
        [True, False]

    Raises:
        ParameterError: there is no message.
    """
    if not messages:
        raise ParameterError("messages must be one or more, got none")
    levels = [[_leaf(message) for message in messages]]
    while len(levels[-1]) > 1:
        nodes = levels[-1]
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        # The last of an odd number rises as it is.
        levels.append([_node(*pair) for pair in pairs] + nodes[len(nodes) & ~1 :])
    signature = key.sign(_signed(len(messages), levels[-1][0]))
    return [
        BatchProof(place, len(messages), tuple(_beside(levels, place)), signature)
        for place in range(len(messages))
    ]


def signed_in_batch(identity: bytes, message: bytes, proof: BatchProof) -> bool:
    """Return whether the owner of `identity` signed a batch with this message at this place.

    The signature of a root is verified once; another message of the same batch takes hashes only.
    """
    node, place, last = _leaf(message), proof.place, proof.size - 1
    if place > last:
        return False
    for beside in proof.path:
        while place == last and not place & 1:
            if not last:
                return False  # above the root
            place, last = place >> 1, last >> 1
        node = _node(beside, node) if place & 1 else _node(node, beside)
        place, last = place >> 1, last >> 1
    # The path must end at the root, which is the only node of its level.
    return place == last == 0 and _signed_root(identity, proof.size, node, proof.signature)


def _beside(levels: list[list[bytes]], place: int) -> Iterator[bytes]:
    """Yield the hashes beside the way from a leaf to the root."""
    for nodes in levels[:-1]:
        if place ^ 1 < len(nodes):
            yield nodes[place ^ 1]
        place >>= 1


def _leaf(message: bytes) -> bytes:
    return sha256(b"\0" + message).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def _signed(size: int, root: bytes) -> bytes:
    return _BATCH + size.to_bytes(8) + root


@lru_cache(maxsize=1024)
def _signed_root(identity: bytes, size: int, root: bytes, signature: bytes) -> bool:
    return signed_by(identity, _signed(size, root), signature)
