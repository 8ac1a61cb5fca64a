"""Shares of a client's messages for three brokers, and their expansion at a broker.

A client draws two keys: one for brokers 0 and 1, and one for brokers 0 and 2. It seals them for
each broker in a *hello*, by an X25519 exchange with the broker's public key. No key is known to all
three brokers, and clients have no key in common. Bits x of a message are shared as::

    x_0 = F(key of 0 and 2, place),   x_1 = F(key of 0 and 1, place),   x_2 = x + x_0 + x_1

A message is its head, which names the place, and x_2. Broker 0 gets the head alone. A place is a
random nonce of 24 bytes, drawn for each batch, and the row in the batch. So a batch that is encoded
again, with other content, uses other shares. F binds the client, the kind of message, the public
parameters and the epoch: an event that is copied as an interest, or into another client's messages,
has shares that add up to noise.

=======  ===========  =========================================
head     bytes        content
=======  ===========  =========================================
kind     1            `ccbps.wire.Kind`: of events, interests or grants
version  1            1
matcher  6            first bytes of the digest of the public parameters
client   16           name of the client, given by its hello
nonce    24           of the batch
row      4            number of the row, little-endian
grantee  16           grants only: name of the client that the grant is for
number   8            grants only: number of the grant, little-endian
=======  ===========  =========================================

A client's name is a hash of the public half of its X25519 key. So nobody else can greet a broker
under this name and pass for the client.

F is AES-256 in counter mode, under a key that HKDF-SHA256 derives from the pair's key and the
place.

Messages may take their way through broker 0, which must not read x_2. For that the client seals
them: x_2 is enciphered once for broker 1 and once for broker 2, each time with a tag, under keys
from the exchanges of the hello::

    head | x_2 + F(key of 1, place) | tag | x_2 + F(key of 2, place) | tag

Source: Araki et al., CCS 2016 (shares from keys in pairs); RFC 5869, RFC 7748.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import choice, whole
from ccbps.ciphers.row_mac import RowMac
from ccbps.errors import DecodeError
from ccbps.keys.plain_key import PARTIES, PUBLIC_BYTES, ExchangeKey, public_keys
from ccbps.keys.secret import Confined
from ccbps.keys.stream import BLOCK, KeyStream, StreamKey, row_tags
from ccbps.wire import VERSION, Cause, Kind, padding_causes, raise_for

KINDS: Final = {"event": Kind.EVENT, "interest": Kind.INTEREST, "grant": Kind.GRANT}
CLIENT_BYTES: Final = 16
NONCE_BYTES: Final = 24
HEAD_BYTES: Final = 52
"""Bytes of a head of an event or interest; a grant's is longer."""
GRANT_HEAD_BYTES: Final = 76
_MATCHER: Final = slice(2, 8)
TAG_BYTES: Final = 16
SEALED_FOR: Final = (1, 2)
"""Brokers that sealed messages have a part for."""
CLIENT: Final = slice(8, 24)
"""Place of the client's name in a head."""
_NONCE: Final = slice(24, 48)
_ROW: Final = slice(48, 52)
PLACE: Final = slice(24, 52)
"""Nonce and row: place of a message among those of its client."""
GRANTEE: Final = slice(52, 68)
NUMBER: Final = slice(68, 76)
KEY_BYTES: Final = 32
HELD: Final = (("02", "01"), ("01",), ("02",))
"""Pairs of brokers whose keys each broker has. Share 0 derives from the key of 0 and 2, share 1
from that of 0 and 1."""


def head_bytes(kind: str) -> int:
    """Return the bytes of a message's head."""
    return GRANT_HEAD_BYTES if kind == "grant" else HEAD_BYTES


def hello_bytes(party: int) -> int:
    """Return the bytes of a hello for a broker."""
    return CLIENT_BYTES + PUBLIC_BYTES + len(HELD[party]) * KEY_BYTES + TAG_BYTES


class BrokerKey(ExchangeKey):
    """The secret half of a broker's key, by which it opens clients' hellos."""

    kind = "key for hellos"
    text_kind = "hello-key"
    __slots__ = ()

    def open(self, party: int, hello: bytes, context: bytes) -> SharedKeys:
        """Open a client's hello.

        Args:
            party: number of this broker: 0, 1 or 2.
            hello: the hello that the client made for this broker.
            context: public parameters and epoch, equal to the client's.

        Raises:
            DecodeError: it is no hello for this broker, party and context.
        """
        whole("party", party, 0, PARTIES - 1)
        if len(hello) != hello_bytes(party):
            raise DecodeError(
                f"a hello for broker {party} has {hello_bytes(party)} bytes, got {len(hello)}"
            )
        client, rest = hello[:CLIENT_BYTES], hello[CLIENT_BYTES:]
        point, sealed = rest[:PUBLIC_BYTES], rest[PUBLIC_BYTES:]
        bound = _bound(party, client, point, self.public, context)
        try:
            if client != _name_of(point):
                raise ValueError("another client's name")
            agreed = self.agree(point)
            keys = AESGCM(_derived(agreed, bound)).decrypt(bytes(12), sealed, bound)
            own = _own_key(agreed, bound)
        except (InvalidTag, ValueError):
            raise DecodeError(
                f"the hello is not for broker {party}, its key, these public parameters and this "
                "epoch, or it is damaged"
            ) from None
        held = {pair: keys[KEY_BYTES * i :][:KEY_BYTES] for i, pair in enumerate(HELD[party])}
        return SharedKeys(client, held | {str(party): own}, context)


class SharedKeys(Confined):
    """Keys that a client shares with one broker or, on the client's side, with all of them.

    Attributes:
        client: name of the client, 16 bytes.
        matcher: first 6 bytes of the public parameters' digest.
    """

    def __init__(self, client: bytes, keys: dict[str, bytes], context: bytes) -> None:
        self.client, self._keys, self._context = client, keys, context
        self._macs: dict[int, RowMac] = {}
        self._answer_keys: dict[int, tuple[algorithms.AES256, algorithms.AES256]] = {}
        self.matcher = context[: _MATCHER.stop - _MATCHER.start]

    def __repr__(self) -> str:
        return f"<SharedKeys of client {self.client.hex()}>"

    def stream(self, pair: str, kind: int, heads: Bytes, size: int) -> Bytes:
        """Return the shares that follow from the key of a pair of brokers, shape (count, size).

        Args:
            pair: "01" or "02"; or "1" or "2" for the stream that seals messages for one broker.
            kind: kind of the messages.
            heads: heads of messages of this client, shape (count, bytes of such a head).
            size: bytes of a share.
        """
        if not len(heads):
            return np.empty((0, size), dtype=np.uint8)
        nonces = np.concatenate([heads[:, _NONCE], heads[:, HEAD_BYTES:]], axis=1)
        rows = np.ascontiguousarray(heads[:, _ROW]).view("<u4")[:, 0]
        batches, index = np.unique(nonces.view(f"V{nonces.shape[1]}")[:, 0], return_inverse=True)
        keys = []
        for nonce in batches:
            place = b"ccbps shares" + pair.encode() + bytes([kind]) + self.client
            info = place + bytes(nonce) + self._context
            keys.append(StreamKey(_derived(self._keys[pair], info)))
        reader = KeyStream(keys, index.reshape(-1), rows.astype(np.uint64), size)
        return reader(0, len(heads)).copy()

    def mac(self, party: int) -> RowMac:
        """Return the key of the tags of messages that are sealed for a broker."""
        if party not in self._macs:
            key = _derived(self._keys[str(party)], b"ccbps tags of sealed messages")
            self._macs[party] = RowMac(key)
        return self._macs[party]

    def answer_keys(self, party: int) -> tuple[algorithms.AES256, algorithms.AES256]:
        """Return the keys with which a broker names this client's interests, and seals answers."""
        if party not in self._answer_keys:
            own = self._keys[str(party)]
            self._answer_keys[party] = (
                algorithms.AES256(_derived(own, b"ccbps names of interests")),
                algorithms.AES256(_derived(own, b"ccbps sealed answers")),
            )
        return self._answer_keys[party]


class Client:
    """A client that shares its messages between three brokers.

    Args:
        brokers: public halves of the keys of brokers 0, 1 and 2.
        context: digest of the public parameters, and the epoch, which all agree on.
        randomness: source of the client's keys: the operating system, a `ClientKey`, or a test's.
        nonces: source of nonces that never repeat; None for `randomness`.

    Attributes:
        hellos: messages by which brokers 0, 1 and 2 get their keys, once.

    Raises:
        ParameterError: there are not three different public keys.
    """

    def __init__(
        self,
        brokers: Sequence[bytes],
        context: bytes,
        randomness: Randomness = os.urandom,
        nonces: Randomness | None = None,
    ) -> None:
        brokers = public_keys(brokers)
        keys = {pair: randomness(KEY_BYTES) for pair in ("01", "02")}
        own = ExchangeKey(randomness(KEY_BYTES))
        point = own.public
        client, hellos, own_keys = _name_of(point), [], {}
        for party, public in enumerate(brokers):
            bound = _bound(party, client, point, public, context)
            agreed = own.agree(public)
            own_keys[str(party)] = _own_key(agreed, bound)
            held = b"".join(keys[pair] for pair in HELD[party])
            # The key serves one message, so its nonce may be zero.
            sealed = AESGCM(_derived(agreed, bound)).encrypt(bytes(12), held, bound)
            hellos.append(client + point + sealed)
        self.hellos = hellos[0], hellos[1], hellos[2]
        self._shared = SharedKeys(client, keys | own_keys, context)
        self._payload_key = algorithms.AES256(randomness(KEY_BYTES))  # known to nobody else
        self._randomness = randomness if nonces is None else nonces

    def heads(self, kind: str, count: int) -> Bytes:
        """Return heads of new messages in a batch of their own, shape (count, bytes of a head).

        Args:
            kind: "event", "interest" or "grant"; grantee and number of a grant are to be written.
            count: number of messages.
        """
        out = np.zeros((count, head_bytes(kind)), dtype=np.uint8)
        first = bytes([KINDS[kind], VERSION]) + self._shared.matcher
        start = first + self._shared.client + self._randomness(NONCE_BYTES)
        out[:, : _ROW.start] = np.frombuffer(start, dtype=np.uint8)
        out[:, _ROW] = np.arange(count, dtype="<u4")[:, None].view(np.uint8)
        return out

    def mask(self, kind: str, heads: Bytes, size: int) -> Bytes:
        """Return the sum of shares 0 and 1 of messages, shape (count, size)."""
        first, second = (
            self._shared.stream(pair, KINDS[kind], heads, size) for pair in ("01", "02")
        )
        first ^= second
        return first

    @property
    def keys(self) -> SharedKeys:
        """Keys that this client shares with the brokers."""
        return self._shared

    def payload_keys(self, heads: Bytes) -> Bytes:
        """Return the payload keys of this client's events, shape (count, 16); none is all 0."""
        rows = np.zeros((len(heads), -(-HEAD_BYTES // BLOCK) * BLOCK), dtype=np.uint8)
        rows[:, :HEAD_BYTES] = heads
        keys = row_tags([self._payload_key], None, rows)
        keys[~keys.any(axis=1), 0] = 1
        return keys

    def seal(self, kind: str, messages: Bytes) -> Bytes:
        """Seal messages of this client for a way through broker 0, shape (count, sealed bytes).

        Args:
            kind: "event", "interest" or "grant".
            messages: messages of this client, shape (count, bytes).
        """
        heads, body = np.split(messages, [head_bytes(kind)], axis=1)
        parts = [heads]
        for party in SEALED_FOR:
            stream = self._shared.stream(str(party), KINDS[kind], heads, body.shape[1])
            stream ^= body
            behind = np.concatenate([heads, stream], axis=1)
            parts += [stream, self._shared.mac(party).tags(behind)]
        return np.concatenate(parts, axis=1)


def part_of(party: int, messages: Bytes) -> Bytes:
    """Return the part of messages that a broker gets: all of it, or for broker 0 the heads."""
    return messages if party else messages[:, :HEAD_BYTES]


def part_bytes(party: int, message_bytes: int) -> int:
    """Return the bytes of the part of a message that a broker gets."""
    return message_bytes if party else HEAD_BYTES


def sealed_bytes(message_bytes: int, kind: str = "interest") -> int:
    """Return the bytes of a message when it is sealed."""
    head = head_bytes(kind)
    return head + len(SEALED_FOR) * (message_bytes - head + TAG_BYTES)


def sealed_width(party: int, bits: int, kind: str = "interest") -> int:
    """Return the bytes of a broker's part of a sealed message of so many bits."""
    return head_bytes(kind) + (-(-bits // 8) + TAG_BYTES if party else 0)


def sealed_part(party: int, sealed: Bytes, kind: str = "interest") -> Bytes:
    """Return the part of sealed messages that a broker gets; for broker 0 the heads."""
    heads, bodies = np.split(sealed, [head_bytes(kind)], axis=1)
    if party == 0:
        return heads
    bodies = bodies.reshape(len(sealed), len(SEALED_FOR), bodies.shape[1] // len(SEALED_FOR))
    return np.concatenate([heads, bodies[:, SEALED_FOR.index(party)]], axis=1)


def opened(party: int, keys: SharedKeys, kind: str, parts: Bytes) -> tuple[Bytes, Bools]:
    """Open a broker's part of sealed messages of one client.

    Args:
        party: number of this broker.
        keys: keys from the client's hello.
        kind: "event", "interest" or "grant".
        parts: parts for this broker, shape (count, bytes).

    Returns:
        messages for this broker, shape (count, bytes); and the rows whose tag is right, shape
        (count,). The content of other rows means nothing.
    """
    if party == 0:
        return parts, np.ones(len(parts), dtype=np.bool_)
    behind = np.ascontiguousarray(parts[:, :-TAG_BYTES])
    good = keys.mac(party).check(behind, parts[:, -TAG_BYTES:])
    heads, body = np.split(behind, [head_bytes(kind)], axis=1)
    body ^= keys.stream(str(party), KINDS[kind], heads, body.shape[1])
    return behind, good


def expand(
    party: int, keys: SharedKeys, kind: str, messages: Bytes, bits: int
) -> tuple[Bytes, Bytes]:
    """Return a broker's two shares of a client's messages, 0 and 1, shape (count, bits), uint8.

    Args:
        party: number of this broker.
        keys: keys from the client's hello.
        kind: "event", "interest" or "grant".
        messages: messages of this client for this broker, shape (count, bytes).
        bits: bits of a share.

    Raises:
        DecodeError: they are not messages of this client, kind and size.
    """
    number, size = KINDS[choice("kind", kind, tuple(KINDS))], -(-bits // 8)
    head = head_bytes(kind)
    width = head + (size if party else 0)
    if messages.dtype != np.uint8 or messages.ndim != 2 or messages.shape[1] != width:
        raise DecodeError(
            f"{kind}s for broker {party} have {width} bytes, an array of shape (count, {width}); "
            f"got {messages.dtype} {messages.shape}"
        )
    raise_for(head_causes(kind, keys, messages))
    heads, body = np.split(messages, [head], axis=1)

    def derived(pair: str) -> Bytes:
        return _bits(keys.stream(pair, number, heads, size), bits)

    if party == 0:
        return derived("02"), derived("01")
    if bits % 8:
        raise_for(padding_causes(body[:, -1] >> np.uint8(bits % 8) != 0))
    sent = _bits(body, bits)
    return (derived("01"), sent) if party == 1 else (sent, derived("02"))


def head_causes(kind: str, keys: SharedKeys, messages: Bytes) -> Bytes:
    """Return the `Cause` for refusing each message of a client by its head, or 0."""
    causes = np.zeros(len(messages), dtype=np.uint8)
    client = np.frombuffer(keys.client, dtype=np.uint8)
    causes[(messages[:, CLIENT] != client).any(axis=1)] = Cause.KEY
    matcher = np.frombuffer(keys.matcher, dtype=np.uint8)
    other = (messages[:, _MATCHER] != matcher).any(axis=1)
    causes[other] = Cause[f"{kind.upper()}_MATCHER"]
    first = np.array([KINDS[kind], VERSION], dtype=np.uint8)
    wrong = (messages[:, :2] != first).any(axis=1)
    causes[wrong] = Cause[f"{kind.upper()}_KIND"]
    return causes


def _bits(packed: Bytes, count: int) -> Bytes:
    return np.unpackbits(packed, axis=1, bitorder="little", count=count)


def _name_of(point: bytes) -> bytes:
    """Return the name of the client with this public key."""
    return sha256(b"ccbps client\0" + point).digest()[:CLIENT_BYTES]


def _bound(party: int, client: bytes, point: bytes, public: bytes, context: bytes) -> bytes:
    """Return the public content that a hello is bound to."""
    return b"ccbps hello" + bytes([party]) + client + point + public + context


def _own_key(agreed: bytes, bound: bytes) -> bytes:
    """Return the key that a client and one broker alone have."""
    return _derived(agreed, b"own " + bound)


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)
