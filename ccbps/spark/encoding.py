"""Encoders: attributes or predicates in, messages out.

The other columns that a row needs follow from the matcher's keying:

=================  ======================  ======================  =============================
`matcher.keying`   an event's row          an interest's row       the key source holds
=================  ======================  ======================  =============================
`Keying.ROUNDS`    subscription and round  subscription and round  seeds
`Keying.SERVER`    nothing                 subscription            a key of the key server's
`Keying.BROKERS`   nothing                 subscription            the `ClientKey`
`Keying.SESSION`   a number, as round      (roles make requests)   the publisher role's key
=================  ======================  ======================  =============================

With rounds, a subscription is the label of the pair whose seed is used. One event and one predicate
may use a (subscription, round), once each. The events of a broadcast are for all subscriptions, and
have a round alone. With sessions, one event uses a number.

Duplicates within a DataFrame are detected, and none of them is encoded. The caller must keep track
of the rounds and numbers that earlier jobs used; a sequence number that never goes back suffices.
The input must be stable: number rows once, in a table. A ledger does both: it allots rounds to
events, in the task that encodes them, and remembers them.

With three brokers, a message is three columns, one for each broker. Broker 0 must not see those of
the other two: with its keys and their columns it reads everything. A message that is computed again
differs: write the rows once, and hand out the columns of that table.

Of the other columns, only those that `keep` names stay, in the clear. Nothing else in a DataFrame
travels to the broker unasked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ccbps.checks import instance
from ccbps.columnar.addressing import allotted_rounds
from ccbps.columnar.encoding import event_messages, interest_messages
from ccbps.columnar.roles import for_subscribers
from ccbps.columnar.sessions import payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import REUSABLE, Answers, Keying
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import RemoteLedger
from ccbps.shares.answers import COMMITMENT_BYTES
from ccbps.shares.clients import HEAD_BYTES
from ccbps.spark.columns import (
    AGAIN,
    check_once,
    column,
    encode_rows,
    mark_repeated,
    row_function,
)
from ccbps.spark.frames import (
    PLAN_BYTES,
    WHOLE,
    check_keep,
    check_key,
    check_matcher,
    check_on_error,
    check_partitions,
    refuse_floats,
    refuse_given,
    refuse_quoting,
    require,
)
from ccbps.spark.stability import refuse_unstable

_ONCE: Final = "each pair and round encodes one event and one predicate, once"
_ONE_EVENT: Final = "each number is for one event, once"
_REFUSED: Final = "__ccbps_refused"
_ALLOTTED: Final = "__ccbps_allotted"
COMMITMENT: Final = "commitment"
_FIRST: Final = "__ccbps_first"
_WHOLE: Final = "__ccbps_whole"
_TOGETHER: Final = 1 << 14
"""Number of rounds of a row that stay together when rows are spread."""


def encode_events(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str | None = None,
    round: str | None = None,
    payload: str | None = None,
    ledger: EventLedger | RemoteLedger | None = None,
    labels: Sequence[str] | None = None,
    event: str | None = None,
    keep: Sequence[str] = (),
    output: str | None = None,
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode events, a row for each; with rounds, a row for each recipient, unless broadcast.

    Example:
        With rounds, with a key server, and with sessions:

        .. code-block:: python

            events = cs.encode_events(quotes, matcher, key)
            # subscription, round, event_message
            sent = cs.encode_events(quotes, tags, cs.FileKey("/run/secrets/publisher-role"))
            # event_message
            numbered = cs.encode_events(quotes, topics, cs.FileKey("/run/secrets/publisher-topics"))
            # round, event_message

        With rounds that a ledger allots, to events that have ids:

        .. code-block:: python

            ledger = cs.EventLedger("/data/quotes.ledger", rounds=1_000_000)
            named = quotes.selectExpr("round AS id", *schema)
            allotted = cs.encode_events(
                named, matcher, key, ledger=ledger, labels=["alice", "bob"], event="id", keep=["id"]
            )
            # subscription, round, id, event_message

    Args:
        df: the rows, with the schema's attributes and the columns that the arguments name.
        matcher: the matcher; public.
        key: source of the publisher's master seed for the workers; without rounds, of its
            `RoleKey`; with three brokers, of its `ClientKey`.
        subscription: string column with the label of the pair; None for "subscription". It applies
            with rounds only, and not to a broadcast. With a ledger it is a new column.
        round: column with the round, a whole number; with sessions, with the event's number, which
            is public. None for "round". It applies with rounds and sessions only. With a ledger it
            is a new column.
        payload: binary column of values of at most `payload_bytes`. It applies only with sessions
            whose matcher has `payload_bytes`, and is required there. Elsewhere see `seal_payloads`.
        ledger: ledger that allots a round to each event. It remembers the round with a digest of
            the event, so a task, a job or a stream that runs again writes the same messages. It
            applies with rounds only. All workers must reach its file; or, for a `RemoteLedger`, the
            server that has it.
        labels: subscriptions that events are encoded for. They apply with a ledger only, and not to
            a broadcast.
        event: column that names each event once and for all, a whole number or a string; None for
            "event". It applies with a ledger only. Errors show its values.
        keep: names of other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column; None for "event_message". With three brokers, the
            beginning of the names of three columns; None for "broker".
        on_error: "raise" fails the job at the first row that cannot be encoded: a record that does
            not fit the schema or, with sessions, that has none of the publisher's topics or too
            long a payload. "reject" gives such a row NULL and the reason, which shows no value, in
            a string column "rejected". It also does so for rows with a NULL, a negative number or a
            pair for which the key has no seed, and for all rows of a (subscription, round) or a
            number that occurs several times.

    Returns:
        The columns `subscription` and `round` where they apply, those that `keep` names, and a
        binary message column, which is NULL where the subscription, the round or the payload is.
        With three brokers there are `broker_0`, `broker_1` and `broker_2` instead, one for each;
        and, where no broker learns the answers, "commitment", which is for subscribers (see
        `open_shares`). With "reject", also "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; an argument does not
            apply to this matcher; `keep` names an attribute or the payload; or, when the result is
            computed, a number is negative.
        RandomnessReuseError: with "raise" and no ledger, a (subscription, round) or a number occurs
            twice; a job checks this now. Or, when the result is computed, an event's id was used
            for other content, or a number may have been used before the role's key was saved.
        LedgerError: the ledger cannot be used; or, when the result is computed, rounds run out.
        KeyMismatchError (when the result is computed): the server of a ledger lacks the key of the
            seed.
        EventError (when the result is computed): with "raise", a row cannot be encoded. The error
            names it by subscription and round.
    """
    reject = check_on_error(on_error)
    check_key(key)
    check_matcher(matcher)
    public = _event_ids(matcher, subscription, round)
    payloads = _payloads(matcher, payload)
    attributes = list(matcher.schema)
    private = [*attributes, *payloads]
    ids = _apart(public, private)
    refuse_floats(df, [name for name in attributes if name in df.columns])
    if ledger is None:
        for name, value in (("labels", labels), ("event", event)):
            if value is not None:
                raise ParameterError(
                    f"{name}= is for a ledger, which allots rounds: give ledger=, too"
                )
        kept = check_keep(keep, ids, private)
        numbers, texts = ids[-1:], ids[:-1]
        require(df, [*attributes, *kept], whole=numbers, text=texts, binary=payloads, rest=False)
        for argument, name in public.items():
            refuse_unstable(df, name, argument)
    else:
        df, kept = _address(df, matcher, key, ids, ledger, labels, event, keep, reject)

    def encode(row: pa.Array) -> pa.Array:
        return event_messages(
            matcher, key, row, ids, payload=bool(payloads), once=ledger is None, reject=reject
        )

    committed = for_subscribers(matcher)
    column_name, parts = _outputs(matcher, output, "event_message", kept, committed=committed)
    result = encode_rows(
        df,
        encode,
        [*ids, *payloads, *attributes],
        kept,
        column_name,
        reject=reject,
        once=ids if ledger is None else (),
        purpose=_ONCE if ids[1:] else _ONE_EVENT,
    )
    if parts:
        return _split(result, parts, matcher.event_bytes)
    if ledger is None or not reject:
        return result
    # The ledger's reason, or else the encoder's.
    why = F.coalesce(F.col(_REFUSED), F.col("rejected")).alias("rejected")
    others = [name for name in result.columns if name not in (_REFUSED, "rejected")]
    return result.select(*map(column, others), why)


def encode_interests(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    round: str | None = None,
    rounds: range | None = None,
    partitions: int | None = None,
    predicate: str | None = None,
    constants: Mapping[str, str] | None = None,
    double_quoted_strings: bool = False,
    keep: Sequence[str] = (),
    output: str | None = None,
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode subscriptions, a row for each; with rounds, a row for each subscription and round.

    A matcher with sessions has no such rows: its subscriber role makes requests, and remembers
    their secrets.

    Example:
        With rounds, and with a key server:

        .. code-block:: python

            interests = cs.encode_interests(wanted, matcher, key)
            # subscription, round, interest_message
            wishes = wanted.select("subscription", "predicate").distinct()
            ahead = cs.encode_interests(wishes, matcher, key, rounds=range(5000, 6000))
            # the same columns, a thousand rows for each subscription
            kept = cs.encode_interests(
                wishes, tags, cs.FileKey("/run/secrets/subscriber-role")
            )
            # subscription, interest_message

    Args:
        df: the rows, with the columns that the arguments name.
        matcher: the matcher; public.
        key: source of the subscribers' seeds (or of the master they come from) for the workers;
            without rounds, of a subscriber's `RoleKey`; with three brokers, of its `ClientKey`.
        subscription: string column that names the subscription; with rounds, the label of the pair.
            It is public, and is kept.
        round: column with the round, a whole number; None for "round". It applies with rounds only.
            With `rounds` it is a new column.
        rounds: rounds to encode each row for, none of which an earlier job has used. They apply
            with rounds only. Each subscription has one row then.
        partitions: number of tasks over which `rounds` are spread. None keeps the partitions of
            `df`: a single subscription is then one task.
        predicate: column with SQL text, where an interest is a predicate; None for "predicate".
        constants: names of the columns that hold the matcher's `private_names`; by default, columns
            of the same names.
        double_quoted_strings: True to read text in double quotes as a string, as Spark does. Names
            are then quoted with backticks only; see `Schema.parse`.
        keep: names of other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column; None for "interest_message". With three brokers, the
            beginning of the names of three columns; None for "broker".
        on_error: "raise" fails the job at the first row that cannot be encoded. "reject" gives it
            NULL and the reason, which shows no value, in a string column "rejected". It also does
            so for rows with a NULL, a negative round or a pair for which the key has no seed, and
            for all rows of a (subscription, round) that occurs several times.

    Returns:
        The column `subscription`, `round` where it applies, the columns that `keep` names, and a
        binary message column, which is NULL where the subscription, the round, the predicate or a
        constant is. With three brokers there are `broker_0`, `broker_1` and `broker_2` instead, one
        for each. With "reject", also "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; an argument does not
            apply to this matcher; `keep` names a column of the predicate; or `round` comes from
            rand(), monotonically_increasing_id() or the like, which change when a task runs again.
        RandomnessReuseError: with "raise", a (subscription, round) occurs twice; a job checks this.
        PredicateError (when the result is computed): with "raise", a predicate cannot be used. The
            error names its subscription and round, and shows no name or constant of the predicate
            but the schema's own names.
    """
    reject = check_on_error(on_error)
    check_key(key)
    check_matcher(matcher)
    if matcher.keying is Keying.SESSION:
        raise ParameterError(
            f"{type(matcher).__name__} has sessions: a subscriber role encodes its requests "
            "itself, on the driver, and remembers their secrets; its key is for match"
        )
    public = {"subscription": subscription}
    if matcher.keying is Keying.ROUNDS:
        public["round"] = "round" if round is None else round
    else:
        refuse_given(matcher, matcher.keying, round=round, rounds=rounds)
    partitions = check_partitions(partitions)
    if partitions is not None and rounds is None:
        raise ParameterError("partitions= is for rounds=, which it spreads over tasks")
    private = interest_sources(matcher, predicate, constants)
    refuse_quoting(matcher, double_quoted_strings)
    ids = _apart(public, private)
    kept = check_keep(keep, ids, private)
    # Predicates are text; constants are of any type.
    texts = [subscription] + private * (matcher.private_names is None)
    given = ids if rounds is None else ids[:1]
    there = [name for name in kept if name in given or name not in ids]
    require(df, [*private, *there], whole=given[1:], text=texts, rest=False)
    refuse_floats(df, private)
    rows = df
    if ids[1:]:
        for argument, name in zip(public, given, strict=False):
            refuse_unstable(df, name, argument)
        if reject:
            df = mark_repeated(df, given, _ONCE)
    if rounds is not None:
        df = _ahead(df, [*there, *private], ids[1], rounds, partitions)

    def encode(row: pa.Array) -> pa.Array:
        return interest_messages(
            matcher, key, row, ids, double_quoted_strings=double_quoted_strings, reject=reject
        )

    column_name, parts = _outputs(matcher, output, "interest_message", kept)
    result = encode_rows(df, encode, [*ids, *private], kept, column_name, reject=reject)
    if ids[1:] and not reject:
        check_once(rows, given, _ONCE)
    return _split(result, parts, matcher.interest_bytes) if parts else result


def _outputs(
    matcher: Matcher,
    output: str | None,
    usual: str,
    kept: Sequence[str],
    *,
    committed: bool = False,
) -> tuple[str, list[str]]:
    """Return the column to encode into and, with three brokers, those that it is split into."""
    if matcher.keying is not Keying.BROKERS:
        return usual if output is None else output, []
    parts = broker_columns(output) + [COMMITMENT] * committed
    for name in parts:
        if name.lower() in {other.lower() for other in kept}:
            raise ParameterError(f"output={output!r}: the DataFrame has a column {name!r}")
    return _WHOLE, parts


def broker_columns(output: str | None = None) -> list[str]:
    """Return the names of the columns for brokers 0, 1 and 2."""
    return [f"{'broker' if output is None else output}_{party}" for party in range(PARTIES)]


def _split(df: DataFrame, parts: Sequence[str], width: int) -> DataFrame:
    """Split whole messages into a column for each broker: for broker 0 the heads.

    A further column takes the bytes after the message, whose length is `width`.
    """
    whole = column(_WHOLE)
    pieces = [(1, HEAD_BYTES), *[(1, width)] * (PARTIES - 1), (1 + width, COMMITMENT_BYTES)]
    named = [
        F.substring(whole, start, length).alias(name)
        for name, (start, length) in zip(parts, pieces, strict=False)
    ]
    place = df.columns.index(_WHOLE)
    before, after = df.columns[:place], df.columns[place + 1 :]
    return df.select(*map(column, before), *named, *map(column, after))


def _event_ids(matcher: Matcher, subscription: str | None, round: str | None) -> dict[str, str]:
    """Return the columns that name an event's row, by the arguments that name them."""
    number = {"round": "round" if round is None else round}
    if matcher.answers is Answers.PAIRS:
        return {"subscription": "subscription" if subscription is None else subscription, **number}
    refuse_given(matcher, matcher.keying, subscription=subscription)
    if matcher.keying not in REUSABLE:
        return number
    refuse_given(matcher, matcher.keying, round=round)
    return {}


def _payloads(matcher: Matcher, payload: str | None) -> list[str]:
    """Return the column of payloads, or none."""
    if matcher.keying is not Keying.SESSION:
        refuse_given(matcher, matcher.keying, payload=payload)
        return []
    most = payload_bytes(matcher)
    if (payload is None) == bool(most):
        wanted = "a binary column of payloads" if most else "None"
        raise ParameterError(
            f"payload must be {wanted}, as the matcher has payload_bytes={most}; got {payload!r}"
        )
    return [] if payload is None else [payload]


def interest_sources(
    matcher: Matcher, predicate: str | None, constants: Mapping[str, str] | None
) -> list[str]:
    """Return the columns that an interest is made of."""
    names = matcher.private_names
    if names is None:
        why = "its interests are predicates, without private constants"
        refuse_given(matcher, why, constants=constants)
        return ["predicate" if predicate is None else predicate]
    listed, constants = ", ".join(names) or "none", constants or {}
    why = f"an interest is values of its private constants, {listed}; name their columns in "
    refuse_given(matcher, why + "constants=", predicate=predicate)
    if unknown := {*constants} - {*names}:
        raise ParameterError(
            f"constants names {min(unknown)!r}; the matcher's private constants are {listed}"
        )
    return [constants.get(name, name) for name in names]


def _apart(public: Mapping[str, str], private: Iterable[str]) -> list[str]:
    """Return the public columns, none of which is also to be encoded."""
    for argument, name in public.items():
        if name in private:
            raise ParameterError(
                f"{argument}={name!r} is also a column to be encoded; use another column for "
                f"{argument}="
            )
    return list(public.values())


def _address(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    ids: Sequence[str],
    ledger: EventLedger | RemoteLedger,
    labels: Sequence[str] | None,
    event: str | None,
    keep: Sequence[str],
    reject: bool,
) -> tuple[DataFrame, list[str]]:
    """Give each event a round, and repeat it for each label.

    Returns:
        A DataFrame with the columns `ids`, `keep` and the schema's; and the names of those that
        stay. With `reject`, also a column that stays, `_REFUSED`: the reason why an event has no
        round. Such an event has one row, whose `ids` are NULL.

    Raises:
        ParameterError: an argument does not fit the matcher or the DataFrame.
    """
    if matcher.keying is not Keying.ROUNDS:
        refuse_given(matcher, matcher.keying, ledger=ledger, labels=labels, event=event)
    attributes, name = list(matcher.schema), "event" if event is None else event
    kept = check_keep(keep, [], [*attributes, *ids])
    require(df, [*attributes, *kept], rest=False)
    instance("ledger", ledger, (EventLedger, RemoteLedger))
    kind = df.schema[name].dataType.typeName() if name in df.columns else "not there"
    if kind not in (*WHOLE, "string"):
        raise ParameterError(
            f"event={name!r} must be a column of whole numbers or strings that names each event "
            f"once and for all; it is {kind}"
        )
    refuse_unstable(df, name, "event")
    if matcher.answers is Answers.ROUND:
        refuse_given(matcher, Keying.ROUNDS, labels=labels)
    else:
        labels = checked_labels(labels)
    if isinstance(ledger, EventLedger):
        ledger.foretell()  # workers say it, too, but nobody may read what they say

    @row_function("round bigint, rejected string" if reject else "bigint")
    def allot(row: pa.Array) -> pa.Array:
        return allotted_rounds(matcher, key, ledger, row, name, reject=reject)

    record = [column(attribute).alias(str(place)) for place, attribute in enumerate(attributes)]
    row = F.struct(column(name).cast("string").alias("event"), *record)
    others = [column(other) for other in (*kept, *attributes)]
    allotted = df.select(*others, allot(row).alias(_ALLOTTED))
    number = F.col(f"{_ALLOTTED}.round" if reject else _ALLOTTED)
    columns = [number.alias(ids[-1]), *others]
    if labels is not None:
        # As one constant, however many there are.
        every = F.from_json(F.lit(json.dumps(labels, ensure_ascii=False)), "array<string>")
        columns.insert(0, F.explode_outer(F.when(number.isNotNull(), every)).alias(ids[0]))
    if reject:
        columns.append(F.col(f"{_ALLOTTED}.rejected").alias(_REFUSED))
    return allotted.select(*columns), [*ids, *kept, *[_REFUSED] * reject]


def checked_labels(labels: Sequence[str] | None) -> list[str]:
    """Return the labels, each once; refuse labels that a plan cannot hold."""
    if isinstance(labels, str) or not labels or not all(map(_is_label, labels)):
        raise ParameterError(
            "labels must name the subscriptions that events are encoded for, such as "
            f"['alice/cheap', 'bob/all'], got {labels!r}"
        )
    size = sum(len(label.encode()) for label in labels)
    if size > PLAN_BYTES:
        raise ParameterError(
            f"labels= takes at most {PLAN_BYTES >> 20} MiB of names, got {size >> 20} MiB: they "
            "travel with the plan, which is one gRPC message in Spark Connect. Encode for some of "
            "them at a time, or take BroadcastMatch, whose events have no labels"
        )
    return list(dict.fromkeys(labels))


def _is_label(label: object) -> bool:
    """Return whether a plan can hold a label: no half of a character, not too long for Java."""
    return (
        isinstance(label, str)
        and len(label) <= 1 << 20
        and label == label.encode("utf-8", "replace").decode()
    )


def check_rounds(rounds: range) -> None:
    """Refuse anything but a range of rounds that follow one another."""
    if (
        not isinstance(rounds, range)
        or rounds.step != 1
        or not 0 <= rounds.start < rounds.stop <= 1 << 63
    ):
        raise ParameterError(
            f"rounds must be a range of rounds from 0 on, such as range(5000, 6000), got {rounds!r}"
        )


def _ahead(
    df: DataFrame, columns: Sequence[str], name: str, rounds: range, partitions: int | None
) -> DataFrame:
    """Repeat some columns of each row for each of `rounds`, which become the second column."""
    check_rounds(rounds)
    if name in df.columns:
        raise ParameterError(
            f"round={name!r} is a new column with rounds=, and the DataFrame has one of that name"
        )
    count = rounds.stop - rounds.start
    size = min(_TOGETHER, -(-count // (partitions or 1)))
    last = F.lit(rounds.stop - 1).cast("long")
    # In two steps, so that no array is long, and few rows travel between tasks.
    starts = F.sequence(F.lit(rounds.start).cast("long"), last, F.lit(size).cast("long"))
    kept = [column(other) for other in (*columns, *[AGAIN] * (AGAIN in df.columns))]
    some = df.select(*kept, F.explode(starts).alias(_FIRST))
    some = some if partitions is None else some.repartition(partitions)
    until = column(_FIRST) + F.least(F.lit(size - 1), last - column(_FIRST))
    every = F.explode(F.sequence(column(_FIRST), until)).alias(name)
    return some.select(kept[0], every, *kept[1:])
