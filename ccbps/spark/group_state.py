"""Sealers and openers of groups on workers, with state from one micro-batch to the next.

Spark's state store keeps the state, and writes it to files. The state of a sealer says which keys
the receivers have (names, no key). The state of a subscriber is its cache, encrypted under its own
key. All rows of a lane or of a subscriber in a micro-batch come together, and are sorted by event.

Spark repeats a micro-batch after a failure. It is then sealed again, with other nonces, from the
state that it began with. Receivers take each event once.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from ccbps.checks import whole
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
from ccbps.keys.sources import KeySource, broker_state, signing_key, subscriber_keys
from ccbps.spark.workers import on_worker

SIGNED_TOGETHER: Final = 256
"""Largest number of events of one signature."""


class _Remembering(StatefulProcessor):  # type: ignore[misc]
    """Base of processors that keep a snapshot in Spark's state."""

    def init(self, handle: Any) -> None:
        self._cache = handle.getValueState("cache", "snapshot binary")

    def close(self) -> None:
        pass

    def _resume(self, role: GroupSealer | GroupOpener) -> None:
        """Restore the snapshot, if there is one that can be read.

        A snapshot of another strategy or broker, of an earlier owner of the number, or of a larger
        cache is not restored. That is no loss: keys are sent once more, or asked for.
        """
        if self._cache.exists():
            with contextlib.suppress(DecodeError):
                role.restore(bytes(self._cache.get()[0]))

    def _keep(self, role: GroupSealer | GroupOpener) -> None:
        self._cache.update((role.snapshot(),))


@dataclass
class Sealing(_Remembering):
    """Sealer of one lane, whose snapshot is the state.

    Attributes:
        strategy: the strategy of `seal_for_groups`.
        state: source of the broker's keys.
        pad_to: block size of padded payloads (bytes).
        reject: True to set aside rows that cannot be sealed.
        pairs: True if a row has one member, and not all members of a group.
        sign: source of the key that signs events; None to sign none.
    """

    strategy: Strategy
    state: KeySource
    pad_to: int
    reject: bool
    pairs: bool
    sign: KeySource | None = None

    @on_worker
    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        secret, strategy = broker_state(self.state), copy.deepcopy(self.strategy)
        if secret.subscribers != strategy.subscribers:
            raise ParameterError(
                f"strategy is for {strategy.subscribers} subscribers, state for "
                f"{secret.subscribers}"
            )
        sign = None if self.sign is None else signing_key(self.sign)
        sealer = GroupSealer(strategy, secret, pad_to=self.pad_to, sign=sign)
        self._resume(sealer)
        extra = {"rejected": None} if self.reject else {}
        ordered = sorted(rows, key=_event)
        waiting: list[tuple[Row, list[int]]] = []
        for row in _groups(ordered) if self.pairs else ordered:
            try:
                if None in (row.event, row.members, row.payload):
                    raise ParameterError("event, members or payload is NULL")
                whole("event", row.event, 0)
                members, refused = _present(sealer, row)
            except CcbpsError as error:
                if not self.reject:
                    raise ParameterError(f"event {row.event}: {error}") from None
                yield Row(event=row.event, subscriber=None, message=None, rejected=str(error))
                continue
            for member, reason in refused.items() if self.reject else ():
                yield Row(event=row.event, subscriber=member, message=None, rejected=reason)
            waiting.append((row, members))
            if len(waiting) == SIGNED_TOGETHER:
                yield from _sealed(sealer, waiting, extra)
                waiting = []
        yield from _sealed(sealer, waiting, extra)
        self._keep(sealer)


@dataclass
class Opening(_Remembering):
    """Opener of one subscriber, whose snapshot, encrypted under the subscriber's key, is the state.

    Attributes:
        keys: source of the subscribers' keys.
        capacity: number of keys that the subscriber keeps.
        remember: number of events that the subscriber remembers.
        reject: True to set aside messages that cannot be opened.
        verify: identity of the sender, whose signature each message must have; None for any.
    """

    keys: KeySource
    capacity: int
    remember: int
    reject: bool
    verify: bytes | None = None

    @on_worker
    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        (number,) = key
        opener, refusal = None, "subscriber is NULL"
        try:
            if number is not None:
                own = subscriber_keys(self.keys).key(number)
                opener = GroupOpener(
                    own, capacity=self.capacity, remember=self.remember, verify=self.verify
                )
        except KeyMismatchError as error:
            refusal = str(error)
        if opener is not None:
            self._resume(opener)
        # The key of an event may come with an event of a larger number, which was sealed first. So
        # the event waits as long as the opener can still tell that it is new.
        waiting: deque[tuple[int, Row]] = deque()
        for place, row in enumerate(sorted(rows, key=_event)):
            while waiting and place - waiting[0][0] >= self.remember:
                yield from self._answer(opener, waiting.popleft()[1], refusal, ask=True)
            try:
                yield from self._answer(opener, row, refusal, ask=False)
            except MissingKeyError:
                waiting.append((place, row))
        for _, row in waiting:
            yield from self._answer(opener, row, refusal, ask=True)
        if opener is not None:
            self._keep(opener)

    def _answer(
        self, opener: GroupOpener | None, row: Row, refusal: str, *, ask: bool
    ) -> Iterator[Row]:
        """Yield the row for a message, none for a copy.

        Args:
            opener: the opener; None if there is none.
            row: the message.
            refusal: reason why there is no opener.
            ask: request a missing key.

        Raises:
            MissingKeyError: without `ask`, the key is missing.
        """
        payload, request, reason = None, None, None
        try:
            if opener is None:
                raise DecodeError(refusal)
            if row.message is None:
                raise DecodeError("message is NULL")
            if row.answer is None:
                payload = opener.open(row.message)
            else:
                payload = opener.accept(row.answer, row.message)
        except MissingKeyError as missing:
            if not ask:
                raise
            request = missing.request
        except ReplayError as error:
            if not self.reject:
                return
            reason = str(error)
        except DecodeError as error:
            if not self.reject:
                raise DecodeError(
                    f"event {row.event}, subscriber {row.subscriber}: {error}"
                ) from None
            reason = str(error)
        extra = {"rejected": reason} if self.reject else {}
        yield Row(
            event=row.event, subscriber=row.subscriber, payload=payload, request=request, **extra
        )


def _sealed(
    sealer: GroupSealer, rows: list[tuple[Row, list[int]]], extra: dict[str, None]
) -> Iterator[Row]:
    """Yield the messages of events, in rows with their members, signed together if at all."""
    bits = np.zeros((len(rows), sealer.strategy.subscribers), dtype=np.bool_)
    for place, (_, members) in enumerate(rows):
        bits[place, members] = True
    payloads, numbers = [row.payload for row, _ in rows], [row.event for row, _ in rows]
    events = sealer.seal_batch(payloads, numbers, pack_groups(bits))
    for (row, members), sealed in zip(rows, events, strict=True):
        for member in members:
            message = sealed.for_subscriber(member)
            yield Row(event=row.event, subscriber=member, message=message, **extra)


def _event(row: Row) -> int:
    return -1 if row.event is None else int(row.event)


def _groups(rows: list[Row]) -> Iterator[Row]:
    """Join the rows of each event, which have one member each, to one row.

    The rows come in the order of events.
    """
    for event, several in groupby(rows, key=lambda row: row.event):
        groups: dict[tuple[Any, Any], set[int | None]] = {}
        for row in several:
            members = groups.setdefault((row.as_of, row.payload), set())
            members.update(row.members or [None])
        for (as_of, payload), members in groups.items():
            yield Row(event=event, members=members, payload=payload, as_of=as_of)


def _present(sealer: GroupSealer, row: Row) -> tuple[list[int], dict[int, str]]:
    """Return the members who may have the event, ascending, and the reason why others may not."""
    last, present = sealer.strategy.subscribers - 1, []
    refused: dict[int, str] = {}
    for member in {*row.members}:
        if member is None or not 0 <= member <= last:
            raise ParameterError(f"members must be numbers 0 .. {last}, got {member!r}")
        since = sealer.since(member)
        if not since:
            refused[member] = f"subscriber {member} has not joined"
        elif row.as_of is not None and since > row.as_of:
            refused[member] = f"subscriber {member} joined after epoch {row.as_of}, of the group"
        else:
            present.append(member)
    return sorted(present), refused
