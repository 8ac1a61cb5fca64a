"""Grants: which events a client may see at all, as an authority says, unknown to the brokers.

The authority is a client like others. It shares a second interest for each client, and the brokers
answer with the client's interests *and* its grant. Brokers evaluate a grant once for each event,
and keep shares of the result g. For a lane of the client, with the interest's result a, they
compute one more product, a g, which costs a bit a pair. Nobody opens a or g.

A random table would match half of all events, so noise must never count as a grant. So all three
brokers refuse a grant whose tags, for brokers 1 and 2, are not the authority's. The tags and the
stream F bind the grantee's name, the number of the grant, and the kind. Numbers of a client's
grants rise: an earlier grant that is sent again is refused. A client without a grant has no
interests.

Hazard: brokers that lost all grants take earlier ones again. Hazard: the authority gives a grant to
a name. A name follows from the client's key, and the authority must know whose it is.
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
        evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
        self.table = ShareTable(evaluation, form.rows, GRANT_HEAD_BYTES, block_lanes)
        self._lanes: dict[bytes, int] = {}
        self._numbers: dict[bytes, int] = {}

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
        party, bits, width = self._party, self._form.rows, self.part_bytes
        if parts.dtype != np.uint8 or parts.shape[1:] != (width,):
            raise DecodeError(f"sealed grants for broker {party} have {width} bytes")
        refused = self.examine(parts) != Cause.NONE
        good = np.flatnonzero(~refused)
        messages, _ = opened(party, self._authority, "grant", parts[good])
        shares = np.zeros((2, len(parts), bits), dtype=np.uint8)
        shares[:, good] = expand(party, self._authority, "grant", messages, bits)
        heads = parts[:, :GRANT_HEAD_BYTES]
        refused = ring.differing_shares(heads, (shares[0], shares[1]), refused)
        names = [head[GRANTEE].tobytes() for head in heads]
        last: dict[bytes, int] = {}
        for row in np.flatnonzero(~refused).tolist():
            name, number = names[row], int.from_bytes(heads[row, NUMBER].tobytes(), "little")
            refused[row] = number <= self._numbers.get(name, -1)
            if not refused[row]:
                self._numbers[name], last[name] = number, row
        for name in last:
            self._lanes.setdefault(name, len(self._lanes))
        rows = np.array(list(last.values()), dtype=np.int64)
        chosen = np.array([self._lanes[name] for name in last], dtype=np.int64)
        self.table.put(chosen, heads[rows], (shares[0][rows], shares[1][rows]))
        return refused

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
