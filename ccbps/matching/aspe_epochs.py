"""Key epochs of `ccbps.matching.aspe`: a new key without sending subscriptions again.

    token = server.rotate()                       # keys given out from now on: epoch + 1
    new = matcher.broker(server.broker_key())     # beside the broker of the old epoch, for a while
    table = new.update(table, token)              # stored interests, without reading them

The update is U = M_new^T M_old^-T of [OFMR15] (its transpose, as ciphertexts are rows here): it
turns ciphertexts of points under M_old into such under M_new; queries take its inverse transpose.
Publishers get keys of the new epoch; events of the old one that arrive late are matched by the old
broker with the old table, and refused by the new one. Drop the old broker when no more come.

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
from numpy.typing import NDArray

from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.matching.reusable import KeyServer
from ccbps.matching.reusable_roles import ReusableBroker, Table
from ccbps.matching.role_keys import RoleKey
from ccbps.wire import HEADER_BYTES, Kind

if TYPE_CHECKING:
    from ccbps.matching.aspe import AspeMatch

__all__ = ["AspeBroker", "AspeKeyServer", "AspeUpdate", "Stored"]

Bytes = NDArray[np.uint8]

LAST_EPOCH: Final = 0xFFFF


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
    """Holds M, encrypts subscriptions as the trusted security manager, and changes the key."""

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
        data = {"from": self.epoch, "update": change}
        token = AspeUpdate.make(self.matcher.fingerprint, "broker", self._id, self.epoch + 1, data)
        self._master, self.epoch = fresh, self.epoch + 1
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
            KeyMismatchError: the token or the table is of another matcher, key or epoch.
            DecodeError: messages are not interests of the old epoch.
        """
        old = self._before(token)
        if isinstance(interests, Table):
            if (interests.key_id, interests.epoch) != (self._id, old.epoch):
                raise KeyMismatchError(
                    f"the update is for interests of epoch {old.epoch} of this key; the table is "
                    f"of epoch {interests.epoch}"
                )
            content = self._moved(interests.content, token) if len(interests) else None
            return Table(content, len(interests), self._id, token.epoch)
        table, out = old.prepare(interests), interests.copy()
        if len(out):
            stored = self._moved(table.content, token)
            body = self.matcher._numbers.bodies(stored.differences, stored.corners)
            out[:, HEADER_BYTES:] = body
            out[:, :HEADER_BYTES] = self.matcher.broker(token)._header(Kind.INTEREST)
        return out

    def _before(self, token: AspeUpdate) -> AspeBroker:
        """The broker of the epoch from which the token leads."""
        if not isinstance(token, AspeUpdate) or "update" not in token.export_secret_data():
            raise KeyMismatchError(
                f"update takes what AspeKeyServer.rotate returned, got {type(token).__name__}"
            )
        if (token.matcher, token.key_id) != (self.matcher.fingerprint, self._id):
            raise KeyMismatchError("the update belongs to another matcher or master key")
        start = int(token.export_secret_data()["from"])
        return self.matcher.broker(RoleKey.make(token.matcher, "broker", token.key_id, start, {}))

    def _moved(self, stored: Stored, token: AspeUpdate) -> Stored:
        update = token.export_secret_data()["update"]
        return Stored(*self.matcher._numbers.moved(update, stored.differences, stored.corners))
