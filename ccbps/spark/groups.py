"""Delivery to groups in DataFrames, batch or streaming: sealed as a strategy plans it, and opened.

Workers find the broker's state and the subscribers' keys through a `KeySource`. They read it again
for every micro-batch, so a join or a leave takes effect with the next one. The docstring of
`ccbps.spark.group_state` describes the state that Spark keeps in its state store.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from ccbps.checks import instance, whole
from ccbps.ciphers.payloads import PAD_TO
from ccbps.ciphers.signatures import check_identity
from ccbps.columnar.reasons import no_reasons, with_reasons
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.plans import Strategy
from ccbps.delivery.strategies import Naive
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.sources import KeySource, broker_state
from ccbps.spark.columns import (
    AGAIN,
    NUMBER_REPEATED,
    check_once,
    column,
    encode_rows,
    mark_repeated,
)
from ccbps.spark.frames import WHOLE, check_key, check_on_error, require
from ccbps.spark.stability import refuse_unstable

CAPACITY: Final = 1 << 12
REMEMBER: Final = 1 << 12
_ONE_EVENT: Final = "each number names one event, always"
_MEMBER_REPEATED: Final = "the event and member occur more than once"
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
    sign: KeySource | None = None,
    on_error: str = "raise",
) -> DataFrame:
    """Encrypt each payload for its group, with as few encryptions as the strategy needs.

    Each lane is one sealer with a cache of its own. Equal groups are in one lane. A stream that is
    started again with another strategy begins with an empty cache: groups' keys are sent once more.

    Args:
        df: the rows, batch or streaming: one for each event, or one for each event and member. In
            the second case the rows of an event that come in one micro-batch are its group. The
            result has no columns but those below.
        strategy: the strategy, for as many subscribers as the state. It travels in the plan, so
            take a new one, which remembers no group.
        state: source of the text of the `GroupSealer.state`, the broker's keys, for the workers.
        event: column of whole numbers, each of which always names the same event.
        members: column of the subscribers' numbers: an array for each event, or one number for each
            event and member.
        payload: binary or string column of payloads.
        as_of: column with the broker's epoch (`GroupSealer.since`) in which the group was
            determined. Without it, a number that was reassigned meanwhile means the newcomer, also
            where a micro-batch is repeated.
        lanes: number of sealers that work side by side. With a row for each member, an event is in
            one lane, and equal groups may be in several.
        pad_to: block size in bytes. Payloads are padded to a multiple of it, since lengths leak
            information.
        sign: source of the text of a `SigningKey`, for the workers: up to 256 events of a lane and
            micro-batch are signed together. Without it, a member of a group can forge events.
        on_error: "raise" fails the job at the first row that cannot be sealed. "reject" gives such
            a row no message, and the reason in a column `rejected`. In a batch it does so for each
            row whose event number (and member) occurs more than once, too; to find out, `df` is
            computed twice.

    Returns:
        A row for each event and member: `event`, `subscriber`, the member's number, and `message`,
        which that subscriber opens. Members who left, or joined after `as_of`, are left out; with
        "reject" they have a row with the reason.

    Raises:
        ParameterError: a column is missing or of the wrong type; or the stream's state store is not
            RocksDB; or, when the result is computed, a row cannot be sealed.
        RandomnessReuseError: with "raise", an event number (and member) occurs twice in a batch; a
            job checks this. A stream is not searched, not even with "reject": an event that comes
            twice in it is sealed twice, and each receiver opens the first copy that it gets. Drop
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
    if sign is not None:
        check_key(sign)
    reject = check_on_error(on_error)
    instance("strategy", strategy, Strategy)
    lanes = whole("lanes", lanes, 1)
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
    if not (df.isStreaming or reject):
        check_once(df, ids, _ONE_EVENT)
    elif not df.isStreaming:
        marked = mark_repeated(df, ids, _ONE_EVENT)
        member = column(members) if pairs else F.lit(None)
        aside = marked.where(column(AGAIN)).select(
            column(event).cast("long").alias("event"),
            member.cast("long").alias("subscriber"),
            F.lit(None).cast("binary").alias("message"),
            F.lit(_MEMBER_REPEATED if pairs else NUMBER_REPEATED).alias("rejected"),
        )
        df = marked.where(~column(AGAIN))
    rows = df.select(
        column(event).cast("long").alias("event"),
        group.cast("array<long>").alias("members"),
        column(payload).cast("binary").alias("payload"),
        (F.lit(None) if as_of is None else column(as_of)).cast("long").alias("as_of"),
        F.pmod(F.xxhash64(lane), F.lit(lanes)).alias("lane"),
    )
    # This import loads pandas.
    from ccbps.spark.group_state import Sealing

    sealing = Sealing(strategy, state, pad_to, reject, pairs, sign)
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
    verify: bytes | None = None,
    on_error: str = "raise",
) -> DataFrame:
    """Open messages of `seal_for_groups`, each subscriber with a bounded cache of keys.

    Args:
        df: the rows, batch or streaming, one for each event and subscriber. The result has no
            columns but those below.
        keys: source of the text of a `SubscriberKey` or a `SubscriberRing` for the workers.
        event: column of the events' numbers.
        subscriber: column of the subscribers' numbers.
        message: binary column of sealed messages.
        answer: binary column with answers of `answer_key_requests` to these messages, or NULL.
        capacity: number of keys that each subscriber keeps.
        remember: number of events that each subscriber remembers to refuse replays.
        verify: identity of the sender (`SigningKey.identity`), which must have signed each event;
            None to take events from whoever has a key of the group.
        on_error: "raise" fails the job at the first message that cannot be opened, and drops copies
            of events that were opened. "reject" gives each of these NULL and the reason in a column
            `rejected`.

    Returns:
        The columns `event`, `subscriber`, `payload`, and `request`, a binary request for the key
        where the subscriber does not hold it. Let the broker answer it, and open the message again
        with the answer.

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
    if verify is not None:
        check_identity(verify)
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

    opening = Opening(keys, capacity, remember, reject, verify)
    return _with_state(rows, "subscriber", opening, "payload binary, request binary", reject)


def answer_key_requests(
    df: DataFrame,
    state: KeySource,
    *,
    request: str = "request",
    output: str = "answer",
    on_error: str = "raise",
) -> DataFrame:
    """Answer subscribers' requests for keys in a new binary column.

    Args:
        df: the rows. All columns are kept.
        state: source of the text of the `GroupSealer.state` for the workers.
        request: binary column of requests. NULL stays NULL.
        output: name of the column of answers.
        on_error: "raise" fails the job at the first request that is refused. "reject" gives it NULL
            and the reason in a column `rejected`.

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
    reject = check_on_error(on_error)
    require(df, [], binary=[request])

    def answer_rows(row: pa.Array) -> pa.Array:
        (requests,) = row.flatten()
        secret = broker_state(state)
        sealer = GroupSealer(Naive(secret.subscribers), secret)
        answers: list[bytes | None] = [None] * len(row)
        reasons = no_reasons(len(row))
        for place, message in enumerate(requests.to_pylist()):
            try:
                answers[place] = None if message is None else sealer.answer(message)
            except DecodeError as error:
                if not reject:
                    raise
                reasons[place] = str(error)
        return with_reasons(pa.array(answers, pa.binary()), reasons if reject else None)

    return encode_rows(df, answer_rows, [request], df.columns, output, reject=reject)


def _with_state(df: DataFrame, by: str, processor: Any, columns: str, reject: bool) -> DataFrame:
    """Run a processor on the rows of each value of `by`; Spark keeps its state."""
    kind = f"event long, subscriber long, {columns}" + reject * ", rejected string"
    return df.groupBy(by).transformWithState(
        statefulProcessor=processor, outputStructType=kind, outputMode="Append", timeMode="None"
    )


def _are_pairs(df: DataFrame, members: str) -> bool:
    """Return whether a row holds one member, and not an array of them."""
    if members not in df.columns:
        raise ParameterError(f"column {members!r} is missing: df has {', '.join(df.columns)}")
    kind = df.schema[members].dataType
    number = kind.elementType if isinstance(kind, ArrayType) else kind
    if number.typeName() not in WHOLE:
        raise ParameterError(
            f"column {members!r} must be an array of whole numbers, or one, got "
            f"{kind.simpleString()}; cast it first"
        )
    return number is kind


def _require_store(df: DataFrame) -> None:
    """Refuse a stream without RocksDB, and make Spark ready to keep state.

    Raises:
        ParameterError: the stream's state would not be in RocksDB.
    """
    # Spark 4.1.0 starts its coordinator of state here, and batches need it, too.
    _ = df.sparkSession.streams
    if df.isStreaming and df.sparkSession.conf.get(_PROVIDER) != _ROCKS:
        raise ParameterError(
            f"a stream with state needs RocksDB: spark.conf.set({_PROVIDER!r}, {_ROCKS!r}) before "
            "it starts"
        )
