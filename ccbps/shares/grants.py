"""Grants: an authority limits the events that a client may see, unknown to the brokers.

The authority is a client like others. It shares a second interest for each client, and the brokers
answer with the client's interests *and* its grant. Brokers evaluate a grant once for each event,
and keep shares of the result g. For a lane of the client, with the interest's result a, they
compute one more product, a g, which costs one bit for each pair. Nobody opens a or g.

A random table would match half of all events, so noise must never pass as a grant. Therefore all
three brokers refuse a grant whose tags, for brokers 1 and 2, are not the authority's. The tags and
the stream F bind the grantee's name, the number of the grant, and the kind. Numbers of a client's
grants rise: an earlier grant that is sent again is refused. The latest one may be sent again, since
a connection may break when only some brokers have taken it, and changes nothing. A client without a
grant can have no interests.

Hazards: brokers that lost all grants accept earlier ones again. The authority gives a grant to a
name, which derives from the client's key: it must know whose name it is.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import DecodeError
from ccbps.forms.digits import DigitForm
from ccbps.shares.clients import (
    CLIENT,
    GRANT_HEAD_BYTES,
    GRANTEE,
    NUMBER,
    SharedKeys,
    expand,
    head_causes,
    opened,
    sealed_width,
)
from ccbps.shares.replicated import Evaluation
from ccbps.shares.ring import Ring
from ccbps.shares.table import ShareTable
from ccbps.wire import Cause


def grant_number(head: bytes) -> int:
    """Return the number of a grant from its head."""
    return int.from_bytes(head[NUMBER], "little")


def follows(head: bytes, held: bytes | None) -> bool:
    """Tell whether a grant may replace another: it is equal or later.

    Args:
        head: head of the grant.
        held: head of the client's last grant; None for none.
    """
    return held is None or head == held or grant_number(head) > grant_number(held)


class Grants:
    """Grants that one of three brokers keeps: a lane for each client that has one.

    Attributes:
        table: the grants, as interests of their authority.

    Args:
        party: number of this broker.
        form: lookups and layers of a grant; public.
        authority: keys that the authority and this broker share.
        block_lanes: lanes of a block; the same at all three brokers.
    """

    def __init__(
        self, party: int, form: DigitForm, authority: SharedKeys, block_lanes: int
    ) -> None:
        self._party, self._form, self._authority = party, form, authority
        self._evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
        self._block_lanes = block_lanes
        self.clear()

    def clear(self) -> None:
        """Forget all grants, as if none had come."""
        rows, lanes = self._form.rows, self._block_lanes
        self.table = ShareTable(self._evaluation, rows, GRANT_HEAD_BYTES, lanes)
        self._lanes: dict[bytes, int] = {}
        self._heads: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def take(self, ring: Ring, parts: Bytes) -> Bools:
        """Take grants in place of earlier ones, and return those refused, shape (count,).

        Args:
            ring: connections to the others.
            parts: this broker's parts of sealed grants, shape (count, bytes).

        Raises:
            DecodeError: they do not have the size of grants.
            PeerError: a neighbour has another number of grants.
            NetworkError: a connection broke.
        """
        refused, shares = self._compared(ring, parts)
        heads = parts[:, :GRANT_HEAD_BYTES]
        last: dict[bytes, int] = {}
        for row in np.flatnonzero(~refused).tolist():
            name, head = heads[row, GRANTEE].tobytes(), heads[row].tobytes()
            refused[row] = not follows(head, self._heads.get(name))
            if not refused[row]:
                self._heads[name], last[name] = head, row
        for name in last:
            self._lanes.setdefault(name, len(self._lanes))
        rows = np.array(list(last.values()), dtype=np.int64)
        chosen = np.array([self._lanes[name] for name in last], dtype=np.int64)
        self.table.put(chosen, heads[rows], (shares[0][rows], shares[1][rows]))
        return refused

    def verify(self, ring: Ring, parts: Bytes) -> Bools:
        """Return the grants that `take` would refuse one by one, shape (count,), and take none.

        Arguments and errors are those of `take`.
        """
        refused, _ = self._compared(ring, parts)
        for row in np.flatnonzero(~refused).tolist():
            head = parts[row, :GRANT_HEAD_BYTES].tobytes()
            refused[row] = not follows(head, self._heads.get(head[GRANTEE]))
        return refused

    def _compared(self, ring: Ring, parts: Bytes) -> tuple[Bools, Bytes]:
        """Return the grants that a broker refuses or two hold differently, and this one's shares.

        Returns:
            marks, shape (count,); and two shares, shape (2, count, bits).
        """
        party, bits, width = self._party, self._form.rows, self.part_bytes
        if parts.dtype != np.uint8 or parts.shape[1:] != (width,):
            raise DecodeError(f"sealed grants for broker {party} have {width} bytes")
        refused = self.examine(parts) != Cause.NONE
        good = np.flatnonzero(~refused)
        messages, _ = opened(party, self._authority, "grant", parts[good])
        shares = np.zeros((2, len(parts), bits), dtype=np.uint8)
        shares[:, good] = expand(party, self._authority, "grant", messages, bits)
        heads = parts[:, :GRANT_HEAD_BYTES]
        return ring.differing_shares(heads, (shares[0], shares[1]), refused), shares

    @property
    def part_bytes(self) -> int:
        """Bytes of this broker's part of a sealed grant."""
        return sealed_width(self._party, self._form.rows, "grant")

    def examine(self, parts: Bytes) -> Bytes:
        """Return the `Cause` for which this broker by itself refuses each grant, or 0.

        Args:
            parts: this broker's parts of sealed grants, shape (count, `part_bytes`).
        """
        causes = head_causes("grant", self._authority, parts)
        good = np.flatnonzero(causes == Cause.NONE)
        messages, tagged = opened(self._party, self._authority, "grant", parts[good])
        if self._party and (unused := self._form.rows % 8):
            causes[good[messages[:, -1] >> np.uint8(unused) != 0]] = Cause.PADDING
        causes[good[~tagged]] = Cause.ALTERED
        return causes

    def lanes(self, heads: Bytes) -> Index:
        """Return the lane of the grant of each interest's client, shape (count,); -1 for none.

        Args:
            heads: heads of interests, shape (count, 52).
        """
        names = np.ascontiguousarray(heads[:, CLIENT]).view(f"V{CLIENT.stop - CLIENT.start}")
        clients, index = np.unique(names[:, 0], return_inverse=True)
        held = [self._lanes.get(bytes(name), -1) for name in clients]
        return np.array(held, dtype=np.int64)[index.reshape(-1)]
