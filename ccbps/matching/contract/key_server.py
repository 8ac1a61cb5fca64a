"""The key server, which holds a master key and gives each party its own.

Example::

    token = server.rotate()                       # keys given out from now on: epoch + 1
    new = matcher.broker(server.broker_key())     # beside the broker of the old epoch, for a while
    table = old.update(table, token, new)         # stored interests, where the scheme can

Every master key has an id of 6 bytes: the first two name the server, and after a rotation the other
four are a hash of the key. So where two servers are restored from one saved key and rotate to
different keys, a broker of one refuses messages of the other, although the epoch is the same.

Beside the scheme's key material, every party has the MAC key of its side: publishers that of
events, subscribers that of interests, brokers both. MAC keys are derived from a root, and so is the
next epoch's root.

Hazard: a change of key is a secret between key server and broker.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from ccbps.arrays import Randomness
from ccbps.ciphers.row_mac import ROW_KEY_BYTES
from ccbps.errors import ParameterError
from ccbps.keys.role_key import KEY_ID_BYTES, LAST_EPOCH, KeyUpdate, Role, RoleKey, hex_bytes
from ccbps.keys.secret import Confined, confined
from ccbps.matching.contract.access import SIDES, check_data, check_key
from ccbps.matching.contract.scheme import ServerScheme
from ccbps.wire import SERVER_BYTES, Kind


class KeyServer(Confined):
    """The holder of the master key, which gives each party its own. Made by `Matcher.key_server`.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import RoleKey, TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> master = server.key.to_text()                    # keep it where nobody else may read it
        >>> again = matcher.key_server(RoleKey.from_text(master))
        >>> again.publisher_key() == server.publisher_key()
        True

    Save `key` after every rotation, and, with matchers whose users have keys of their own, after
    every user's key. A server restored from an older `key` may rotate to other keys, which are
    refused where the keys lost are in use.

    Attributes:
        epoch: epoch of the keys that are given out now.
    """

    def __init__(
        self,
        matcher: ServerScheme,
        key: RoleKey | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        self.matcher = matcher
        if key is None:
            data = {**matcher.generate(randomness), "macs": randomness(ROW_KEY_BYTES).hex()}
            key = RoleKey.make(matcher.digest, "server", randomness(KEY_ID_BYTES), 0, data)
        check_key(matcher, key, "server")
        self._id, self.epoch, self._master = key.key_id, key.epoch, key.export_secret_data()
        check_data(self._take_root)
        check_data(partial(matcher.check_key_data, "server", self._master))

    def _take_root(self) -> None:
        self._root = hex_bytes(self._master.pop("macs"), ROW_KEY_BYTES)

    def __repr__(self) -> str:
        return f"<KeyServer of {self.matcher!r}, epoch {self.epoch}>"

    @property
    def key(self) -> RoleKey:
        """The master key, to save it. Whoever has it can read everything."""
        return self._key("server", {**self._master, "macs": self._root.hex()})

    @confined
    def publisher_key(self, name: str = "publisher", **options: Any) -> RoleKey:
        """Return the key of a publisher.

        Args:
            name: name of the publisher.
            options: options of the matcher: `TagMatch` takes ``groups=[0, 2]``.

        Raises:
            ParameterError: the matcher does not take an option or its value.
        """
        return self._issued("publisher", name, options)

    @confined
    def subscriber_key(self, name: str, **options: Any) -> RoleKey:
        """Return the key of a subscriber.

        Args:
            name: name of the subscriber.
            options: options of the matcher: `TagMatch` takes ``group=2``.

        Raises:
            ParameterError: the matcher does not take an option or its value.
        """
        return self._issued("subscriber", name, options)

    @confined
    def broker_key(self) -> RoleKey:
        """Return the key of a broker: its MAC keys, and the data that the scheme lets it hold."""
        return self._issued("broker", "broker", {})

    @confined
    def rotate(self) -> KeyUpdate | None:
        """Step to the next epoch, whose keys are given out from now on.

        Events and interests of the old epoch are matched by brokers of the old epoch, and refused
        by those of the new one.

        Returns:
            a token for `Broker.update`, where the scheme can bring stored interests to the new key;
            None where subscriptions must be encoded again.

        Raises:
            ParameterError: this was the last of 65536 epochs.
        """
        if self.epoch >= LAST_EPOCH:
            raise ParameterError("no epoch is left; make a new key server")
        fresh, change = self.matcher.rotate(self._master, os.urandom)
        text = "ccbps key id " + json.dumps(fresh, sort_keys=True)
        name = (self._id[:SERVER_BYTES] + sha256(text.encode()).digest())[:KEY_ID_BYTES]
        data = {"from": self.epoch, "key": self._id.hex(), "change": change}
        self._root = hmac.digest(self._root, b"ccbps next root of MAC keys", "sha256")
        self._master, self._id, self.epoch = fresh, name, self.epoch + 1
        if change is None:
            return None
        return KeyUpdate.make(self.matcher.digest, "broker", name, self.epoch, data)

    @property
    def users(self) -> tuple[str, ...]:
        """Users that have keys and were not revoked, as "role:name", where the scheme has users."""
        return self.matcher.users(self._master)

    @confined
    def revoke(self, role: Role, name: str) -> bytes:
        """Refuse this user a key from now on, and leave it out of new broker keys.

        Returns:
            the user's identifier, for `Broker.revoke` at every broker.

        Raises:
            ParameterError: there is no such user, or the scheme cannot lock out one user.
        """
        return self.matcher.revoke(self._master, role, name)

    def _issued(self, role: Role, name: str, options: Mapping[str, Any]) -> RoleKey:
        unknown = options.keys() - set(self.matcher.key_options.get(role, ()))
        if unknown:
            raise ParameterError(f"keys of this matcher take no option {min(unknown)!r}")
        issue: Callable[..., dict[str, Any]] = self.matcher.issue
        data = issue(self._master, role, name, os.urandom, **options)
        macs = {side.name: self._mac(side) for side in SIDES[role]}
        return self._key(role, {**data, "macs": macs})

    def _mac(self, side: Kind) -> str:
        return hmac.digest(self._root, b"ccbps MAC key of " + side.name.encode(), "sha256").hex()

    def _key(self, role: Role, data: Mapping[str, Any]) -> RoleKey:
        return RoleKey.make(self.matcher.digest, role, self._id, self.epoch, data)
