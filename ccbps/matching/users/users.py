"""Users of a matcher in which every user has a key of its own and the broker holds its counterpart.

Shared by `KeywordMatch` and `AccessTreeMatch`, which rest on `ccbps.ciphers.proxy_search`. The key
server keeps a list of users; a broker's key holds, for each user, an identifier and x2. Messages
start with the identifier, 8 bytes.

Revocation is at the broker: `UserBroker.revoke` forgets the counterpart. From then on it refuses
messages of that user, and the user's interests in tables prepared earlier match nothing. Everybody
else goes on with the keys and messages they have.

Hazard: identifiers are the same in all messages of a user: the broker knows who sent what. A user
who was revoked can still read what the broker shows to it, and with the help of one broker that did
not forget, everything.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from ccbps.algebra.prime_order import prime_order_group
from ccbps.arrays import Bytes, Randomness
from ccbps.ciphers.proxy_search import MasterKey, ProxySearch, UserKey
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.role_key import Role, RoleKey
from ccbps.matching.reusable import KeyServer, ReusableMatcher
from ccbps.matching.reusable_roles import ReusableBroker
from ccbps.predicates.schema import Events
from ccbps.wire import Cause

__all__ = ["ProxySearchMatcher", "UserBroker", "UserKeyServer"]


USER_BYTES: Final = 8
HALVES_BYTES: Final = 32
"""Secret from which the server derives identifiers and the broker's halves of users' keys."""
NO_VALUE: Final = b"none"
"""Begins, in a keyword, what stands for a value that no event has; codes take whole words."""
NO_VALUE_BYTES: Final = 16


def keyword(subject: str, value: bytes) -> bytes:
    """The bytes of "subject = value"."""
    return subject.encode() + b"\0" + value


def no_keyword(subject: str, randomness: Randomness) -> bytes:
    """A keyword that no event and no other interest has: what never holds looks like the rest."""
    return keyword(subject, NO_VALUE + randomness(NO_VALUE_BYTES))


class UserKeyServer(KeyServer):
    """A key server that keeps users."""

    @property
    def key(self) -> RoleKey:
        """The master key and the lists of users, to save them.

        Save it again whenever a user was given a key or revoked: a server made from an older one
        gives revoked users their keys again, and its broker keys lack the users it does not know,
        until they are given the same keys once more.
        """
        return super().key

    @property
    def users(self) -> tuple[str, ...]:
        """Users that have keys and were not revoked, as "role:name"."""
        return tuple(sorted(self._master["users"]))

    def identifier(self, role: Role, name: str) -> bytes:
        """The 8 bytes by which the broker knows a user.

        Raises:
            ParameterError: there is no such user.
        """
        record = self._master["users"].get(f"{role}:{name}")
        if record is None:
            raise ParameterError(f"no {role} {name!r} has a key, or it was revoked")
        return bytes.fromhex(record["id"])

    def revoke(self, role: Role, name: str) -> bytes:
        """Never give this user a key again, and leave it out of new broker keys.

        Returns:
            its identifier, for `UserBroker.revoke` at every broker.

        Raises:
            ParameterError: there is no such user.
        """
        found = self.identifier(role, name)
        del self._master["users"][f"{role}:{name}"]
        self._master["revoked"].append(f"{role}:{name}")
        return found


class UserBroker(ReusableBroker):
    """A broker that holds the counterpart of every user's key."""

    def __init__(
        self, matcher: ReusableMatcher, key: RoleKey, role: Role, randomness: Randomness
    ) -> None:
        super().__init__(matcher, key, role, randomness)
        self._revoked: set[str] = set()

    @property
    def users(self) -> tuple[bytes, ...]:
        """Identifiers of the users it serves."""
        return tuple(bytes.fromhex(user) for user in self._key["users"])

    def revoke(self, user: bytes) -> None:
        """Forget a user's counterpart: its messages are refused, its interests match nothing.

        Raises:
            ParameterError: the broker does not serve a user of this identifier.
        """
        if not isinstance(user, bytes) or len(user) != USER_BYTES:
            raise ParameterError(
                f"user must be the {USER_BYTES} bytes that the key server's revoke returned, got "
                f"{type(user).__name__}"
            )
        if user.hex() not in self._key["users"]:
            raise ParameterError(f"no user {user.hex()!r} here, or revoked before")
        del self._key["users"][user.hex()]
        self._revoked.add(user.hex())

    def admit(self, key: RoleKey) -> None:
        """Take over the users of a newer broker key of the same server and epoch, except those that
        were revoked here.

        Raises:
            KeyMismatchError: the key is of another master key or epoch.
        """
        fresh = UserBroker(self.matcher, key, "broker", os.urandom)
        if (fresh._id, fresh.epoch) != (self._id, self.epoch):
            raise KeyMismatchError("this broker key is of another master key or epoch")
        users = fresh._key["users"].items()
        self._key["users"] = {user: x2 for user, x2 in users if user not in self._revoked}


class ProxySearchMatcher(ReusableMatcher):
    """What KeywordMatch and AccessTreeMatch have in common: keys, users, and checks of messages.

    Attributes:
        group: name of the group of prime order.
    """

    group: str

    @cached_property
    def _cipher(self) -> ProxySearch:
        return ProxySearch(prime_order_group(self.group))

    def key_server(self, key: RoleKey | None = None) -> UserKeyServer:
        """A key server with a fresh master key, or with the one that `KeyServer.key` gave out."""
        return UserKeyServer(self, key)

    def broker(self, key: RoleKey) -> UserBroker:
        """The role that matches, for the users its key names."""
        return UserBroker(self, key, "broker", os.urandom)

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        master = self._cipher.init(randomness)
        return {
            "x": f"{master.x:x}",
            "s": master.s.hex(),
            "halves": randomness(HALVES_BYTES).hex(),
            "users": {},
            "revoked": [],
        }

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        if role == "broker":
            return {"users": {user["id"]: user["x2"] for user in master["users"].values()}}
        label = f"{role}:{name}"
        if label in master["revoked"]:
            raise ParameterError(f"{role} {name!r} was revoked; give keys under another name")
        record = master["users"].get(label)
        if record is None:
            # Derived, so that a user whom a restored server does not know gets the same key.
            drawn = hmac.digest(bytes.fromhex(master["halves"]), label.encode(), "sha512")
            x2 = self._cipher.group.hash_to_exponent(drawn[USER_BYTES:]) or 1
            record = {"id": drawn[:USER_BYTES].hex(), "x2": f"{x2:x}"}
            master["users"][label] = record
        user = self._cipher.user_key(
            MasterKey(int(master["x"], 16), bytes.fromhex(master["s"])), int(record["x2"], 16)
        )
        return {
            "user": record["id"],
            "x1": f"{user.x1:x}",
            "s": user.s.hex(),
            "h": user.h.hex(),
        }

    @staticmethod
    def _user(key: Mapping[str, Any]) -> UserKey:
        return UserKey(int(key["x1"], 16), bytes.fromhex(key["s"]), bytes.fromhex(key["h"]))

    @staticmethod
    def _sign(key: Mapping[str, Any], out: Bytes) -> Bytes:
        """Write the user's identifier; the rest of the bodies."""
        out[:, :USER_BYTES] = np.frombuffer(bytes.fromhex(key["user"]), dtype=np.uint8)
        return out[:, USER_BYTES:]

    # -- the broker's side --------------------------------------------------------------------

    @staticmethod
    def _users(bodies: Bytes) -> list[str]:
        """Identifiers of bodies, in hexadecimal."""
        data = np.ascontiguousarray(bodies[:, :USER_BYTES]).tobytes().hex()
        return [data[at : at + 2 * USER_BYTES] for at in range(0, len(data), 2 * USER_BYTES)]

    def _halves(self, key: Mapping[str, Any], bodies: Bytes) -> dict[int, int]:
        """The x2 of each row's user, for the rows of users that the broker serves."""
        users, served = self._users(bodies), key["users"]
        x2 = {user: int(served[user], 16) for user in set(users) if user in served}
        return {row: x2[user] for row, user in enumerate(users) if user in x2}

    def _refused(self, key: Mapping[str, Any], bodies: Bytes, slots: Bytes) -> Bytes:
        """Causes of bodies with cryptographic rows `slots`, shape (bodies, slots, width); a slot
        that is all zeros counts as none."""
        causes = np.zeros(len(bodies), dtype=np.uint8)
        flat = slots.reshape(-1, slots.shape[2])
        used = np.flatnonzero(flat.any(axis=1))
        good = self._cipher.well_formed(flat[used])
        causes[used[~good] // slots.shape[1]] = Cause.VALUE
        unknown = [user not in key["users"] for user in self._users(bodies)]
        causes[np.array(unknown, dtype=np.bool_)] = Cause.USER
        return causes


def event_values(events: Events, name: str) -> list[bytes]:
    """The codes of an attribute as bytes, most significant first, whole words."""
    words = events.codes[name]
    data, width = np.ascontiguousarray(words.T).astype(">u8").tobytes(), 8 * len(words)
    return [data[at : at + width] for at in range(0, len(data), width)]


def distinct_rows(items: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The different items in order of first appearance, and for each item its place in them."""
    places: dict[Any, int] = {}
    index = [places.setdefault(item, len(places)) for item in items]
    return list(places), index
