"""Delivery to groups in DataFrames, batch or streaming: sealed as a strategy plans it, and opened.

State that lasts from one micro-batch to the next is in Spark's state store, which writes files: of
the sealing side which keys the receivers have (names, no key); of a subscriber its cache, encrypted
under its own key. Workers find the broker's state and subscribers' keys through a `KeySource`, and
read it again for every micro-batch, so who joins or leaves is known from the next one on.

A micro-batch that Spark repeats after a failure is sealed again, with other nonces, from the state
that it began with. Receivers take each event once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from ccbps.arrays import Bytes
from ccbps.arrow import chosen, is_valid, with_nulls
from ccbps.ciphers.payloads import PAD_TO
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.plans import Strategy
from ccbps.delivery.whole_groups import Naive
from ccbps.errors import CcbpsError, DecodeError, MissingKeyError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.sources import KeySource, broker_state, subscriber_keys
from ccbps.spark.frames import (
    check_key,
    check_on_error,
    check_once,
    column,
    finish,
    require,
    struct,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

__all__ = ["answer_key_requests", "open_from_groups", "seal_for_groups"]

CAPACITY: Final = 1 << 12
REMEMBER: Final = 1 << 12
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def seal_for_groups(
    df: DataFrame,
    strategy: Strategy,
    state: KeySource,
    *,
    event: str = "event",
    members: str = "members",
    payload: str = "payload",
    lanes: int = 1,
    pad_to: int = PAD_TO,
    on_error: str = "raise",
) -> DataFrame:
    """Encrypt each payload for its group, with as few encryptions as the strategy needs.

    Each lane is one sealer with a cache of its own. Equal groups are in one lane.

    Args:
        df: a row for each event, batch or streaming: `event`, a whole number that always names the
            same event; `members`, an array of subscribers' numbers; and `payload`, binary or
            string. The result has none of its other columns.
        strategy: plans; of as many subscribers as the state. It travels in the plan, so take a new
            one, which remembers no group.
        state: where workers find the text of the `GroupSealer.state`: the broker's keys.
        lanes: sealers that work side by side.
        pad_to: payloads are padded to a multiple of this many bytes, as lengths leak information.
        on_error: "raise"; or "reject": a row that cannot be sealed gives one row with the reason in
            a column `rejected`, and no message.

    Returns:
        a row for each event and member: `event`, `subscriber`, the member's number, and `message`,
        which that subscriber opens.

    Raises:
        ParameterError: a column is missing or of the wrong type; or the stream's state store is not
            RocksDB. When the result is computed: a row cannot be sealed.
        RandomnessReuseError: an event number occurs twice in a batch. Runs one job to find out.

    Example:
        .. code-block:: python

            groups = matches.where("matched").groupBy("event").agg(
                F.collect_set("number").alias("members")
            )
            sealed = cs.seal_for_groups(
                groups.join(payloads, "event"), SimpleCache(120, capacity=1000), cs.FileKey(path)
            )
            # event, subscriber, message
    """
    check_key(state)
    check_on_error(on_error, "reject")
    if not isinstance(strategy, Strategy):
        raise ParameterError(f"strategy must be a Strategy, got {type(strategy).__name__}")
    if type(lanes) is not int or lanes < 1:
        raise ParameterError(f"lanes must be a whole number of at least 1, got {lanes!r}")
    GroupSealer(Naive(1), pad_to=pad_to)
    require(df, [payload], whole=[event], rest=False)
    _require_members(df, members)
    _require_store(df)
    rows = df.select(
        column(event).cast("long").alias("event"),
        column(members).cast("array<long>").alias("members"),
        column(payload).cast("binary").alias("payload"),
        F.pmod(F.xxhash64(F.array_sort(column(members))), F.lit(lanes)).alias("lane"),
    )
    if not df.isStreaming:
        check_once(df, [event], "each number names one event, always")
    reject = on_error == "reject"
    return rows.groupBy("lane").transformWithState(
        statefulProcessor=_Sealing(strategy, state, pad_to, reject),
        outputStructType="event long, subscriber long, message binary"
        + reject * ", rejected string",
        outputMode="Append",
        timeMode="None",
    )


def open_from_groups(
    df: DataFrame,
    keys: KeySource,
    *,
    event: str = "event",
    subscriber: str = "subscriber",
    message: str = "message",
    answer: str | None = None,
    capacity: int = CAPACITY,
    remember: int = REMEMBER,
    on_error: str = "raise",
) -> DataFrame:
    """Open what `seal_for_groups` sealed, each subscriber with a bounded cache of keys.

    Args:
        df: a row for each event and subscriber, batch or streaming. The result has none of its
            other columns.
        keys: where workers find the text of a `SubscriberKey` or a `SubscriberRing`.
        answer: a binary column with answers of `answer_key_requests` to these messages, or NULL.
        capacity: keys that each subscriber keeps.
        remember: events that each subscriber remembers, so as to refuse replays.
        on_error: "raise"; or "reject": a message that cannot be opened has NULL and the reason in a
            column `rejected`.

    Returns:
        `event`, `subscriber`, `payload`, and `request`: binary where the subscriber does not hold
        the key. Then let the broker answer, and open the message again with its answer.

    Raises:
        ParameterError: a column is missing or of the wrong type; or the stream's state store is not
            RocksDB.
        DecodeError (when the result is computed): a message was altered, or opened before.

    Example:
        .. code-block:: python

            opened = cs.open_from_groups(sealed, cs.FileKey("/run/secrets/subscribers"))
            # event, subscriber, payload, request
            missing = opened.where("request IS NOT NULL").join(sealed, ["event", "subscriber"])
            answered = cs.answer_key_requests(missing, cs.FileKey("/run/secrets/broker"))
            late = cs.open_from_groups(answered, key, answer="answer")
    """
    check_key(keys)
    check_on_error(on_error, "reject")
    binary = [message] if answer is None else [message, answer]
    require(df, [], whole=[event, subscriber], binary=binary, rest=False)
    _require_store(df)
    answers = F.lit(None).cast("binary") if answer is None else column(answer)
    rows = df.select(
        column(event).cast("long").alias("event"),
        column(subscriber).cast("long").alias("subscriber"),
        column(message).alias("message"),
        answers.alias("answer"),
    )
    reject = on_error == "reject"
    return rows.groupBy("subscriber").transformWithState(
        statefulProcessor=_Opening(keys, capacity, remember, reject),
        outputStructType="event long, subscriber long, payload binary, request binary"
        + reject * ", rejected string",
        outputMode="Append",
        timeMode="None",
    )


def answer_key_requests(
    df: DataFrame,
    state: KeySource,
    *,
    request: str = "request",
    output: str = "answer",
    on_error: str = "raise",
) -> DataFrame:
    """Answer subscribers' requests for keys: adds a binary column.

    Args:
        df: has `request`, binary; NULL stays NULL.
        state: where workers find the text of the `GroupSealer.state`.
        on_error: "raise"; or "reject": a request that is refused has NULL and the reason in a
            column `rejected`.

    Raises:
        DecodeError (when the result is computed): a request is malformed, or for keys that its
            subscriber may not have.

    Example:
        .. code-block:: python

            answered = cs.answer_key_requests(missing, cs.FileKey("/run/secrets/broker"))
            # the columns of missing, and answer
    """
    check_key(state)
    check_on_error(on_error, "reject")
    require(df, [], binary=[request])
    reject = on_error == "reject"

    @F.arrow_udf("answer binary, rejected string")
    @confined
    def answer_rows(row: pa.Array) -> pa.Array:
        (requests,) = row.flatten()
        valid = is_valid(requests)
        secret = broker_state(state)
        sealer = GroupSealer(Naive(secret.subscribers), secret)
        answers: list[bytes | None] = []
        reasons: list[str | None] = []
        for asked in chosen(valid, requests)[0].to_pylist():
            answer, reason = None, None
            try:
                answer = sealer.answer(asked)
            except DecodeError as error:
                if not reject:
                    raise
                reason = str(error)
            answers.append(answer)
            reasons.append(reason)
        columns = [
            with_nulls(pa.array(answers, pa.binary()), valid),
            with_nulls(pa.array(reasons, pa.string()), valid),
        ]
        return pa.StructArray.from_arrays(columns, names=["answer", "rejected"])

    both = "__ccbps_answer"
    result = finish(df, [], answer_rows(struct([request])), both)
    dropped = [] if reject else [both]
    result = finish(result, dropped, F.col(f"{both}.answer"), output)
    return finish(result, [both], F.col(f"{both}.rejected"), "rejected") if reject else result


class _Sealing(StatefulProcessor):  # type: ignore[misc]  (without types)
    """One lane's sealer; its snapshot is the state."""

    def __init__(self, strategy: Strategy, state: KeySource, pad_to: int, reject: bool) -> None:
        self._strategy, self._state = strategy, state
        self._pad_to, self._reject = pad_to, reject

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cache: ValueState = handle.getValueState("cache", "snapshot binary")

    @confined
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
        if self._cache.exists():
            sealer.restore(bytes(self._cache.get()[0]))
        for row in sorted(rows, key=lambda row: -1 if row.event is None else row.event):
            try:
                if None in (row.event, row.members, row.payload):
                    raise ParameterError("event, members or payload is NULL")
                group = _packed(row.members, strategy.subscribers)
                if not row.members:
                    continue
                sealed = sealer.seal(row.payload, row.event, group)
            except CcbpsError as error:
                if not self._reject:
                    raise ParameterError(f"event {row.event}: {error}") from None
                yield Row(event=row.event, subscriber=None, message=None, rejected=str(error))
                continue
            extra = {"rejected": None} if self._reject else {}
            for one in sorted({*row.members}):
                yield Row(
                    event=row.event, subscriber=one, message=sealed.for_subscriber(one), **extra
                )
        self._cache.update((sealer.snapshot(),))

    def close(self) -> None:
        pass


class _Opening(StatefulProcessor):  # type: ignore[misc]  (without types)
    """One subscriber's opener; its snapshot, encrypted under the subscriber's key, is the state."""

    def __init__(self, keys: KeySource, capacity: int, remember: int, reject: bool) -> None:
        self._keys, self._reject = keys, reject
        self._sizes = capacity, remember

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cache: ValueState = handle.getValueState("cache", "snapshot binary")

    @confined
    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        (number,) = key
        capacity, remember = self._sizes
        opener = None
        if number is not None:
            own = subscriber_keys(self._keys).key(number)
            opener = GroupOpener(own, capacity=capacity, remember=remember)
        if opener is not None and self._cache.exists():
            opener.restore(bytes(self._cache.get()[0]))
        for row in sorted(rows, key=lambda row: -1 if row.event is None else row.event):
            payload, request, reason = None, None, None
            try:
                payload = _opened(opener, row)
            except MissingKeyError as missing:
                request = missing.request
            except DecodeError as error:
                if not self._reject:
                    raise DecodeError(f"event {row.event}, subscriber {number}: {error}") from None
                reason = str(error)
            extra = {"rejected": reason} if self._reject else {}
            yield Row(event=row.event, subscriber=number, payload=payload, request=request, **extra)
        if opener is not None:
            self._cache.update((opener.snapshot(),))

    def close(self) -> None:
        pass


def _opened(opener: GroupOpener | None, row: Row) -> bytes:
    if opener is None or row.message is None:
        raise DecodeError("subscriber or message is NULL")
    if row.answer is not None:
        return opener.accept(row.answer, row.message)
    return opener.open(row.message)


def _packed(members: list[int | None], subscribers: int) -> Bytes:
    bits = np.zeros(subscribers, dtype=np.bool_)
    for one in members:
        if one is None or not 0 <= one < subscribers:
            raise ParameterError(f"members must be numbers 0 .. {subscribers - 1}, got {one!r}")
        bits[one] = True
    return pack_groups(bits)


def _require_members(df: DataFrame, members: str) -> None:
    if members not in df.columns:
        raise ParameterError(f"column {members!r} is missing: df has {', '.join(df.columns)}")
    kind = df.schema[members].dataType.simpleString()
    if kind not in [f"array<{whole}>" for whole in ("tinyint", "smallint", "int", "bigint")]:
        raise ParameterError(
            f"column {members!r} must be an array of whole numbers, got {kind}; cast it first"
        )


def _require_store(df: DataFrame) -> None:
    if df.isStreaming and df.sparkSession.conf.get(_PROVIDER) != _ROCKS:
        raise ParameterError(
            f"a stream with state needs RocksDB: spark.conf.set({_PROVIDER!r}, {_ROCKS!r}) before "
            "it starts"
        )
