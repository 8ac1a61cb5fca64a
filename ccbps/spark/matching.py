"""Matching: messages in, answers out.

What comes out follows from the matcher's answers:

====================  ===================================  =========================  ============
`matcher.answers`     decides                              a row of the result        needs
====================  ===================================  =========================  ============
`Answers.PAIRS`       messages of one pair and round, or,  each pair, and `matched`   no key
                      of a broadcast, of one round
`Answers.ALL`         every event with every interest      each match                 broker's key
`Answers.SUBSCRIBER`  every event, for its own interests   each match                 its role key
====================  ===================================  =========================  ============
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.columnar.pairs import examine_rows
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.kinds import Answers, Keying
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import is_broadcast
from ccbps.spark.all_pairs import match_all_pairs
from ccbps.spark.frames import check_key, check_matcher, check_on_error, refuse_alike, refuse_given
from ccbps.spark.pairs import match_pairs
from ccbps.spark.sessions import match_own
from ccbps.spark.workers import on_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql._typing import ColumnOrName


def match(
    events: DataFrame,
    interests: DataFrame | None,
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    on: Sequence[str] | None = None,
    subscription: str | None = None,
    topic: str | None = None,
    strategy: Literal["auto", "closure", "blocks", "topic"] | None = None,
    event: str = "event_message",
    interest: str | None = None,
    output: str | None = None,
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Match event messages with interest messages, by whoever finds out what matches.

    Example:
        Pairs of a round each; every event with every interest; a subscriber's own:

        .. code-block:: python

            matches = cs.match(events, interests, matcher)
            # subscription, round, matched: true in round 0, false in round 1
            found = cs.match(sent, kept, tags, cs.FileKey("/run/secrets/broker-role"))
            # subscription, once for each event that it matches
            read = cs.match(numbered, None, topics, cs.FileKey("/run/secrets/alice-topics"))
            # round, interest: one row for each event and interest that match

        An event for all interests of its round, in a matcher such as `BroadcastMatch`:

        .. code-block:: python

            answers = cs.match(one_each_round, interests, broadcast)
            # round, subscription, matched

    Args:
        events: has `event`; and `on`, for pairs. Its other columns are kept.
        interests: has `interest`; and `on` for pairs, `subscription` for all. For pairs, its other
            columns are kept. None where the subscriber finds out: its key holds its interests. A
            broadcast's events are counted now, and up to 32 MiB of them collected by the driver, so
            that no event is copied to each interest; more are joined as those of pairs are.
        matcher: public.
        key: where the workers find the broker's or the subscriber's `RoleKey`; None for pairs.
        on: for pairs, what names a pair and round in both, by an equi-join; None for
            ("subscription", "round"), and with a broadcast for ("round",). Each side has one
            message per pair and round; a broadcast's events have one per round.
        subscription: for all, and with a broadcast, string column of `interests` that names one;
            None for "subscription".
        topic: for all, a column of both DataFrames that the broker sees, such as `topic_tokens`
            makes: only rows of equal topics are matched, and those where it is NULL with all.
        strategy: for all, how events and interests meet. "closure": the driver collects interests,
            and workers get all of them. "blocks": both are packed in blocks, and crossed. "topic":
            blocks of one topic are joined. None for "auto": by topic where there is one; else as a
            closure, if interests (which are counted now) have at most 32 MiB, or in blocks.
        event: binary column of `events`.
        interest: binary column of `interests`; None for "interest_message".
        output: for pairs, name of the boolean column; None for "matched".
        on_error: "raise" fails the job at the first malformed message, and names its row. For
            pairs, it also refuses messages of a pair and round that one side has already; "reject"
            gives such rows NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are. Where rows are matches, "drop" lets malformed messages match
            nothing; so does "reject", which gives each a row with the cause in "rejected", and NULL
            for what it did not meet: `subscription` or `interest` of an event, and the columns of
            `events` of an interest (which has no such row where `events` is a stream, since it
            comes again with each micro-batch). Messages of users who were revoked match nothing
            either way.

    Returns:
        For pairs, the joined rows without the messages, with `output` (NULL where a message is
        NULL) and, with "reject", "rejected" (NULL where nothing is wrong). For all, a row for each
        match: `subscription` and the columns of `events` without the message. For a subscriber, a
        row for each match: the columns of `events` without the message; `interest`, long, the
        interest's place among those it encoded; and, where the matcher has payloads, the binary
        `payload`. A message that is NULL matches nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames, or names of
            the result differ in case only (unless ``spark.sql.caseSensitive`` is on); an argument
            does not apply to this matcher, or is missing.
        RandomnessReuseError (as the cause of Spark's error, when the result is computed; at once
            for a broadcast, for what is joined with a stream, and unless columns of `on` are whole
            numbers, or of one type in both, a string without a collation, binary, boolean, date or
            timestamp; that runs one job on each side):
            for pairs, with "raise", a pair and round occurs twice in `events` or in `interests`:
            messages came twice, or their one-time randomness was used twice. When the result is
            computed, this is seen of pairs and rounds that both sides have, and of rows that are
            taken, if only some are, as by `first()`. A stream itself is not looked through: what
            comes twice in it is answered twice.
        DecodeError (as the cause of Spark's error, when the result is computed; at once for
            interests of the wrong width that the driver collects): see `on_error`.
    """
    check_matcher(matcher)
    answers = matcher.answers
    message = "interest_message" if interest is None else interest
    if answers is Answers.SUBSCRIBER:
        refuse_given(
            matcher,
            answers,
            interests=interests,
            interest=interest,
            subscription=subscription,
            topic=topic,
            strategy=strategy,
            on=on,
            output=output,
        )
        kept, made = _without(events, event), ["interest", "payload", "rejected"]
        refuse_alike(events, {"events": kept, "the result": made})
        return match_own(events, matcher, check_key(key), event, on_error)
    if interests is None:
        raise ParameterError(
            f"interests=None is for matchers whose subscribers find out what matches; "
            f"{type(matcher).__name__} has a broker answer"
        )
    if answers is Answers.ALL:
        refuse_given(matcher, answers, on=on, output=output)
        label = "subscription" if subscription is None else subscription
        source = check_key(key)
        how = "auto" if strategy is None else strategy
        refuse_alike(events, {"events": _without(events, event), "interests": [label]})
        return match_all_pairs(
            events, interests, matcher, source, label, event, message, topic, how, on_error
        )
    refuse_given(matcher, answers, key=key, topic=topic, strategy=strategy)
    name = "matched" if output is None else output
    if is_broadcast(matcher):
        labels = ["subscription" if subscription is None else subscription]
        ids = ["round"] if on is None else list(on)
    else:
        refuse_given(matcher, answers, subscription=subscription)
        labels, ids = [], ["subscription", "round"] if on is None else list(on)
    refuse_alike(events, {"events": events.columns, "interests": interests.columns})
    return match_pairs(events, interests, matcher, labels, ids, event, message, name, on_error)


def _without(df: DataFrame, name: str) -> list[str]:
    """The columns that are kept beside a message."""
    return [one for one in df.columns if one != name]


def match_column(
    event: ColumnOrName,
    interest: ColumnOrName,
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    on_error: Literal["raise", "reject"] = "raise",
) -> Column:
    """BOOLEAN column: does the event message match the interest message of the same row?

    For DataFrames that hold both already; `match` joins them. NULL where a message is NULL. It sees
    no rounds, so the caller must know whether one occurs twice.

    Example:
        .. code-block:: python

            both = events.join(interests, ["subscription", "round"])
            matched = cs.match_column("event_message", "interest_message", matcher)
            answers = both.select("round", matched.alias("matched"))

    Args:
        event: binary.
        interest: binary.
        matcher: public; one with a broker.
        key: where the workers find the broker's `RoleKey`; None with rounds.
        on_error: "raise" fails the job at the first malformed message; with "reject" the column is
            a STRUCT of `matched`, NULL where a message is malformed, and `rejected`, a string that
            says why, or NULL.

    Raises:
        ParameterError: no broker answers, or the key does not apply or is missing; or, when
            computed, a column is neither binary nor NULL.
        DecodeError (as the cause of Spark's error, when computed): with "raise", a malformed
            message; names its row by position in the Arrow batch.
    """
    return _decider(matcher, key, on_error)(event, interest)


def register(
    spark: SparkSession,
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    name: str = "ccbps_match",
    on_error: Literal["raise", "reject"] = "raise",
) -> None:
    """Teach a session's SQL `match_column` for a matcher, as a function of two BINARY columns.

    Example:
        .. code-block:: python

            cs.register(spark, matcher)
            events.createOrReplaceTempView("events")
            interests.createOrReplaceTempView("interests")
            answered = spark.sql(
                "SELECT subscription, round, "
                "ccbps_match(event_message, interest_message) AS matched "
                "FROM events JOIN interests USING (subscription, round)"
            )

    Args:
        matcher: public; one with a broker.
        key: where the workers find the broker's `RoleKey`; None with rounds.
        name: of the function; another matcher needs another one.
        on_error: as in `match_column`.

    Raises:
        ParameterError: the name is no identifier; or as `match_column` does.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ParameterError(f"name must be an identifier, such as 'ccbps_match', got {name!r}")
    spark.udf.register(name, _decider(matcher, key, on_error))


def _decider(matcher: Matcher, key: KeySource | None, on_error: str) -> Any:
    """The function of two columns."""
    check_matcher(matcher)
    check_on_error(on_error)
    reject = on_error == "reject"
    if matcher.answers is Answers.SUBSCRIBER:
        refuse_given(matcher, matcher.answers, interest="interest_message")
    if matcher.keying is Keying.ROUNDS:
        refuse_given(matcher, matcher.keying, key=key)
    else:
        check_key(key)

    @F.arrow_udf("matched boolean, rejected string" if reject else "boolean")
    @on_worker
    def decide(event: pa.Array, interest: pa.Array) -> pa.Array:
        answers, valid, causes = examine_rows(matcher, key, event, interest)
        if not reject:
            refuse(causes, (), ())
        known = pa.array(answers, mask=~valid | (causes != 0))
        if not reject:
            return known
        return pa.StructArray.from_arrays(
            [known, cause_texts(causes)], names=["matched", "rejected"]
        )

    return decide
