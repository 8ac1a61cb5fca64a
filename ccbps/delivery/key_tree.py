"""Payload keys by ranges: a subscriber opens the events in its box with a few keys of a tree.

The events of a topic are leaves of a `Decomposition`. Each node of the tree has a key::

    K_root = HMAC(S, topic, epoch),    K_(v b) = SHA-256(K_v | b)

S is the secret of the key server. A payload is sealed under the key of its event's leaf. A
subscriber of a box gets the keys of the nodes that cover the box, and hashes down from them, at
most once for each bit of a leaf. A publisher gets the root's key. The server stores S only.

Keys and subscriptions end with their *epoch*, without any message. The keys of the next epoch are
given out before it starts, and an opener holds those of several epochs. A subscriber that leaves
can read until the epoch ends.

`RangeKey` remembers the keys of its last path, so a leaf costs one hash for each bit after the
prefix that it shares with the last leaf: 2^(n + 1) - 2 for all 2^n leaves in order, and
n - 1 + 2^-n on average for random ones.

Leak: the leaf of an event, and so all its attributes up to the depth of the tree, is in the clear:
a receiver needs it to find the key. So are the epoch, the padded length, and a hash of topic and
schema, against which everybody can test guesses. Collusion gives two users nothing beyond what each
can open: one tree binds all attributes to one another. Hazard: whoever can open a payload could
also have sealed it.
Sources: Srivatsa and Liu, ICDCS 2007 (PSGuard); [Survey] section 4.8.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Final, Self

from msgspec import Meta

from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, text, whole
from ccbps.ciphers.payloads import NONCE_BYTES, PAD_TO, as_bytes, open_sealed, seal
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.forms.decomposition import Decomposition, Node
from ccbps.keys.plain_key import DrawnKey
from ccbps.keys.secret import Confined, confined
from ccbps.keys.text_form import TextKey
from ccbps.predicates import Predicate, Schema
from ccbps.records import Message, Number, SecretRecord, read, write
from ccbps.wire import Kind

KEY_BYTES: Final = 32
NAME_BYTES: Final = 16
_LABEL: Final = b"ccbps key tree 1"
_REFUSED: Final = "not a message for this key, or one that was altered"


class KeyTree(Printable):
    """The public part of a tree of keys.

    Args:
        schema: attributes of the events.
        topic: name of the topic, or of another context with keys of its own.
        depth: number of cuts of the tree; all bits of the schema by default.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.delivery import KeyTree, TreeKey
        >>> tree, secret = KeyTree(Schema(price=UInt(8)), "quotes"), TreeKey.generate()
        >>> sealed = tree.publisher_key(secret, epoch=7).seal([b"IBM"], [{"price": 119}])
        >>> tree.subscriber_key(secret, "price < 120", epoch=7).open(sealed)
        [b'IBM']
        >>> tree.subscriber_key(secret, "price > 120", epoch=7).open(sealed)
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: row 0: the event is outside of this key's ranges
    """

    def __init__(self, schema: Schema, topic: str, *, depth: int | None = None) -> None:
        self.space = Decomposition(schema, depth)
        self.topic = text("topic", topic)

    def __repr__(self) -> str:
        return f"<KeyTree of {self.topic!r} over {', '.join(self.space.schema.names)}>"

    @property
    def name(self) -> bytes:
        """Name of the tree in keys and messages, `NAME_BYTES`."""
        space = self.space
        described = write((self.topic, space.schema.to_json(), space.depth))
        return sha256(_LABEL + described).digest()[:NAME_BYTES]

    def publisher_key(self, secret: TreeKey, *, epoch: int) -> RangeKey:
        """Make the key of a publisher in an epoch: that of the root."""
        epoch = whole("epoch", epoch, 0, (1 << 63) - 1)
        return RangeKey(self, {epoch: {"": self._root(secret, epoch)}})

    def subscriber_key(
        self, secret: TreeKey, predicate: str | Predicate, *, epoch: int
    ) -> RangeKey:
        """Make the key of a subscriber in an epoch: those of the nodes that cover its box.

        Raises:
            UnsupportedPredicateError: the predicate is no box, or nothing satisfies it, or it takes
                too many nodes.
        """
        epoch = whole("epoch", epoch, 0, (1 << 63) - 1)
        root, nodes = self._root(secret, epoch), self.space.cover(predicate)
        if not nodes:
            raise ParameterError("no event satisfies the predicate, so there is no key for it")
        return RangeKey(self, {epoch: {node: hashed_down(root, node) for node in nodes}})

    def _root(self, secret: TreeKey, epoch: int) -> bytes:
        key = instance("secret", secret, TreeKey).export_secret()
        return hmac.digest(key, _LABEL + self.name + epoch.to_bytes(8), "sha256")


class TreeKey(DrawnKey):
    """The secret of a key server, from which all keys of its trees follow.

    Example:
        >>> from ccbps.delivery import TreeKey
        >>> key = TreeKey.generate()
        >>> TreeKey.from_text(key.to_text()) == key
        True
    """

    kind = "key of trees"
    length = KEY_BYTES
    text_kind = "tree-key"
    __slots__ = ()


class _Sealed(Message, frozen=True):
    """The message of an event.

    Attributes:
        tree: name of the tree.
        epoch: epoch of the keys.
        leaf: leaf of the event.
        nonce: random nonce.
        payload: sealed payload.
    """

    front: ClassVar[bytes] = bytes([Kind.TREE_EVENT, 1])
    what: ClassVar[str] = "a payload under a key of a tree"
    tree: bytes
    epoch: Number
    leaf: Annotated[str, Meta(pattern=r"\A[01]+\Z")]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    payload: bytes = b""


_NodeKey = tuple[
    Annotated[str, Meta(pattern=r"\A[01]*\Z")],
    Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)],
]


class _Fields(SecretRecord, frozen=True):
    """The fields of a `RangeKey`."""

    topic: str
    schema: str
    depth: int
    keys: Annotated[tuple[tuple[Number, tuple[_NodeKey, ...]], ...], Meta(min_length=1)]


class RangeKey(Confined, TextKey):
    """Keys of some nodes of a tree, in one epoch or several.

    Args:
        tree: the tree.
        keys: keys by epoch and node.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.delivery import KeyTree, TreeKey
        >>> tree, secret = KeyTree(Schema(price=UInt(8)), "quotes"), TreeKey.generate()
        >>> key = tree.subscriber_key(secret, "price < 120", epoch=7)
        >>> key.with_next(tree.subscriber_key(secret, "price < 120", epoch=8))
        <RangeKey of 'quotes': epochs 7, 8>

    Attributes:
        tree: as given.
        hashes: number of hashes that were computed.
    """

    kind = "key of ranges"
    text_kind = "range-key"
    __slots__ = ("_keys", "_path", "hashes", "tree")

    def __init__(self, tree: KeyTree, keys: Mapping[int, Mapping[Node, bytes]]) -> None:
        self.tree, self._keys = tree, {epoch: dict(nodes) for epoch, nodes in keys.items()}
        self._path: tuple[int, Node, Node, list[bytes]] = -1, "", "", []
        self.hashes = 0

    def __repr__(self) -> str:
        epochs = ", ".join(map(str, self.epochs))
        return f"<RangeKey of {self.tree.topic!r}: epochs {epochs}>"

    @property
    def epochs(self) -> list[int]:
        """Epochs whose messages the key opens."""
        return sorted(self._keys)

    def with_next(self, following: RangeKey, *, keep: int = 2) -> RangeKey:
        """Return a key that also opens messages of further epochs; the oldest epochs are dropped.

        In an epoch of both keys it opens all messages that either opens. It seals in the latest
        epoch, so a publisher takes in the next key when its epoch starts.

        Args:
            following: key of the same tree.
            keep: number of latest epochs that are kept.

        Raises:
            KeyMismatchError: it is of another tree.
        """
        if instance("following", following, RangeKey).tree.name != self.tree.name:
            raise KeyMismatchError("following is a key of another tree")
        mine, others = self._keys, following._keys
        kept = sorted({*mine, *others})[-whole("keep", keep, 1) :]
        return RangeKey(
            self.tree, {epoch: mine.get(epoch, {}) | others.get(epoch, {}) for epoch in kept}
        )

    @confined
    def seal(
        self,
        payloads: Sequence[bytes],
        records: Any,
        *,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> list[bytes]:
        """Seal payloads, each under the key of its record's leaf, in the latest epoch.

        Args:
            payloads: payloads, one for each record.
            records: records of the schema.
            pad_to: number of bytes. Payloads are padded to a multiple of it; 1 shows their lengths.
            randomness: source of uniform bytes, 12 a payload.

        Raises:
            ParameterError: the numbers of payloads and records differ.
            KeyMismatchError: a record is outside of this key's ranges.
        """
        payloads, leaves = as_bytes("payloads", payloads), [*self.tree.space.leaves(records)]
        if len(payloads) != len(leaves):
            raise ParameterError(f"{len(leaves)} records need as many payloads: {len(payloads)}")
        whole("pad_to", pad_to, 1)
        epoch, name, sealed = self.epochs[-1], self.tree.name, []
        for row, (payload, leaf) in enumerate(zip(payloads, leaves, strict=True)):
            nonce = randomness(NONCE_BYTES)
            head = _Sealed(name, epoch, leaf, nonce)
            key = self._leaf_key(row, epoch, leaf)
            body = seal(payload, key, head.to_bytes(), pad_to=pad_to, nonce=nonce)
            sealed.append(_Sealed(name, epoch, leaf, nonce, body).to_bytes())
        return sealed

    @confined
    def open(self, messages: Iterable[bytes]) -> list[bytes]:
        """Open payloads.

        Raises:
            DecodeError: a message is malformed or was altered.
            KeyMismatchError: a message is of another tree or epoch, or outside of this key's
                ranges.
        """
        opened = []
        for row, message in enumerate(messages):
            try:
                parsed = _Sealed.from_bytes(message)
            except DecodeError as error:
                raise DecodeError(f"row {row}: {error}", rows=(row,)) from None
            if parsed.tree != self.tree.name or len(parsed.leaf) != self.tree.space.depth:
                raise KeyMismatchError(f"row {row}: the message is of another tree")
            if parsed.epoch not in self._keys:
                epochs = ", ".join(map(str, self.epochs))
                raise KeyMismatchError(
                    f"row {row}: the message is of epoch {parsed.epoch}, and the key of {epochs}"
                )
            key = self._leaf_key(row, parsed.epoch, parsed.leaf)
            head = _Sealed(parsed.tree, parsed.epoch, parsed.leaf, parsed.nonce).to_bytes()
            with suppress(DecodeError):
                opened.append(open_sealed(parsed.payload, key, head, nonce=parsed.nonce))
            if len(opened) <= row:
                raise DecodeError(f"row {row}: {_REFUSED}", rows=(row,))
        return opened

    def _leaf_key(self, row: int, epoch: int, leaf: Node) -> bytes:
        """Return the key of a leaf, starting from the last path."""
        nodes = self._keys[epoch]
        node = next((leaf[:end] for end in range(len(leaf) + 1) if leaf[:end] in nodes), None)
        if node is None:
            raise KeyMismatchError(f"row {row}: the event is outside of this key's ranges")
        before = self._path
        same = before[:2] == (epoch, node)
        path = [nodes[node]]
        if same:
            pairs = zip(before[2][len(node) :], leaf[len(node) :], strict=True)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            path = before[3][: shared + 1]
        for bit in leaf[len(node) + len(path) - 1 :]:
            path.append(hashed_down(path[-1], bit))
            self.hashes += 1
        self._path = epoch, node, leaf, path
        return path[-1]

    def _to_bytes(self) -> bytes:
        space = self.tree.space
        keys = tuple((epoch, tuple(nodes.items())) for epoch, nodes in sorted(self._keys.items()))
        return write(_Fields(self.tree.topic, space.schema.to_json(), space.depth, keys))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_Fields, secret, refusal="not a key of ranges")
        tree = KeyTree(Schema.from_json(fields.schema), fields.topic, depth=fields.depth)
        keys = {epoch: dict(nodes) for epoch, nodes in fields.keys}
        if any(len(node) > fields.depth for nodes in keys.values() for node in nodes):
            raise DecodeError("not a key of ranges")
        return cls(tree, keys)


def hashed_down(key: bytes, bits: Node) -> bytes:
    """Return the key of a node from the key of an ancestor, and the bits between the two."""
    for bit in bits:
        key = sha256(key + bit.encode()).digest()
    return key
