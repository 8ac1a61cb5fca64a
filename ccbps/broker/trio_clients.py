"""Clients of three brokers at a matching broker: their keys, and the grants of their authority."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ccbps.arrays import Bytes
from ccbps.broker.messages import Hellos
from ccbps.broker.store import Store
from ccbps.errors import ParameterError, RefusedError
from ccbps.shares.clients import CLIENT_BYTES, GRANTEE
from ccbps.trio.leader import Leader


class TrioClients:
    """Clients of three brokers, or of none.

    Args:
        broker: broker 0 of three; any other broker has no such clients.
        store: the matching broker's file.
    """

    def __init__(self, broker: Any, store: Store) -> None:
        self._leader = broker if isinstance(broker, Leader) else None
        self._title, self._store = type(getattr(broker, "matcher", broker)).__name__, store
        self._greeted: dict[str, set[bytes]] = defaultdict(set)

    def load(self) -> None:
        """Read the file."""
        if self._leader is None:
            return
        for client, name, message in self._store.hellos():
            self._leader.reserve(client, name)
            if message:
                self._leader.greet(client, Hellos.from_bytes(message).messages)
                self._greeted[client].add(name)
        if content := self._store.grants():
            rows = np.frombuffer(bytearray(b"".join(content)), dtype=np.uint8)
            self._leader.put_grants(self._leader.check_grants(rows.reshape(len(content), -1)))

    def greet(self, client: str, hellos: Hellos, most: int) -> bytes:
        """Take a client's hellos, and return the name in them.

        Args:
            client: the client.
            hellos: its hellos.
            most: largest number of names of a client.

        Raises:
            ParameterError: there is one broker.
            RefusedError: the client has too many names, or the other brokers cannot be reached.
            DecodeError: the hellos are not for these brokers.
        """
        leader, own = self._three(), self._greeted[client] | {hellos.messages[0][:CLIENT_BYTES]}
        if len(own) > most:
            raise RefusedError(f"{client} has too many keys", reason="subscriptions")
        return leader.greet(client, hellos.messages)

    def keep(self, client: str, name: bytes, message: bytes) -> None:
        """Write hellos that were taken."""
        with self._store.transaction():
            self._store.greet(client, name, message)
        self._greeted[client].add(name)

    def forget(self, client: str) -> None:
        """Forget the keys of a client."""
        if self._leader is not None:
            self._leader.forget([*self._greeted.pop(client, ())])

    def verify(self, grants: Bytes) -> None:
        """Refuse grants that the three brokers refuse, or that were not made for them.

        Raises:
            ParameterError: there is one broker, or the matcher demands no grants.
            DecodeError: they are not the authority's, or come before later ones.
            RefusedError: the other brokers cannot be reached.
        """
        leader = self._three()
        leader.verify_grants(leader.check_grants(grants))

    def write(self, grants: Bytes) -> Bytes:
        """Write grants that were verified, and return those that are still new.

        Raises:
            DecodeError: later ones have come meanwhile.
            LedgerError: the file cannot be written; nothing was changed.
        """
        new = self._three().check_grants(grants)
        names = [row[GRANTEE].tobytes() for row in new]
        with self._store.transaction():
            self._store.grant(names, [row.tobytes() for row in new])
        return new

    def put(self, grants: Bytes) -> None:
        """Send grants that were written to the three brokers."""
        if len(grants):
            self._three().put_grants(grants)

    def _three(self) -> Leader:
        if self._leader is None:
            raise ParameterError(f"{self._title} has one broker: no hellos, and no grants")
        return self._leader
