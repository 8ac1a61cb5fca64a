"""Delivery to groups in DataFrames, batch or streaming: sealed as a strategy plans it, and opened.

Workers find the broker's state and subscribers' keys through a `KeySource`, and read it again for
every micro-batch, so who joins or leaves is known from the next one on. What Spark keeps in its
state store is in `ccbps.spark.group_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.arrow import chosen, is_valid, with_nulls
from ccbps.ciphers.payloads import PAD_TO
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.plans import Strategy
from ccbps.delivery.strategies import Naive
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.sources import KeySource, broker_state
from ccbps.spark.addressing import refuse_unstable
from ccbps.spark.columns import AGAIN, NUMBER_REPEATED, column, finish_struct, row_function, struct
from ccbps.spark.frames import check_key, check_on_error, require
from ccbps.spark.repeated import check_once, mark_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CAPACITY: Final = 1 << 12
REMEMBER: Final = 1 << 12
_ONE_EVENT: Final = "each number names one event, always"
_MEMBER_REPEATED: Final = "the event and member occur more than once"
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
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
    as_of: str | None = None,
    lanes: int = 1,
    pad_to: int = PAD_TO,
    on_error: str = "raise",
) -> DataFrame:
    """Encrypt each payload for its group, with as few encryptions as the strategy needs.

    Each lane is one sealer with a cache of its own. Equal groups are in one lane. A stream that is
    started again with another strategy begins with an empty cache: groups' keys are sent once more.

    Args:
        df: a row for each event, batch or streaming: `event`, a whole number that always names the
            same event; `members`, an array of subscribers' numbers; and `payload`, binary or
            string. Or a row for each event and member, whose number is `members`: rows of one event
            that come in one micro-batch are its group. The result has none of its other columns.
        strategy: plans; of as many subscribers as the state. It travels in the plan, so take a new
            one, which remembers no group.
        state: where workers find the text of the `GroupSealer.state`: the broker's keys.
        as_of: a column with the broker's epoch (`GroupSealer.since`) in which the group was found.
            Without it a number that was given to somebody else meanwhile means the newcomer, also
            where a micro-batch is repeated.
        lanes: sealers that work side by side. With a row for each member, an event is in one lane,
            and equal groups may be in several.
        pad_to: payloads are padded to a multiple of this many bytes, as lengths leak information.
        on_error: "raise"; or "reject": a row that cannot be sealed gives one row with the reason in
            a column `rejected`, and no message. In a batch, so does each row whose event number
            (and member) occurs more than once; to find out, `df` is computed twice.

    Returns:
        a row for each event and member: `event`, `subscriber`, the member's number, and `message`,
        which that subscriber opens. Members who left, or joined after `as_of`, are left out; with
        "reject" they have a row with the reason.

    Raises:
        ParameterError: a column is missing or of the wrong type; or the stream's state store is not
            RocksDB. When the result is computed: a row cannot be sealed.
        RandomnessReuseError: with "raise", an event number (and member) occurs twice in a batch.
            Runs one job to find out. A stream is not looked through, with "reject" neither: what
            comes twice in it is sealed twice, and each receiver opens the first that it gets. Drop
            copies before, for example with ``dropDuplicatesWithinWatermark``.

    Example:
        .. code-block:: python

            from ccbps.delivery import SimpleCache

            groups = spark.createDataFrame(
                [(0, [0, 1], "up"), (1, [1], "down")],
                "event long, members array<int>, payload string",
            )
            state = cs.FileKey("/run/secrets/delivery-state")  # of a sealer that 3 have joined
            sealed = cs.seal_for_groups(groups, SimpleCache(3, capacity=1000), state)
            # event, subscriber, message
    """
    check_key(state)
    reject = check_on_error(on_error)
    if not isinstance(strategy, Strategy):
        raise ParameterError(f"strategy must be a Strategy, got {type(strategy).__name__}")
    if type(lanes) is not int or lanes < 1:
        raise ParameterError(f"lanes must be a whole number, at least 1, got {lanes!r}")
    GroupSealer(Naive(1), pad_to=pad_to)
    require(df, [payload], whole=[event] if as_of is None else [event, as_of], rest=False)
    refuse_unstable(df, event, "event")
    pairs = _are_pairs(df, members)
    _require_store(df)
    if pairs:
        group, lane = F.array(column(members)), column(event)
    else:
        group = column(members)
        lane = F.array_sort(F.array_distinct(group))
    ids, aside = [event, *[members] * pairs], None
    if not df.isStreaming:
        if reject:
            df = mark_repeated(df, ids, _ONE_EVENT)
            aside, df = _set_aside(df, event, members if pairs else None), df.where(~column(AGAIN))
        else:
            check_once(df, ids, _ONE_EVENT)
    rows = df.select(
        column(event).cast("long").alias("event"),
        group.cast("array<long>").alias("members"),
        column(payload).cast("binary").alias("payload"),
        (F.lit(None) if as_of is None else column(as_of)).cast("long").alias("as_of"),
        F.pmod(F.xxhash64(lane), F.lit(lanes)).alias("lane"),
    )
    # This import loads pandas.
    from ccbps.spark.group_state import Sealing

    sealing = Sealing(strategy, state, pad_to, reject, pairs)
    sealed = _with_state(rows, "lane", sealing, "message binary", reject)
    return sealed if aside is None else sealed.unionByName(aside)


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
            column `rejected`. Copies of events that were opened are dropped, or rejected.

    Returns:
        `event`, `subscriber`, `payload`, and `request`: binary where the subscriber does not hold
        the key. Then let the broker answer, and open the message again with its answer.

    Raises:
        ParameterError: a column is missing or of the wrong type; or the stream's state store is not
            RocksDB.
        DecodeError (when the result is computed): a message was altered, or its subscriber has no
            key here.

    Example:
        .. code-block:: python

            own = cs.FileKey("/run/secrets/delivery-keys")     # one, or a ring of them
            received = cs.open_from_groups(sealed, own)
            # event, subscriber, payload, request
    """
    check_key(keys)
    reject = check_on_error(on_error)
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
    # This import loads pandas.
    from ccbps.spark.group_state import Opening

    opening = Opening(keys, capacity, remember, reject)
    return _with_state(rows, "subscriber", opening, "payload binary, request binary", reject)


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

            missing = received.where("request IS NOT NULL").join(sealed, ["event", "subscriber"])
            answered = cs.answer_key_requests(missing, state)
            # the columns of missing, and answer
            late = cs.open_from_groups(answered, own, answer="answer")
    """
    check_key(state)
    check_on_error(on_error)
    require(df, [], binary=[request])
    reject = on_error == "reject"

    @row_function("answer binary, rejected string")
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

    answered = finish_struct(df, [], answer_rows(struct([request])), "answer", output)
    return answered if reject else answered.drop("rejected")


def _with_state(df: DataFrame, by: str, processor: Any, columns: str, reject: bool) -> DataFrame:
    """Run a processor on the rows of each value of `by`; Spark keeps its state."""
    kind = f"event long, subscriber long, {columns}" + reject * ", rejected string"
    return df.groupBy(by).transformWithState(
        statefulProcessor=processor, outputStructType=kind, outputMode="Append", timeMode="None"
    )


def _set_aside(df: DataFrame, event: str, member: str | None) -> DataFrame:
    """Return a row of the result for each row that `mark_repeated` has marked."""
    why = NUMBER_REPEATED if member is None else _MEMBER_REPEATED
    return df.where(column(AGAIN)).select(
        column(event).cast("long").alias("event"),
        (F.lit(None) if member is None else column(member)).cast("long").alias("subscriber"),
        F.lit(None).cast("binary").alias("message"),
        F.lit(why).alias("rejected"),
    )


def _are_pairs(df: DataFrame, members: str) -> bool:
    """Return whether a row holds one member, and not an array of them."""
    if members not in df.columns:
        raise ParameterError(f"column {members!r} is missing: df has {', '.join(df.columns)}")
    kind = df.schema[members].dataType.simpleString()
    if kind in _WHOLE:
        return True
    if kind not in [f"array<{whole}>" for whole in _WHOLE]:
        raise ParameterError(
            f"column {members!r} must be an array of whole numbers, or one, got {kind}; cast it "
            "first"
        )
    return False


def _require_store(df: DataFrame) -> None:
    if df.isStreaming and df.sparkSession.conf.get(_PROVIDER) != _ROCKS:
        raise ParameterError(
            f"a stream with state needs RocksDB: spark.conf.set({_PROVIDER!r}, {_ROCKS!r}) before "
            "it starts"
        )
