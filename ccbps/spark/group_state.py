"""What seals for groups and opens on workers, and remembers from one micro-batch to the next.

State is in Spark's state store, which writes files: of the sealing side which keys the receivers
have (names, no key); of a subscriber its cache, encrypted under its own key. All rows of a lane or
of a subscriber in a micro-batch come together, and are sorted by event.

A micro-batch that Spark repeats after a failure is sealed again, with other nonces, from the state
that it began with. Receivers take each event once.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from ccbps.arrays import Bytes
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.plans import Strategy
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    MissingKeyError,
    ParameterError,
    ReplayError,
)
from ccbps.keys.sources import KeySource, broker_state, subscriber_keys
from ccbps.spark.workers import on_worker

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )


class _Remembering(StatefulProcessor):  # type: ignore[misc]
    """Keeps a snapshot in Spark's state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cache: ValueState = handle.getValueState("cache", "snapshot binary")

    def close(self) -> None:
        pass

    def _resume(self, role: GroupSealer | GroupOpener) -> None:
        """Restore the snapshot, if there is one that can be read.

        Another one is no loss: keys are sent once more, or asked for. It may be of another strategy
        or broker, of who had the number before, or of a larger cache.
        """
        if self._cache.exists():
            with contextlib.suppress(DecodeError):
                role.restore(bytes(self._cache.get()[0]))

    def _keep(self, role: GroupSealer | GroupOpener) -> None:
        self._cache.update((role.snapshot(),))


class Sealing(_Remembering):
    """One lane's sealer; its snapshot is the state."""

    def __init__(
        self, strategy: Strategy, state: KeySource, pad_to: int, reject: bool, pairs: bool
    ) -> None:
        self._strategy, self._state = strategy, state
        self._pad_to, self._reject, self._pairs = pad_to, reject, pairs

    @on_worker
    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        secret, strategy = broker_state(self._state), copy.deepcopy(self._strategy)
        if secret.subscribers != strategy.subscribers:
            raise ParameterError(
                f"strategy is for {strategy.subscribers} subscribers, state for "
                f"{secret.subscribers}"
            )
        sealer = GroupSealer(strategy, secret, pad_to=self._pad_to)
        self._resume(sealer)
        extra = {"rejected": None} if self._reject else {}
        ordered = sorted(rows, key=_event)
        for row in _groups(ordered) if self._pairs else ordered:
            try:
                if None in (row.event, row.members, row.payload):
                    raise ParameterError("event, members or payload is NULL")
                members, refused = _present(sealer, row)
                group = _packed(members, strategy.subscribers)
                sealed = sealer.seal(row.payload, row.event, group)
            except CcbpsError as error:
                if not self._reject:
                    raise ParameterError(f"event {row.event}: {error}") from None
                yield Row(event=row.event, subscriber=None, message=None, rejected=str(error))
                continue
            for one in members:
                yield Row(
                    event=row.event, subscriber=one, message=sealed.for_subscriber(one), **extra
                )
            for one, reason in refused.items() if self._reject else ():
                yield Row(event=row.event, subscriber=one, message=None, rejected=reason)
        self._keep(sealer)


class Opening(_Remembering):
    """One subscriber's opener; its snapshot, encrypted under the subscriber's key, is the state."""

    def __init__(self, keys: KeySource, capacity: int, remember: int, reject: bool) -> None:
        self._keys, self._reject = keys, reject
        self._sizes = capacity, remember

    @on_worker
    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        (number,) = key
        capacity, remember = self._sizes
        opener, reason_for_all = None, "subscriber is NULL"
        try:
            if number is not None:
                own = subscriber_keys(self._keys).key(number)
                opener = GroupOpener(own, capacity=capacity, remember=remember)
        except KeyMismatchError as error:
            reason_for_all = str(error)
        if opener is not None:
            self._resume(opener)
        # An event may be under a key that comes with one of a larger number, which was sealed
        # first: it waits as long as the opener can still tell that it is new.
        waiting: deque[tuple[int, Row]] = deque()
        for place, row in enumerate(sorted(rows, key=_event)):
            while waiting and place - waiting[0][0] >= remember:
                yield from self._answer(opener, waiting.popleft()[1], reason_for_all, ask=True)
            try:
                yield from self._answer(opener, row, reason_for_all, ask=False)
            except MissingKeyError:
                waiting.append((place, row))
        for _, row in waiting:
            yield from self._answer(opener, row, reason_for_all, ask=True)
        if opener is not None:
            self._keep(opener)

    def _answer(
        self, opener: GroupOpener | None, row: Row, reason_for_all: str, *, ask: bool
    ) -> Iterator[Row]:
        """Yield the row for a message, none for a copy.

        Raises:
            MissingKeyError: its key is missing, and is not to be asked for yet.
        """
        payload, request, reason = None, None, None
        try:
            if opener is None:
                raise DecodeError(reason_for_all)
            payload = _opened(opener, row)
        except MissingKeyError as missing:
            if not ask:
                raise
            request = missing.request
        except ReplayError as error:
            if not self._reject:
                return
            reason = str(error)
        except DecodeError as error:
            if not self._reject:
                raise DecodeError(
                    f"event {row.event}, subscriber {row.subscriber}: {error}"
                ) from None
            reason = str(error)
        extra = {"rejected": reason} if self._reject else {}
        yield Row(
            event=row.event, subscriber=row.subscriber, payload=payload, request=request, **extra
        )


def _event(row: Row) -> int:
    return -1 if row.event is None else int(row.event)


def _groups(rows: list[Row]) -> Iterator[Row]:
    """Join the rows of each event, which have one member each, to one row.

    They come in the order of events.
    """
    for event, several in groupby(rows, key=lambda row: row.event):
        of: dict[tuple[Any, Any], set[int | None]] = {}
        for row in several:
            members = of.setdefault((row.as_of, row.payload), set())
            members.update(row.members or [None])
        for (as_of, payload), members in of.items():
            yield Row(event=event, members=members, payload=payload, as_of=as_of)


def _opened(opener: GroupOpener, row: Row) -> bytes:
    if row.message is None:
        raise DecodeError("message is NULL")
    if row.answer is not None:
        return opener.accept(row.answer, row.message)
    return opener.open(row.message)


def _present(sealer: GroupSealer, row: Row) -> tuple[list[int], dict[int, str]]:
    """Return the members who may have the event, ascending, and why others may not."""
    last, members = sealer.strategy.subscribers - 1, []
    refused: dict[int, str] = {}
    for one in {*row.members}:
        if one is None or not 0 <= one <= last:
            raise ParameterError(f"members must be numbers 0 .. {last}, got {one!r}")
        since = sealer.since(one)
        if not since:
            refused[one] = f"subscriber {one} has not joined"
        elif row.as_of is not None and since > row.as_of:
            refused[one] = f"subscriber {one} joined after epoch {row.as_of}, of the group"
        else:
            members.append(one)
    return sorted(members), refused


def _packed(members: list[int], subscribers: int) -> Bytes:
    bits = np.zeros(subscribers, dtype=np.bool_)
    bits[members] = True
    return pack_groups(bits)
