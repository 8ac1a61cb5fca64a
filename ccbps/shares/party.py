"""One of three brokers: it knows clients, keeps interests, and matches events with the other two.

All three get the same requests in the same order, each with its own messages. A message that two
brokers hold differently, or an event whose vectors are not one-hot, is refused by all three. Nobody
is asked again: the other messages of the batch are treated as if it had not come.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.errors import DecodeError
from ccbps.forms.digits import DigitForm
from ccbps.shares.clients import (
    CLIENT,
    CLIENT_BYTES,
    HEAD_BYTES,
    BrokerKey,
    SharedKeys,
    expand,
    head_causes,
)
from ccbps.shares.one_hot import one_hot_steps
from ccbps.shares.replicated import PARTIES, Evaluation, whole_vectors
from ccbps.shares.ring import Ring
from ccbps.shares.table import BLOCK_LANES, ShareTable
from ccbps.wire import Cause


class Party:
    """A broker that works with two others.

    Attributes:
        table: interests.

    Args:
        number: number of this broker.
        form: lookups and layers; public.
        key: this broker's key.
        ring: connections to the other two.
        context: public parameters and epoch, which clients bind their hellos to.
        block_lanes: lanes of a block; the same at all three brokers.
    """

    def __init__(
        self,
        number: int,
        form: DigitForm,
        key: BrokerKey,
        ring: Ring,
        context: bytes,
        block_lanes: int = BLOCK_LANES,
    ) -> None:
        self._number, self._form, self._key, self._ring = number, form, key, ring
        self._context, self._unit = context, 0
        self._clients: dict[bytes, SharedKeys] = {}
        evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
        self.table = ShareTable(evaluation, form.rows, HEAD_BYTES, block_lanes)

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

    def subscribe(self, messages: Bytes) -> NDArray[np.int64]:
        """Add interests, and return the lane of each, shape (count,); -1 for those refused.

        Args:
            messages: messages for this broker, shape (count, bytes).

        Raises:
            DecodeError: some are no interests of clients that are known.
            PeerError: the brokers hold other messages.
            NetworkError: a connection broke.
        """
        shares = self.shares("interest", messages)
        good = ~self._differing(messages, shares)
        lanes = np.full(len(messages), -1, dtype=np.int64)
        heads = messages[good, :HEAD_BYTES]
        lanes[good] = self.table.add(heads, (shares[0][good], shares[1][good]))
        return lanes

    def publish(self, messages: Bytes) -> tuple[Bools, Bools]:
        """Match events with all interests.

        Args:
            messages: messages for this broker, shape (count, bytes).

        Returns:
            answers, shape (count, lanes); and the events that are refused, shape (count,), which
            match nothing.

        Raises:
            DecodeError: some are no events of clients that are known.
            PeerError: the brokers hold other messages or interests.
            NetworkError: a connection broke.
        """
        sent = self.shares("event", messages)
        refused = self._differing(messages, sent)
        first, second = (
            whole_vectors(share, self._form.digit_bits, (self._number + place) % PARTIES == 0)
            for place, share in enumerate(sent)
        )
        good = np.flatnonzero(~refused)
        bad = self._not_one_hot(messages[good, :HEAD_BYTES], (first[good], second[good]))
        refused[good[bad]] = True
        good = np.flatnonzero(~refused)
        heads, events = messages[good, :HEAD_BYTES], (first[good], second[good])
        matched, self._unit = self.table.match(self._ring, self._unit, heads, events)
        answers = np.zeros((len(messages), matched.shape[1]), dtype=np.bool_)
        answers[good] = matched
        return answers, refused

    def shares(self, kind: str, messages: Bytes) -> tuple[Bytes, Bytes]:
        """Return this broker's two shares of messages, 0 and 1, each of shape (count, bits).

        Args:
            kind: "event" or "interest".
            messages: messages of any clients for this broker, shape (count, bytes).

        Raises:
            DecodeError: some are no such messages of clients that are known.
        """
        bits = self._form.event_bits if kind == "event" else self._form.rows
        out = np.empty((2, len(messages), bits), dtype=np.uint8)
        if messages.ndim != 2 or messages.shape[1] < HEAD_BYTES:
            raise DecodeError(f"{kind}s are rows of at least {HEAD_BYTES} bytes")
        names = np.ascontiguousarray(messages[:, CLIENT])
        clients, index = np.unique(names.view(f"V{CLIENT_BYTES}")[:, 0], return_inverse=True)
        for place, name in enumerate(clients):
            keys, rows = self._clients.get(bytes(name)), index.reshape(-1) == place
            if keys is None:
                raise DecodeError(f"client {bytes(name).hex()} is not known: send its hello first")
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
        bits = self._form.event_bits if kind == "event" else self._form.rows
        if self._number and bits % 8:
            stray = messages[:, -1] >> np.uint8(bits % 8) != 0
            causes[stray & (causes == Cause.NONE)] = Cause.PADDING
        return causes

    def _differing(self, messages: Bytes, shares: tuple[Bytes, Bytes]) -> Bools:
        """Find the messages that two brokers hold differently."""
        heads = messages[:, :HEAD_BYTES]
        first, second = (
            np.concatenate([heads, np.packbits(share, axis=1)], axis=1) for share in shares
        )
        return self._ring.differing(first, second)

    def _not_one_hot(self, heads: Bytes, events: tuple[Bytes, Bytes]) -> Bools:
        """Find the events that are not one-hot; one by one only if the batch is not."""
        digit_bits, bad = self._form.digit_bits, np.zeros(len(heads), dtype=np.bool_)
        digest = sha256(b"one-hot" + heads.tobytes()).digest()
        for each in (False, True) if len(heads) else ():
            # Drawn now, when nobody can change an event any more.
            begin = partial(one_hot_steps, events, digit_bits, self._ring.coin(), each=each)
            sums, _ = self._ring.evaluate(self._unit, digest, begin)
            self._unit += 1
            if not sums.any():
                break
            bad = sums[:, 0] != 0
        return bad
