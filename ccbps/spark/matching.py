"""Matching: messages in, answers out, by whoever the matcher lets find out what matches.

`match` chooses by the matcher's answers; each of the functions that it chooses from has more
options:

====================  =================  ===================================  ==================
`matcher.answers`     function           decides                              a row of the result
====================  =================  ===================================  ==================
`Answers.PAIRS`       `match_pairs`      messages of one pair and round       each pair
`Answers.ROUND`       `match_pairs`      messages of one round                each pair
`Answers.ALL`         `match_all_pairs`  every event with every interest      each match
`Answers.SUBSCRIBER`  `match_own`        every event, for its own interests   each match
====================  =================  ===================================  ==================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.columnar.pairs import answer_column, examine_rows
from ccbps.columnar.reasons import refuse
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.spark.all_pairs import match_all_pairs
from ccbps.spark.frames import check_key, check_matcher, check_on_error, refuse_given
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
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Match event messages with interest messages by the function for this matcher's answers.

    That function is `match_pairs`, `match_all_pairs` or `match_own`, with the columns' ordinary
    names. Call it where you need its other options.

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
        events: has the columns that the function needs.
        interests: likewise; None where the subscriber finds out: its key holds its interests.
        matcher: public.
        key: where the workers find the broker's or the subscriber's `RoleKey`; None with rounds.
        on_error: see the function; "drop" is for results whose rows are matches.

    Returns:
        What the function returns.

    Raises:
        ParameterError: `interests` or `key` does not apply to this matcher, or is missing; or as
            the function, which raises other errors, too.
    """
    check_matcher(matcher)
    if matcher.answers is Answers.SUBSCRIBER:
        refuse_given(matcher, matcher.answers, interests=interests)
        return match_own(events, matcher, check_key(key), on_error=on_error)
    if interests is None:
        raise ParameterError(
            f"interests=None is for matchers whose subscribers find out what matches; "
            f"{type(matcher).__name__} has a broker answer"
        )
    if matcher.answers is Answers.ALL:
        return match_all_pairs(events, interests, matcher, check_key(key), on_error=on_error)
    refuse_given(matcher, matcher.answers, key=key)
    return match_pairs(events, interests, matcher, on_error=on_error)  # type: ignore[arg-type]


def match_column(
    event: ColumnOrName,
    interest: ColumnOrName,
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    on_error: Literal["raise", "reject"] = "raise",
) -> Column:
    """Decide the event and interest message of the same row, in a BOOLEAN column.

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
    """Return the function of two columns of messages."""
    check_matcher(matcher)
    reject = check_on_error(on_error)
    if matcher.answers is Answers.SUBSCRIBER:
        refuse_given(matcher, matcher.answers, interest="interest_message")
    if matcher.keying is Keying.ROUNDS:
        refuse_given(matcher, matcher.keying, key=key)
    else:
        check_key(key)

    @F.arrow_udf("matched boolean, rejected string" if reject else "boolean")
    @on_worker
    def decide(event: pa.Array, interest: pa.Array) -> pa.Array:
        examined = examine_rows(matcher, key, event, interest)
        if not reject:
            refuse(examined[2], (), ())
        return answer_column(examined, reject=reject)

    return decide
