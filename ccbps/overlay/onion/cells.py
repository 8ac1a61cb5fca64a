"""Cells of circuits: their form, the exchange of keys with a relay, and a relay's layer.

A cell has 512 bytes: the circuit's identifier, 4 bytes, which is another one on each link, and a
body. Under its layers a body holds::

    digest 16 | kind 1 | length of the data 2 | data | zeros

**Keys.** A client sends X = g^x to a relay with the static key S = g^s, and the relay answers with
Y = g^y (X25519). Both hash X^y, X^s, S, X and Y by HKDF-SHA256 to a key for AES-256-CTR and a key
for digests in each direction, and a key for the relay's proof that it computed them. That takes the
secret s. Once x and y are erased, nobody can compute the keys any more, even with s.

**Layers.** A direction's layer is a single key stream, from the first cell to the last, so no part
of it is used twice. The digest is HMAC-SHA256, cut to 16 bytes, over the number of the cell in that
layer and the rest of the body. So a cell that was changed, repeated, left out or moved has a wrong
digest, and so have all cells after a lost one: links must be reliable, such as TLS.
Sources: [DMS04] for circuits, cells and the telescope; [GSU13] for the exchange of keys.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.arrays import Randomness
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.keys.plain_key import ExchangeKey
from ccbps.keys.secret import Confined, confined

T = TypeVar("T")

CELL_BYTES: Final = 512
ID_BYTES: Final = 4
BODY_BYTES: Final = CELL_BYTES - ID_BYTES
DIGEST_BYTES: Final = 16
HEAD_BYTES: Final = DIGEST_BYTES + 3
DATA_BYTES: Final = BODY_BYTES - HEAD_BYTES
"""Largest number of bytes of data in a cell."""
KEY_BYTES: Final = 32
REQUEST_BYTES: Final = KEY_BYTES + DIGEST_BYTES
"""Bytes of X and its digest."""
ANSWER_BYTES: Final = 2 * KEY_BYTES
"""Bytes of Y and its proof."""
CONTROL: Final = bytes(ID_BYTES)
"""Identifier of cells that close a circuit whose identifier they carry."""


class Command(IntEnum):
    """The meaning of a cell to the relay that finds its digest right, or to the client."""

    EXTEND = 1
    EXTENDED = 2
    BEGIN = 3
    OFFER = 4
    MEET = 5
    READY = 6
    DATA = 7
    CREDIT = 8
    END = 9


_KINDS: Final = frozenset(Command)


class RelayKey(ExchangeKey):
    """Static private key of a relay, for X25519.

    Example:
        >>> from ccbps.overlay import RelayKey
        >>> key = RelayKey.generate()
        >>> len(key.public)
        32
    """

    kind = "relay key"
    __slots__ = ()

    @confined
    def accept(self, request: bytes, randomness: Randomness = os.urandom) -> tuple[bytes, Layer]:
        """Return the answer to a client's request, and the layer that both then have.

        Raises:
            DecodeError: the request is not for this key.
        """
        public = request[:KEY_BYTES]
        static = self.agree(public)
        # First, since everybody can send a false request, and make a relay compute powers.
        digest = _request_digest(static, public)
        if not hmac.compare_digest(digest, request[KEY_BYTES:REQUEST_BYTES]):
            raise DecodeError("a request is not for this relay's key")
        fresh = RelayKey(randomness(KEY_BYTES))
        shared = fresh.agree(public)
        layer = Layer(shared + static, self.public + public + fresh.public, at_relay=True)
        return fresh.public + layer.proof, layer


class Request(Confined):
    """A client's request for a layer with one relay.

    Args:
        relay: public key of the relay.
        randomness: source of uniform bytes.

    Attributes:
        content: bytes for the relay.

    Raises:
        KeyMismatchError: the bytes are no public key.
    """

    @confined
    def __init__(self, relay: bytes, randomness: Randomness = os.urandom) -> None:
        self._relay, self._secret = relay, RelayKey(randomness(KEY_BYTES))
        try:
            self._static = self._secret.agree(relay)
        except DecodeError:
            raise KeyMismatchError("a relay's public key is none: take RelayKey.public") from None
        self._public = self._secret.public
        self.content = self._public + _request_digest(self._static, self._public)

    @confined
    def finish(self, answer: bytes) -> Layer:
        """Return the layer, once the relay has answered.

        Raises:
            DecodeError: the relay does not own its key, or the answer was changed.
        """
        public, proof = answer[:KEY_BYTES], answer[KEY_BYTES:ANSWER_BYTES]
        shared = self._secret.agree(public)
        layer = Layer(shared + self._static, self._relay + self._public + public, at_relay=False)
        if not hmac.compare_digest(layer.proof, proof):
            raise DecodeError("an answer does not prove that the relay owns its key")
        return layer


class Layer(Confined):
    """The keys of a client and a relay, and their places in both key streams.

    Args:
        secret: bytes that both sides computed.
        transcript: public keys of the exchange.
        at_relay: True for the relay's side.

    Attributes:
        proof: bytes by which the relay proves to have the keys.
    """

    __slots__ = ("_arriving", "_leaving", "proof")

    @confined
    def __init__(self, secret: bytes, transcript: bytes, *, at_relay: bool) -> None:
        keys = HKDF(SHA256(), 5 * KEY_BYTES, None, b"ccbps 1 circuit\0" + transcript).derive(secret)
        parts = [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
        forward, backward = _Direction(*parts[:2]), _Direction(*parts[2:4])
        self._arriving, self._leaving = (forward, backward) if at_relay else (backward, forward)
        self.proof = parts[4]

    def peel(self, body: bytes) -> bytes:
        """Remove the layer of a body that arrives."""
        return self._arriving.step(body)

    def wrap(self, body: bytes) -> bytes:
        """Add the layer to a body that leaves."""
        return self._leaving.step(body)

    def read(self, body: bytes) -> tuple[Command, bytes] | None:
        """Return kind and data of a body that was peeled, or None if its digest is wrong."""
        if not hmac.compare_digest(body[:DIGEST_BYTES], self._arriving.digest(body)):
            return None
        size = int.from_bytes(body[DIGEST_BYTES + 1 : HEAD_BYTES], "big")
        kind = body[DIGEST_BYTES]
        if kind not in _KINDS or size > DATA_BYTES:
            return None
        return Command(kind), body[HEAD_BYTES : HEAD_BYTES + size]

    def write(self, kind: Command, data: bytes) -> bytes:
        """Return the body of a cell for the other side, under this layer."""
        head = bytes([kind]) + len(data).to_bytes(2, "big")
        body = bytes(DIGEST_BYTES) + head + data + bytes(DATA_BYTES - len(data))
        # `step` counts the cell, so the digest follows with the number that the reader has.
        digest = self._leaving.digest(body, 1)
        return self.wrap(digest + body[DIGEST_BYTES:])


class _Direction:
    """One direction of a layer."""

    __slots__ = ("_digest_key", "_number", "_stream")

    def __init__(self, key: bytes, digest_key: bytes) -> None:
        self._stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
        self._digest_key, self._number = digest_key, 0

    def step(self, body: bytes) -> bytes:
        self._number += 1
        return self._stream.update(body)

    def digest(self, body: bytes, ahead: int = 0) -> bytes:
        content = (self._number + ahead).to_bytes(8, "big") + body[DIGEST_BYTES:]
        return hmac.digest(self._digest_key, content, "sha256")[:DIGEST_BYTES]


def cell_of(circuit: bytes, content: bytes, randomness: Randomness = os.urandom) -> bytes:
    """Return a cell without layers, filled up with random bytes."""
    return circuit + content + randomness(BODY_BYTES - len(content))


def shuffled(
    things: Iterable[T], randomness: Randomness = os.urandom, count: int | None = None
) -> list[T]:
    """Return all or some items in an order that is uniform but for a bias below 2^-100."""
    left: list[T] = [*things]
    order: list[T] = []
    while left and len(order) != count:
        order.append(left.pop(int.from_bytes(randomness(16), "big") % len(left)))
    return order


def _request_digest(static: bytes, public: bytes) -> bytes:
    key = HKDF(SHA256(), KEY_BYTES, None, b"ccbps 1 circuit request").derive(static)
    return hmac.digest(key, public, "sha256")[:DIGEST_BYTES]
