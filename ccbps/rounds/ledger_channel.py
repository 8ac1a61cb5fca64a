"""Frames between a ledger's server and a worker over TCP: authentic both ways, and encrypted.

Both have a `LedgerKey`. Each names a fresh nonce; HKDF-SHA256 of the key and both nonces gives a
key for each direction, and frame i of a direction is AES-256-GCM under the nonce i. So frames
cannot be changed, left out, put in another order or played again; each side sends an empty one
first, before it is told anything. Who listens sees the key's fingerprint, which is the publisher's,
lengths and times. Who finds the key later can read what was recorded: names and tags of events, as
they stand in the ledger, and rounds.

Source: NIST SP 800-38D (GCM), RFC 5869 (HKDF).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.errors import KeyMismatchError
from ccbps.keys.confine import confined
from ccbps.keys.ledger_key import LedgerKey

MAGIC: Final = b"ccbps ledger 2\0\0"
NAME_BYTES: Final = 8
NONCE_BYTES: Final = 32
TAG_BYTES: Final = 16
GREETING_SECONDS: Final = 10
"""Until a worker has proved that it has the key."""

MOST_EVENTS: Final = 1 << 20
"""In one connection: some 50 MB of memory."""
STREAM_BYTES: Final = 16
# What the server's frames begin with.
ROUNDS, OTHER, DONE, FAILED = b"r", b"o", b"d", b"f"


class Broken(Exception):
    """The connection ended, or nothing came in time."""


class Forged(Broken):
    """What came was not sent by who has the key."""


class Channel:
    """One connection. Frames are sent and received in turn, by one thread."""

    def __init__(
        self, connection: socket.socket, sending: bytes, receiving: bytes, seconds: float
    ) -> None:
        """
        Args:
            seconds: that a frame may take to arrive.
        """
        self._connection, self._seconds = connection, seconds
        self._sending, self._receiving = AESGCM(sending), AESGCM(receiving)
        self._sent = self._received = 0

    def send(self, content: bytes) -> None:
        """
        Raises:
            Broken: the connection has.
        """
        frame = self._sending.encrypt(self._sent.to_bytes(12, "big"), content, None)
        self._sent += 1
        _send(self._connection, len(frame).to_bytes(4, "big") + frame, self._seconds)

    def receive(self, most: int, seconds: float | None = None) -> bytes:
        """The next frame, of at most so many bytes, within so many seconds if it is not as usual.

        Raises:
            Broken: the connection has, or nothing came for too long.
            Forged: it is longer, or not from who has the key.
        """
        until = time.monotonic() + (self._seconds if seconds is None else seconds)
        length = int.from_bytes(_read(self._connection, 4, until), "big")
        if not TAG_BYTES <= length <= most + TAG_BYTES:
            raise Forged("a frame of another length than asked for")
        frame = _read(self._connection, length, until)
        try:
            content = self._receiving.decrypt(self._received.to_bytes(12, "big"), frame, None)
        except InvalidTag:
            raise Forged("a frame that was not made with the ledger's key") from None
        self._received += 1
        return content


@confined
def connect(connection: socket.socket, key: LedgerKey, seconds: float) -> Channel:
    """The worker's side.

    Raises:
        KeyMismatchError: the server says that it does not know the key.
        Broken: the connection has, or nothing came for too long.
        Forged: the other side has not the key.
    """
    greeting = MAGIC + bytes.fromhex(key.fingerprint()) + os.urandom(NONCE_BYTES)
    _send(connection, greeting, seconds)
    until = time.monotonic() + seconds  # there may be many workers before this one
    known = _read(connection, 1, until)
    if known == b"\0":
        raise KeyMismatchError("the ledger's server does not know the ledger key of this seed")
    if known != b"\1":
        raise Forged("no server of a ledger answered")
    asking, answering = _keys(key, greeting + _read(connection, NONCE_BYTES, until))
    channel = Channel(connection, asking, answering, seconds)
    channel.send(b"")
    channel.receive(0, until - time.monotonic())
    return channel


@confined
def accept(
    connection: socket.socket, key_of: Callable[[bytes], LedgerKey | None], seconds: float
) -> Channel:
    """The server's side.

    Args:
        key_of: the key with a fingerprint, 8 bytes; None if there is none.

    Raises:
        Broken: the connection has, or nothing came for too long.
        Forged: the other side has no key that is known here.
    """
    until = time.monotonic() + GREETING_SECONDS
    greeting = _read(connection, len(MAGIC) + NAME_BYTES + NONCE_BYTES, until)
    if not greeting.startswith(MAGIC):
        raise Forged("a greeting of something else")
    key = key_of(greeting[len(MAGIC) : -NONCE_BYTES])
    if key is None:
        _send(connection, b"\0", GREETING_SECONDS)
        raise Forged("an unknown ledger key")
    own = os.urandom(NONCE_BYTES)
    _send(connection, b"\1" + own, GREETING_SECONDS)
    asking, answering = _keys(key, greeting + own)
    channel = Channel(connection, answering, asking, seconds)
    channel.receive(0, until - time.monotonic())
    channel.send(b"")
    return channel


def _keys(key: LedgerKey, greetings: bytes) -> tuple[bytes, bytes]:
    """Of what workers send, and of what the server does; from all that was said before."""
    info = b"ccbps 1 ledger channel\0" + greetings
    derived = HKDF(SHA256(), 64, salt=None, info=info).derive(key.export_secret())
    return derived[:32], derived[32:]


def _send(connection: socket.socket, content: bytes, seconds: float) -> None:
    try:
        connection.settimeout(seconds)
        connection.sendall(content)
    except OSError as error:
        raise Broken(str(error)) from None


def _read(connection: socket.socket, count: int, until: float) -> bytes:
    """So many bytes, all of them by a time of the monotonic clock."""
    content = bytearray(count)
    left = memoryview(content)
    try:
        while left:
            connection.settimeout(max(0.001, until - time.monotonic()))
            got = connection.recv_into(left)
            if not got:
                raise Broken("the connection ended")
            if time.monotonic() > until:
                raise Broken("it took too long")
            left = left[got:]
    except OSError as error:
        raise Broken(str(error)) from None
    return bytes(content)
