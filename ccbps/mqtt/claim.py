"""The claim of a service to be the only one that answers at an MQTT server.

Two services with different files would both answer, and clients would get each delivery twice. So
a service leaves a retained message at the server, its claim, and renews it. Another service that
starts finds the claim, and waits for the time of a lease. If the claim is renewed meanwhile, the
other service does not start. A service that was killed does not renew its claim. One that starts
with the same file need not wait: a file has one user at a time.

A service that could not renew its claim for the time of a lease, such as after a network failure,
may find another claim in its place. Then it ends. Over a new connection it therefore reads the
claim before it renews it. No renewal waits for a connection, as it would end the other service.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Final, NamedTuple, Protocol

from ccbps.errors import RefusedError
from ccbps.mqtt.connection import WAIT_SECONDS

CLAIM: Final = "ccbps/claim"
"""Topic of claims."""
LEASE_SECONDS: Final = 6.0
"""Seconds for which a claim holds if it is not renewed."""
RENEWALS: Final = 3
"""Number of renewals in the time of a lease."""
RELEASE_SECONDS: Final = 2.0
"""Seconds that a stopping service waits for the server to delete its claim."""
_RECORD: Final = struct.Struct(">8s8sQ")
_NOT_LET: Final = "the MQTT server does not let the service read and write its topics"
_CLAIMED: Final = (
    "another service answers at this MQTT server, and a server can have one: end it first"
)
_log: Final = logging.getLogger(__name__)


class _Record(NamedTuple):
    """A claim.

    Attributes:
        identity: 8 random bytes of the service.
        numbering: `MatchingBroker.numbering` of its broker.
        renewals: number of times that it was renewed, from 1 on; 0 in a question for claims.
    """

    identity: bytes
    numbering: bytes
    renewals: int


class Sender(Protocol):
    """Method that sends a message to a topic, such as `Connection.send`."""

    def __call__(
        self, topic: str, content: bytes, *, retain: bool = False, waits: bool = True
    ) -> None:
        """Send a message."""


class Claim:
    """A service's claim. Its messages arrive in another thread than its caller's."""

    def __init__(self, send: Sender, numbering: bytes, on_lost: Callable[[], object]) -> None:
        """Prepare a claim.

        Args:
            send: function that sends a message.
            numbering: numbering of the service's broker.
            on_lost: function that is called if another service takes the claim.
        """
        self._send, self._on_lost = send, on_lost
        self._own = _Record(os.urandom(8), numbering, 0)
        self._changed = Condition()
        self._last: _Record | None = None
        self._was_answered = self._is_held = False
        self._ended = Event()
        self._renewer = Thread(target=self._renew, name="claim", daemon=True)

    def acquire(self) -> None:
        """Take the claim.

        Raises:
            RefusedError: another service has it, and is alive, or takes it at the same time.
            OSError: the server passes no messages on.
        """
        self.ask()
        with self._changed:
            if not self._changed.wait_for(lambda: self._was_answered, WAIT_SECONDS):
                raise OSError(_NOT_LET)
            other = self._last
            if other is not None and other.numbering != self._own.numbering:
                _log.warning("another service was here: waiting %s s for it", LEASE_SECONDS)
                self._changed.wait_for(lambda: self._last != other, LEASE_SECONDS)
                if self._last is not None and self._last != other:
                    raise RefusedError(_CLAIMED, reason="claimed")
        self._write()
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._is_held or self._ended.is_set(), WAIT_SECONDS
            ):
                raise OSError(_NOT_LET)
            if self._ended.is_set():
                raise RefusedError(_CLAIMED, reason="claimed")
        self._renewer.start()

    def ask(self) -> None:
        """Ask the server for the claim, and suspend renewals until the answer."""
        with self._changed:
            self._was_answered = False
        # The server sends the retained claim before this comes back.
        self._send(CLAIM, _RECORD.pack(*self._own._replace(renewals=0)))

    def release(self) -> None:
        """Release the claim, if it was not lost."""
        self._ended.set()
        with self._changed:
            is_held, self._is_held = self._is_held, False
            if is_held:
                self._send(CLAIM, b"", retain=True, waits=False)
                # A server may drop what comes just before the end of a connection.
                self._changed.wait_for(lambda: self._last is None, RELEASE_SECONDS)

    def arrived(self, content: bytes) -> None:
        """Accept a message of the topic."""
        if content and len(content) != _RECORD.size:
            return  # of a later version
        record = _Record(*_RECORD.unpack(content)) if content else None
        with self._changed:
            is_own = record is not None and record.identity == self._own.identity
            if record is not None and record.renewals == 0:
                self._was_answered = self._was_answered or is_own
            else:
                self._last = record
                is_lost = self._is_held and record is not None and not is_own
                self._is_held = (self._is_held or is_own) and not is_lost
                if is_lost:
                    self._ended.set()
                    self._on_lost()
            self._changed.notify_all()

    def _write(self) -> None:
        """Write the claim at the server, or renew it."""
        self._own = self._own._replace(renewals=self._own.renewals + 1)
        self._send(CLAIM, _RECORD.pack(*self._own), retain=True, waits=False)

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / RENEWALS):
            if self._was_answered:
                self._write()
