"""Grants at broker 0: the last grant of each client, sealed for the other two brokers.

Broker 0 cannot tell whether a grant is the authority's: brokers 1 and 2 can, by its tags. So anyone
may send it. Broker 0 sees only the head, with the grant's client and number.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.shares.clients import GRANT_HEAD_BYTES, GRANTEE, SharedKeys, head_causes, sealed_bytes
from ccbps.shares.grants import follows, grant_number
from ccbps.wire import raise_for


class Granted:
    """The last grant of each client.

    Args:
        matcher: the matcher, a `ccbps.matching.ThreeBrokerMatch`.
        authority: public name of the authority; empty where clients need no grants.
    """

    def __init__(self, matcher: Matcher, authority: bytes) -> None:
        form = getattr(matcher, "grant_form", None)
        self.is_demanded, self._width = form is not None, 0
        if form is not None:
            self._width = sealed_bytes(GRANT_HEAD_BYTES + -(-form.rows // 8), "grant")
        self._keys = SharedKeys(authority, {}, matcher.digest)
        self._sealed: dict[bytes, bytes] = {}

    def lacks(self, client: bytes) -> bool:
        """Tell whether a client needs a grant and has none."""
        return self.is_demanded and client not in self._sealed

    def new(self, messages: Bytes) -> Bytes:
        """Return those of some sealed grants that are not here yet, shape (count, bytes).

        Args:
            messages: sealed grants, shape (count, bytes).

        Raises:
            ParameterError: the matcher demands no grants.
            DecodeError: they are no grants, of another authority, or come before later ones.
        """
        if not self.is_demanded:
            raise ParameterError("this matcher demands no grants: make it with grants=True")
        if messages.ndim != 2 or messages.shape[1] != self._width:
            raise DecodeError(
                f"sealed grants have {self._width} bytes, got an array of shape {messages.shape}: "
                "send what the authority's grant() returns"
            )
        raise_for(head_causes("grant", self._keys, messages))
        sent = self._by_client(messages)
        if len(sent) < len(messages):
            raise DecodeError("several grants are for one client: send the last one only")
        for name, message in sent.items():
            held = self._sealed.get(name, b"")[:GRANT_HEAD_BYTES] or None
            if not follows(message[:GRANT_HEAD_BYTES], held):
                assert held is not None
                raise DecodeError(
                    f"grant {grant_number(message)} of client {name.hex()} comes after grant "
                    f"{grant_number(held)}, which counts: make it anew, with a greater number"
                )
        good = [self._sealed.get(name) != message for name, message in sent.items()]
        return messages[good]

    def put(self, messages: Bytes) -> None:
        """Take grants in place of earlier ones."""
        self._sealed.update(self._by_client(messages))

    def drop(self, messages: Bytes) -> None:
        """Forget grants: their clients have none."""
        for name in self._by_client(messages):
            del self._sealed[name]

    def rows(self) -> Bytes:
        """Return all grants, sealed, shape (count, bytes)."""
        content = bytearray(b"".join(self._sealed.values()))
        return np.frombuffer(content, dtype=np.uint8).reshape(-1, max(1, self._width))

    @staticmethod
    def _by_client(messages: Iterable[Bytes]) -> dict[bytes, bytes]:
        return {row[GRANTEE].tobytes(): row.tobytes() for row in messages}
