"""Users of a matcher in which every user has a key of its own and the broker holds its counterpart.

Shared by `KeywordMatch` and `AccessTreeMatch`, which rest on `ccbps.ciphers.proxy_search`. The key
server keeps a list of users; a broker's key holds, for each user, an identifier and x2. Bodies of
messages start with the identifier, 8 bytes.

Revocation is at the broker: `Broker.revoke` forgets the counterpart, for good. From then on it
refuses messages of that user, and the user's interests in tables prepared earlier match nothing.
Everybody else goes on with the keys and messages they have. `Broker.admit` takes in users who join
later.

Save the server's key again whenever a user was given a key or revoked: a server made from an older
one gives revoked users their keys again, and its broker keys lack the users it does not know, until
they are given the same keys once more.

Hazard: identifiers are the same in all messages of a user: the broker knows who sent what. A user
who was revoked can still read what the broker shows to it, and with the help of one broker that did
not forget, everything.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, Self

import numpy as np

from ccbps.algebra.named_groups import prime_order_group
from ccbps.arrays import Bytes, Randomness
from ccbps.ciphers.proxy_search import MasterKey, ProxySearch, UserKey
from ccbps.errors import ParameterError
from ccbps.keys.role_key import Role
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.predicates import Events
from ccbps.wire import Cause

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


class ProxySearchMatcher(Matcher, ServerScheme, TableScheme):
    """What KeywordMatch and AccessTreeMatch have in common: keys, users, and checks of messages.

    Attributes:
        group: name of the group of prime order.
    """

    group: str

    @cached_property
    def _cipher(self) -> ProxySearch:
        return ProxySearch(prime_order_group(self.group))

    # -- keys and users -----------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        master = self._cipher.init(randomness)
        return {
            "x": f"{master.x:x}",
            "s": master.s.hex(),
            "halves": randomness(HALVES_BYTES).hex(),
            "users": {},
            "revoked": [],
        }

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], None]:
        """A new master key without users; who was revoked stays so. Interests are made again."""
        return self.generate(randomness) | {"revoked": list(master["revoked"])}, None

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`. A user who asks again is given the same key."""
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

    def revoke(self, master: dict[str, Any], role: Role, name: str) -> bytes:
        """See `ServerScheme.revoke`: the 8 bytes by which brokers know the user.

        Raises:
            ParameterError: there is no such user.
        """
        label = f"{role}:{name}"
        if label not in master["users"]:
            raise ParameterError(f"no {role} {name!r} has a key, or it was revoked")
        master["revoked"].append(label)
        return bytes.fromhex(master["users"].pop(label)["id"])

    def forget(self, key: dict[str, Any], user: bytes) -> None:
        """See `ServerScheme.forget`.

        Raises:
            ParameterError: the broker does not serve a user of this identifier.
        """
        if not isinstance(user, bytes) or len(user) != USER_BYTES:
            raise ParameterError(
                f"user must be the {USER_BYTES} bytes that the key server's revoke returned, got "
                f"{type(user).__name__}"
            )
        name = user.hex()
        if name not in key["users"]:
            raise ParameterError(
                f"no user {name} is served here: revoked before, or not in the broker's key"
            )
        del key["users"][name]
        key.setdefault("forgotten", []).append(name)

    def admit(self, key: dict[str, Any], newer: Mapping[str, Any]) -> None:
        """See `ServerScheme.admit`."""
        gone = key.get("forgotten", ())
        users = {**key["users"], **newer["users"]}
        key["users"] = {name: x2 for name, x2 in users.items() if name not in gone}

    def users(self, key: Mapping[str, Any]) -> tuple[str, ...]:
        """Of a master key "role:name"; of a broker's the identifiers, in hexadecimal."""
        return tuple(sorted(key["users"]))

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
    def _senders(bodies: Bytes) -> list[str]:
        """Identifiers of bodies, in hexadecimal."""
        data = np.ascontiguousarray(bodies[:, :USER_BYTES]).tobytes().hex()
        return [data[at : at + 2 * USER_BYTES] for at in range(0, len(data), 2 * USER_BYTES)]

    def _halves(self, key: Mapping[str, Any], bodies: Bytes) -> dict[int, int]:
        """The x2 of each row's user, for the rows of users that the broker serves."""
        users, served = self._senders(bodies), key["users"]
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
        unknown = [user not in key["users"] for user in self._senders(bodies)]
        causes[np.array(unknown, dtype=np.bool_)] = Cause.USER
        return causes


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """Events whose slots are re-encrypted when a table first asks for them, and no more.

    Attributes:
        count: of events.
        slot: what the broker makes of a slot of all of them, by its number.
    """

    count: int
    slot: Callable[[int], Any]

    @classmethod
    def of(cls, count: int, slot: Callable[[int], Any]) -> Self:
        """With a function that is called once for each slot."""
        return cls(count, cache(slot))


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
