"""One of three brokers: it knows clients, keeps interests, and matches events with the other two.

All three get the same requests in the same order, each with its own messages. All three refuse a
message that two brokers hold differently, and an event whose vectors are not one-hot. No message is
requested again: the rest of the batch is treated as if the refused message had not come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import DecodeError, NetworkError, ParameterError
from ccbps.forms.digits import DigitForm
from ccbps.keys.plain_key import PARTIES
from ccbps.shares.answers import PAYLOAD_KEY_BYTES, SealedAnswers, add_pads, attempt_names
from ccbps.shares.clients import (
    CLIENT,
    CLIENT_BYTES,
    HEAD_BYTES,
    TAG_BYTES,
    BrokerKey,
    SharedKeys,
    expand,
    head_causes,
    opened,
    sealed_width,
)
from ccbps.shares.event_check import EventCheck
from ccbps.shares.grants import Grants
from ccbps.shares.replicated import Evaluation, whole_vectors
from ccbps.shares.ring import Ring
from ccbps.shares.table import BLOCK_LANES, Batch, ShareTable
from ccbps.wire import Cause


class Party:
    """A broker that works with two others.

    Attributes:
        table: interests that it keeps, unless a method names another table.

    Args:
        number: number of this broker.
        form: lookups and layers; public.
        key: this broker's key.
        ring: connections to the other two; None to set them later with `join`.
        context: public parameters and epoch, which clients bind their hellos to.
        block_lanes: lanes of a block; the same at all three brokers.
        for_subscribers: True if events carry a payload key, and no broker learns answers.
        grant_form: lookups and layers of grants; None where clients need none.
        authority: hello of the client that gives grants, fixed here so that no other client can
            take its role by greeting first; None where clients need no grants.
    """

    def __init__(
        self,
        number: int,
        form: DigitForm,
        key: BrokerKey,
        ring: Ring | None,
        context: bytes,
        block_lanes: int = BLOCK_LANES,
        *,
        for_subscribers: bool = False,
        grant_form: DigitForm | None = None,
        authority: bytes | None = None,
    ) -> None:
        if (grant_form is None) != (authority is None):
            raise ParameterError(
                "authority= must be the hello of the client that gives grants, where the matcher "
                "demands grants, and None where it does not"
            )
        self._key_bits = 8 * PAYLOAD_KEY_BYTES * for_subscribers
        self._number, self._form, self._key = number, form, key
        self._context, self._block_lanes = context, block_lanes
        self._clients: dict[bytes, SharedKeys] = {}
        self._evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
        self._grants: Grants | None = None
        if grant_form is not None and authority is not None:
            keys = self._clients[self.greet(authority)]
            self._grants = Grants(number, grant_form, keys, block_lanes)
        self.table = self.new_table()
        self.join(ring)

    def join(self, ring: Ring | None) -> None:
        """Use other connections from now on; None for none."""
        self._ring, self._unit = ring, 0

    def new_table(self) -> ShareTable:
        """Return an empty table of interests."""
        return ShareTable(self._evaluation, self._form.rows, HEAD_BYTES, self._block_lanes)

    def greet(self, hello: bytes) -> bytes:
        """Take a client's hello, and return the client's name.

        Raises:
            DecodeError: it is not for this broker, public parameters and epoch, or the client is
                known already.
        """
        keys = self._key.open(self._number, hello, self._context)
        if keys.client in self._clients:
            raise DecodeError(f"client {keys.client.hex()} is known already")
        self._clients[keys.client] = keys
        return keys.client

    def forget(self, client: bytes) -> None:
        """Forget the keys of a client; its interests stay where they are."""
        self._clients.pop(client, None)

    def grant(self, parts: Bytes) -> Bools:
        """Take grants, and return those that all three brokers refuse, shape (count,).

        A grant replaces the client's earlier one, also for interests that were added before.

        Args:
            parts: this broker's parts of the authority's messages, shape (count, bytes).

        Raises:
            DecodeError: they do not have the size of grants.
            PeerError: the brokers hold other messages.
            NetworkError: a connection broke.
            ParameterError: the matcher demands no grants.
        """
        return self._demanded.take(self._joined, parts)

    def verify_grants(self, parts: Bytes) -> Bools:
        """Return the grants that the brokers would refuse, shape (count,).

        Arguments and errors are those of `grant`.
        """
        return self._demanded.verify(self._joined, parts)

    def forget_grants(self) -> None:
        """Forget all grants. Forget tables of interests, too: these name the lanes of grants."""
        if self._grants is not None:
            self._grants.clear()

    @property
    def grants_digest(self) -> bytes:
        """Digest of the grant of each client, 32 bytes; empty where clients need none."""
        return b"" if self._grants is None else self._grants.table.digest

    def subscribe(
        self,
        messages: Bytes,
        *,
        table: ShareTable | None = None,
        chosen: Index | None = None,
        sealed: bool = False,
        verified: bool = False,
    ) -> Index:
        """Add interests, and return the lane of each, shape (count,); -1 for a refused interest.

        If the matcher demands grants, interests of clients without a grant are refused.

        Args:
            messages: messages for this broker, shape (count, bytes).
            table: table to add them to.
            chosen: lane of each, shape (count,); lanes that were never used, if None.
            sealed: True for this broker's parts of sealed messages.
            verified: True for interests that `verify` accepted at all three brokers, of clients
                that were not forgotten since. The brokers do not compare them again.

        Raises:
            DecodeError: some are no interests of clients that are known.
            PeerError: the brokers hold other messages.
            NetworkError: a connection broke.
        """
        table = self.table if table is None else table
        messages, broken = self._opened("interest", messages, sealed)
        shares = self.shares("interest", messages)
        broken = broken | self._ungranted(messages)
        good = ~(broken if verified else self._differing(messages, shares, broken))
        out = np.full(len(messages), -1, dtype=np.int64)
        out[good] = (table.used + np.arange(good.sum())) if chosen is None else chosen[good]
        heads = messages[good, :HEAD_BYTES]
        grants = None if self._grants is None else self._grants.lanes(heads)
        table.put(out[good], heads, (shares[0][good], shares[1][good]), grants)
        return out

    def verify(self, parts: Bytes) -> Bools:
        """Return the interests that the brokers would refuse, shape (count,).

        Args:
            parts: this broker's parts of sealed messages, shape (count, bytes).

        Raises:
            DecodeError: some are no interests of clients that are known.
            NetworkError: a connection broke.
        """
        messages, broken = self._opened("interest", parts, True)
        shares = self.shares("interest", messages)
        return self._differing(messages, shares, broken | self._ungranted(messages))

    def publish(
        self,
        messages: Bytes,
        *,
        tables: Sequence[ShareTable] | None = None,
        sealed: bool = False,
    ) -> tuple[Bools, Bools]:
        """Match events with all interests of some tables, and learn the answers.

        Args:
            messages: messages for this broker, shape (count, bytes).
            tables: tables to match them with; this broker's `table`, if None.
            sealed: True for this broker's parts of sealed messages.

        Returns:
            answers, shape (count, lanes), with the tables side by side; and the events that are
            refused, shape (count,), which match nothing.

        Raises:
            DecodeError: some are no events of clients that are known.
            PeerError: the brokers hold other messages or interests.
            NetworkError: a connection broke.
            ParameterError: answers are for subscribers only.
        """
        if self._key_bits:
            raise ParameterError("answers are for subscribers only: call publish_for_subscribers")
        batch, check = self._batch(messages, [self.table] if tables is None else tables, sealed)
        answers, self._unit = batch.match(self._joined, self._unit)
        assert check.refused is not None
        return answers, check.refused

    def publish_for_subscribers(
        self, messages: Bytes, *, table: ShareTable | None = None, sealed: bool = False
    ) -> tuple[SealedAnswers, Bools]:
        """Match events with all interests of a table; only subscribers can open the answers.

        Memory: 16 bytes for each event and lane.

        Args:
            messages: messages for this broker, shape (count, bytes).
            table: table to match them with.
            sealed: True for this broker's parts of sealed messages.

        Returns:
            this broker's part of the answers, each sealed for the client of its lane, and zeros
            in lanes of removed interests and of clients that were forgotten; and the events that
            are refused, shape (count,), which match nothing.

        Raises:
            DecodeError: some are no events of clients that are known.
            PeerError: the brokers hold other messages or interests.
            NetworkError: a connection broke.
            ParameterError: answers are for brokers.
        """
        if not self._key_bits:
            raise ParameterError("answers are for brokers: call publish")
        table = self.table if table is None else table
        batch, check = self._batch(messages, [table], sealed)
        first, second = (
            np.packbits(share[:, -self._key_bits :], axis=1, bitorder="little")
            for share in batch.events
        )
        shares, self._unit = batch.times_keys(self._joined, self._unit, (first, second))
        assert check.refused is not None
        attempts = attempt_names(check.coin, len(messages))
        own_heads = messages[:, :HEAD_BYTES]
        add_pads(self._number, self._clients, own_heads, table.heads, attempts, shares)
        # No pads either: a message that came twice has the same pads in another lane.
        shares[:, ~table.live] = 0
        return SealedAnswers(attempts, shares), check.refused

    def _batch(
        self, messages: Bytes, tables: Sequence[ShareTable], sealed: bool
    ) -> tuple[Batch, EventCheck]:
        """Return events to match with tables, and their check."""
        messages, broken = self._opened("event", messages, sealed)
        sent = self.shares("event", messages)
        first, second = (
            whole_vectors(share, self._form.digit_bits, (self._number + place) % PARTIES == 0)
            for place, share in enumerate(sent)
        )
        heads, events = messages[:, :HEAD_BYTES], (first, second)
        check = EventCheck(
            self._joined, _common(messages, sent), broken, events, self._form.digit_bits
        )
        grants = None if self._grants is None else self._grants.table
        return Batch(heads, events, tables, check, grants), check

    @property
    def _demanded(self) -> Grants:
        if self._grants is None:
            raise ParameterError("this matcher demands no grants: make it with grants=True")
        return self._grants

    @property
    def _joined(self) -> Ring:
        if self._ring is None:
            raise NetworkError("this broker is not connected to the other two")
        return self._ring

    def _of_clients(self, kind: str, messages: Bytes) -> Iterator[tuple[SharedKeys, Bools]]:
        """Yield the keys of each client, and its messages' rows, shape (count,)."""
        if messages.ndim != 2 or messages.shape[1] < HEAD_BYTES:
            raise DecodeError(f"{kind}s are rows of at least {HEAD_BYTES} bytes")
        names = np.ascontiguousarray(messages[:, CLIENT])
        clients, index = np.unique(names.view(f"V{CLIENT_BYTES}")[:, 0], return_inverse=True)
        for place, name in enumerate(clients):
            keys = self._clients.get(bytes(name))
            if keys is None:
                raise DecodeError(f"client {bytes(name).hex()} is not known: send its hello first")
            yield keys, index.reshape(-1) == place

    def _opened(self, kind: str, messages: Bytes, sealed: bool) -> tuple[Bytes, Bools]:
        """Return messages for this broker, and the rows that were altered on their way."""
        broken = np.zeros(len(messages), dtype=np.bool_)
        if not sealed:
            return messages, broken
        size = sealed_width(self._number, self._bits(kind))
        if messages.shape[1:] != (size,):
            raise DecodeError(f"sealed {kind}s for broker {self._number} have {size} bytes")
        tags = TAG_BYTES if self._number else 0
        out = np.empty((len(messages), size - tags), dtype=np.uint8)
        for keys, rows in self._of_clients(kind, messages):
            out[rows], good = opened(self._number, keys, kind, messages[rows])
            broken[rows] = ~good
        if self._number and (unused := self._bits(kind) % 8):
            # Bits behind the last one are no fault of the others in the batch.
            broken |= out[:, -1] >> np.uint8(unused) != 0
            out[broken, -1] = 0
        return out, broken

    def _bits(self, kind: str) -> int:
        return self._form.event_bits + self._key_bits if kind == "event" else self._form.rows

    def shares(self, kind: str, messages: Bytes) -> tuple[Bytes, Bytes]:
        """Return this broker's two shares of messages, 0 and 1, each of shape (count, bits).

        Args:
            kind: "event" or "interest".
            messages: messages of any clients for this broker, shape (count, bytes).

        Raises:
            DecodeError: some are no such messages of clients that are known.
        """
        bits = self._bits(kind)
        out = np.empty((2, len(messages), bits), dtype=np.uint8)
        for keys, rows in self._of_clients(kind, messages):
            out[:, rows] = expand(self._number, keys, kind, messages[rows], bits)
        return out[0], out[1]

    def examine(self, kind: str, messages: Bytes) -> Bytes:
        """Return the `Cause` for which this broker by itself refuses each message, or 0.

        Args:
            kind: "event" or "interest".
            messages: messages of any clients for this broker, shape (count, bytes).
        """
        causes = np.full(len(messages), Cause.CLIENT, dtype=np.uint8)
        names = np.ascontiguousarray(messages[:, CLIENT])
        clients, index = np.unique(names.view(f"V{CLIENT_BYTES}")[:, 0], return_inverse=True)
        for place, name in enumerate(clients):
            keys, rows = self._clients.get(bytes(name)), index.reshape(-1) == place
            if keys is not None:
                causes[rows] = head_causes(kind, keys, messages[rows])
        if kind == "interest":
            causes[self._ungranted(messages) & (causes == Cause.NONE)] = Cause.UNGRANTED
        if self._number and (unused := self._bits(kind) % 8):
            stray = messages[:, -1] >> np.uint8(unused) != 0
            causes[stray & (causes == Cause.NONE)] = Cause.PADDING
        return causes

    def _differing(self, messages: Bytes, shares: tuple[Bytes, Bytes], broken: Bools) -> Bools:
        """Find the messages that two brokers hold differently, or that one of them refuses."""
        return self._joined.differing_shares(messages[:, :HEAD_BYTES], shares, broken)

    def _ungranted(self, interests: Bytes) -> Bools:
        """Find the interests of clients that have no grant, where the matcher demands grants."""
        if self._grants is None:
            return np.zeros(len(interests), dtype=np.bool_)
        return self._grants.lanes(interests) < 0


def _common(messages: Bytes, shares: tuple[Bytes, Bytes]) -> tuple[Bytes, Bytes]:
    """Return heads and shares that two brokers have in common, packed, shape (count, bytes)."""
    first, second = (
        np.concatenate([messages[:, :HEAD_BYTES], np.packbits(share, axis=1)], axis=1)
        for share in shares
    )
    return first, second
