"""The base of KeywordMatch and AccessTreeMatch, whose users have keys of their own.

Both rest on `ccbps.ciphers.proxy_search`. The key server keeps a list of users. A broker's key
holds the counterpart of each user's key: an identifier and x2. Bodies of messages start with the
identifier, 8 bytes. An event goes on with slots, one cryptographic row each. An interest has slots,
too, each with the number of the event's slot that it asks for.

Revocation is at the broker: `Broker.revoke` forgets the counterpart, for good. From then on it
refuses messages of that user, and the user's interests in tables prepared earlier match nothing.
Everybody else goes on with the keys and messages they have. `Broker.admit` takes in users who join
later.

Save the server's key again whenever a user was given a key or revoked. A server made from an older
key gives revoked users their keys again. Its broker keys lack the users that it does not know,
until they are given the same keys once more.

Hazard: identifiers are the same in all messages of a user: the broker knows who sent what. A
revoked user can still read whatever the broker shows it, and everything with the help of one broker
that did not forget the user.
"""

from __future__ import annotations

import hmac
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.prime_order import prime_order_group
from ccbps.arrays import Bytes, Index, Randomness
from ccbps.checks import fields, instance, octets, text
from ccbps.ciphers.proxy_search import KEY_BYTES, MasterKey, ProxySearch, UserKey
from ccbps.errors import ParameterError
from ccbps.keys.role_key import Role, hex_bytes, hex_number
from ccbps.matching.contract.scheme import Side
from ccbps.matching.reusable import ReusableMatcher, causes
from ccbps.wire import Cause

USER_BYTES: Final = 8
HALVES_BYTES: Final = 32
"""Secret from which the server derives identifiers and the broker's halves of users' keys."""
NO_VALUE: Final = b"none"
"""Beginning, in a keyword, of a value that no event has; codes take whole words."""


def keyword(subject: str, value: bytes) -> bytes:
    """Return the bytes of "subject = value"."""
    return subject.encode() + b"\0" + value


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """Events whose slots are re-encrypted when a table first asks for them, and no more.

    Attributes:
        count: number of events.
        slot: function from the number of a slot to that slot of all events, as the broker opens it.
    """

    count: int
    slot: Callable[[int], Any]


class ProxySearchMatcher(ReusableMatcher):
    """A matcher whose messages are searchable encryption with many users.

    Attributes:
        group: name of the group of prime order.
    """

    group: str
    _event_slots: int

    @cached_property
    def _cipher(self) -> ProxySearch:
        return ProxySearch(prime_order_group(self.group))

    # -- keys and users -----------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
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
        """Return a master key without users; revoked ones stay revoked. Encode interests again."""
        return self.generate(randomness) | {"revoked": list(master["revoked"])}, None

    def issue(
        self, master: dict[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        """Return the key data of one party. A user who asks again is given the same key."""
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
        return {"user": record["id"], "x1": f"{user.x1:x}", "s": user.s.hex(), "h": user.h.hex()}

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        last = self._cipher.group.order - 1
        if role == "broker":
            served = fields("key data", data, ("users",))["users"]
            for name, x2 in instance("users", served, dict).items():
                hex_bytes(name, USER_BYTES)
                hex_number(x2, 1, last)
        elif role == "server":
            fields("key data", data, ("x", "s", "halves", "users", "revoked"))
            hex_number(data["x"], 1, last)
            hex_bytes(data["s"], KEY_BYTES)
            hex_bytes(data["halves"], HALVES_BYTES)
            for label, user in instance("users", data["users"], dict).items():
                text("user", label)
                fields("user", user, ("id", "x2"))
                hex_bytes(user["id"], USER_BYTES)
                hex_number(user["x2"], 1, last)
            for label in instance("revoked", data["revoked"], list):
                text("user", label)
        else:
            fields("key data", data, ("user", "x1", "s", "h"))
            hex_bytes(data["user"], USER_BYTES)
            hex_number(data["x1"], 0, last)
            hex_bytes(data["s"], KEY_BYTES)
            self._cipher.group.decode(hex_bytes(data["h"]))

    def revoke(self, master: dict[str, Any], role: Role, name: str) -> bytes:
        """Take a user off the master's list and return the user's identifier, 8 bytes.

        Raises:
            ParameterError: there is no such user.
        """
        label = f"{role}:{name}"
        if label not in master["users"]:
            raise ParameterError(f"no {role} {name!r} has a key, or it was revoked")
        master["revoked"].append(label)
        return bytes.fromhex(master["users"].pop(label)["id"])

    def forget(self, key: dict[str, Any], user: bytes) -> None:
        """Take a user off a broker's key.

        Raises:
            ParameterError: the broker does not serve a user of this identifier.
        """
        hint = "take the identifier that the key server's revoke returned"
        name = octets("user", user, USER_BYTES, hint=hint).hex()
        if name not in key["users"]:
            raise ParameterError(
                f"no user {name} is served here: revoked before, or not in the broker's key"
            )
        del key["users"][name]
        key.setdefault("forgotten", []).append(name)

    def admit(self, key: dict[str, Any], newer: Mapping[str, Any]) -> None:
        gone = key.get("forgotten", ())
        users = {**key["users"], **newer["users"]}
        key["users"] = {name: x2 for name, x2 in users.items() if name not in gone}

    def users(self, key: Mapping[str, Any]) -> tuple[str, ...]:
        """Return users: of a master key as "role:name", of a broker's key as identifiers in hex."""
        return tuple(sorted(key["users"]))

    @staticmethod
    def _user(key: Mapping[str, Any]) -> UserKey:
        return UserKey(int(key["x1"], 16), bytes.fromhex(key["s"]), bytes.fromhex(key["h"]))

    @staticmethod
    def _sign(key: Mapping[str, Any], out: Bytes) -> Bytes:
        """Write the user's identifier and return a view of the bodies' rest."""
        out[:, :USER_BYTES] = np.frombuffer(bytes.fromhex(key["user"]), dtype=np.uint8)
        return out[:, USER_BYTES:]

    # -- the broker's side --------------------------------------------------------------------

    @staticmethod
    def _senders(bodies: Bytes) -> list[str]:
        """Return the identifiers of bodies, in hexadecimal."""
        data = np.ascontiguousarray(bodies[:, :USER_BYTES]).tobytes().hex()
        return [data[at : at + 2 * USER_BYTES] for at in range(0, len(data), 2 * USER_BYTES)]

    def _halves(self, key: Mapping[str, Any], bodies: Bytes) -> dict[int, int]:
        """Return the x2 of each row's user, for the rows of users that the broker serves."""
        users, served = self._senders(bodies), key["users"]
        x2 = {user: int(served[user], 16) for user in set(users) if user in served}
        return {row: x2[user] for row, user in enumerate(users) if user in x2}

    def _event_rows(self, bodies: Bytes) -> Bytes:
        """Return the cryptographic rows of events, shape (events, slots, width)."""
        return bodies[:, USER_BYTES:].reshape(len(bodies), self._event_slots, -1)

    @abstractmethod
    def _slots(self, bodies: Bytes) -> tuple[NDArray[Any], Bytes]:
        """Return the slots of interests: numbers of the event's slots, and cryptographic rows.

        Returns:
            unsigned integers, shape (interests, slots), the greatest where a slot is unused; and
            bytes, shape (interests, slots, width), zeros where it is.
        """

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        if side == "event":
            rows = self._event_rows(bodies)
            wrong = np.asarray(~np.asarray(rows.any(axis=2)).all(axis=1))
        else:
            numbers, rows = self._slots(bodies)
            unused = numbers != np.iinfo(numbers.dtype).max
            malformed = np.where(rows.any(axis=2), numbers >= self._event_slots, unused)
            wrong = np.asarray(malformed.any(axis=1))
        flat = rows.reshape(-1, rows.shape[2])
        used = np.flatnonzero(flat.any(axis=1))
        wrong[used[~self._cipher.well_formed(flat[used])] // rows.shape[1]] = True
        out = causes(wrong)
        unknown = [user not in key["users"] for user in self._senders(bodies)]
        out[np.array(unknown, dtype=np.bool_)] = Cause.USER
        return out

    def _fill(self, slots: Bytes, counts: Sequence[int], numbers: Bytes, rows: Bytes) -> None:
        """Write the slots of interests, those in use first.

        Args:
            slots: the place to write to, shape (interests, slots, bytes).
            counts: slots in use of each interest.
            numbers: numbers of these slots, interest after interest, shape (sum of counts, bytes).
            rows: their cryptographic rows, shape (sum of counts, width).
        """
        width = numbers.shape[1]
        slots[:], slots[:, :, :width] = 0, 255
        used = np.arange(slots.shape[1]) < np.array(counts)[:, None]
        slots[used] = np.concatenate([numbers, rows], axis=1)

    def _read(self, key: Mapping[str, Any], bodies: Bytes) -> tuple[Index, Index, Index, Any]:
        """Open the slots in use of those interests whose users are served.

        Returns:
            for each slot: its interest, its place there, its number, and the result of `_opened`.
        """
        numbers, rows = self._slots(bodies)
        halves, used = self._halves(key, bodies), np.asarray(rows.any(axis=2))
        used[[row not in halves for row in range(len(bodies))]] = False
        row, place = np.nonzero(used)
        opened = self._opened("interest", [halves[at] for at in row.tolist()], rows[used])
        return row, place, numbers[used], opened

    def _opened(self, side: Side, x2: list[int], rows: Bytes) -> Any:
        """Return rows as the broker compares them, with its halves of the users' keys."""
        return (self._cipher.re_encrypt if side == "event" else self._cipher.tokens)(x2, rows)

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> OpenEvents:
        rows, halves = self._event_rows(bodies), self._halves(key, bodies)
        x2 = [halves[row] for row in range(len(bodies))]
        return OpenEvents(len(bodies), cache(lambda at: self._opened("event", x2, rows[:, at])))


def distinct_rows(items: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the different items in order of first appearance, and each item's place in them."""
    places: dict[Any, int] = {}
    index = [places.setdefault(item, len(places)) for item in items]
    return list(places), index


def by_number(
    numbers: Index, items: Sequence[Any]
) -> Iterator[tuple[int, Index, list[Any], list[int]]]:
    """Yield each number, ascending, with the places that have it and `distinct_rows` of these."""
    for number in np.unique(numbers).tolist():
        places = np.flatnonzero(numbers == number)
        yield number, places, *distinct_rows([items[place] for place in places.tolist()])
