"""Key epochs of `ccbps.matching.boxes.aspe`: a new key without sending subscriptions again.

    token = server.rotate()                       # keys given out from now on: epoch + 1
    new = matcher.broker(server.broker_key())     # beside the broker of the old epoch, for a while
    table = new.update(table, token)              # stored interests, without reading them

The update is U = M_new^T M_old^-T of [OFMR15] (its transpose, as ciphertexts are rows here): it
turns ciphertexts of points under M_old into such under M_new; queries take its inverse transpose.
Publishers get keys of the new epoch; events of the old one that arrive late are matched by the old
broker with the old table, and refused by the new one. Drop the old broker when no more come.

Every key that is drawn has an id of its own: its first two bytes name the server, the other four
are random. So two servers that were restored from one saved key and rotated apart are not taken for
each other: what belongs to the other one's key is refused, although the epoch is the same.

Hazard: an update is a secret between key server and broker. Updates and the key of one epoch give
the keys of all epochs, so a new key does not lock out a broker that found the old one.
Hazard: real numbers lose a little with every update; a stored interest is good for 64 at least.
Source: [OFMR15]; its protection against known plaintext is not part of this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.role_key import KEY_ID_BYTES, RoleKey
from ccbps.matching.reusable import KeyServer
from ccbps.matching.reusable_roles import ReusableBroker, Table
from ccbps.wire import HEADER_BYTES, Cause, Kind

if TYPE_CHECKING:
    from ccbps.matching.boxes.aspe import AspeMatch

__all__ = ["AspeBroker", "AspeKeyServer", "AspeUpdate", "Stored"]


LAST_EPOCH: Final = 0xFFFF
SERVER_BYTES: Final = 2
"""First bytes of a key's id, which stay when the key changes."""


@dataclass(frozen=True, slots=True, repr=False)
class Stored:
    """Interests as the broker keeps them.

    Attributes:
        differences: of points, one for each bound; the interests are the last axis.
        corners: query ciphertexts, two for each interest; they are the last axis but one.
    """

    differences: Any
    corners: Any


class AspeUpdate(RoleKey):
    """What brings stored interests from one epoch to the next. For the broker, nobody else."""

    kind = "key update"
    __slots__ = ()


class AspeKeyServer(KeyServer):
    """Holds M, encrypts subscriptions as the trusted security manager, and changes the key.

    Save `key` after every change of key. From an older one the server takes another way: its next
    keys are refused where those of the way not taken are in use.
    """

    matcher: AspeMatch

    def encode(self, interest: Any | Iterable[Any]) -> Bytes:
        """Interest messages for predicates that subscribers entrust to the manager.

        Raises:
            PredicateError: as `ReusableSubscriber.encode`.
        """
        return self.matcher.subscriber(self.subscriber_key("security manager")).encode(interest)

    def rotate(self) -> AspeUpdate:
        """Draw a new key: from now on keys are of epoch + 1. Returns the broker's update.

        Raises:
            ParameterError: this was the last of 65536 epochs.
        """
        if self.epoch >= LAST_EPOCH:
            raise ParameterError("no epoch is left; make a new key server")
        fresh = self.matcher._generate(os.urandom)
        change = self.matcher._numbers.update(self._master, fresh)
        data = {"from": self.epoch, "key": self._id.hex(), "update": change}
        name = self._id[:SERVER_BYTES] + os.urandom(KEY_ID_BYTES - SERVER_BYTES)
        token = AspeUpdate.make(self.matcher.fingerprint, "broker", name, self.epoch + 1, data)
        self._master, self._id, self.epoch = fresh, name, self.epoch + 1
        return token


class AspeBroker(ReusableBroker):
    """Matches, and brings stored interests to the next epoch's key."""

    matcher: AspeMatch

    @overload
    def update(self, interests: Bytes, token: AspeUpdate) -> Bytes: ...

    @overload
    def update(self, interests: Table, token: AspeUpdate) -> Table: ...

    def update(self, interests: Bytes | Table, token: AspeUpdate) -> Bytes | Table:
        """Interests of the token's old epoch as interests of its new one.

        Args:
            interests: messages, or what `prepare` made of them. They are not changed.
            token: from `AspeKeyServer.rotate`. Several changes of key take their tokens in turn.

        Returns:
            new messages or a new table, for brokers of the new epoch.

        Raises:
            KeyMismatchError: the token or the table is of another matcher, server, key or epoch.
            DecodeError: messages are not interests of the old key and epoch.
        """
        old = self._before(token)
        if isinstance(interests, Table):
            if (interests.key_id, interests.epoch) != (old._id, old.epoch):
                raise KeyMismatchError(
                    f"the update is for interests of epoch {old.epoch} and key {old._id.hex()}; "
                    f"the table is of epoch {interests.epoch} and key {interests.key_id.hex()}"
                )
            content = self._moved(interests.content, token) if len(interests) else None
            return Table(content, len(interests), token.key_id, token.epoch)
        table, out = old.prepare(interests), interests.copy()
        if len(out):
            stored = self._moved(table.content, token)
            body = self.matcher._numbers.bodies(stored.differences, stored.corners)
            out[:, HEADER_BYTES:] = body
            out[:, :HEADER_BYTES] = self.matcher.broker(token)._header(Kind.INTEREST)
        return out

    def _before(self, token: AspeUpdate) -> AspeBroker:
        """The broker of the epoch from which the token leads."""
        secret = token.export_secret_data() if isinstance(token, AspeUpdate) else {}
        if not secret.keys() >= {"key", "update"}:
            raise KeyMismatchError(
                f"update takes what AspeKeyServer.rotate returned, got {type(token).__name__}"
            )
        server = self._id[:SERVER_BYTES]
        if token.matcher != self.matcher.fingerprint or token.key_id[:SERVER_BYTES] != server:
            raise KeyMismatchError("the update belongs to another matcher or key server")
        name, start = bytes.fromhex(secret["key"]), int(secret["from"])
        return self.matcher.broker(RoleKey.make(token.matcher, "broker", name, start, {}))

    def _moved(self, stored: Stored, token: AspeUpdate) -> Stored:
        update = token.export_secret_data()["update"]
        return Stored(*self.matcher._numbers.moved(update, stored.differences, stored.corners))

    def _examine(self, messages: Bytes, kind: Kind, width: int) -> Bytes:
        """As for all matchers; but a key of this server and of another epoch is another epoch's."""
        causes = super()._examine(messages, kind, width)
        rows = np.flatnonzero(causes == Cause.KEY)
        if len(rows):
            other = messages[rows, :HEADER_BYTES] != self._header(kind)
            server = other[:, HEADER_BYTES - 8 : HEADER_BYTES - 8 + SERVER_BYTES].any(axis=1)
            causes[rows[~server & other[:, HEADER_BYTES - 2 :].any(axis=1)]] = Cause.EPOCH
        return causes
