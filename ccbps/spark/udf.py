"""Functions of columns: encode and match inside `select`, `where`, `expr` and SQL.

Each call makes a function that takes columns and gives a column. `spark.udf.register` gives it a
name in SQL. The workers find keys by name, as everywhere in `ccbps.spark`, and no plan holds one.

A function sees a batch of rows, and nothing of other batches. So it cannot tell whether a
subscription and round, or a number, occurs twice in a DataFrame. `encode_events`,
`encode_interests` and `match` tell, and refuse numbers that change when a task runs again. Use them
unless rows are numbered once, in a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ccbps.checks import flag
from ccbps.columnar.functions import event_column, interest_column
from ccbps.columnar.pairs import answer_column, examine_rows
from ccbps.columnar.reasons import refuse
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.spark.columns import row_function
from ccbps.spark.frames import (
    check_key,
    check_matcher,
    check_on_error,
    refuse_given,
    refuse_quoting,
)
from ccbps.spark.workers import on_worker

_MESSAGE = {False: "binary", True: "message binary, rejected string"}


def _check(matcher: Matcher) -> None:
    """Refuse anything but a matcher whose messages are one column."""
    check_matcher(matcher)
    if matcher.keying is Keying.BROKERS:
        raise ParameterError(
            f"a function of columns has one message, and {type(matcher).__name__} has a part for "
            "each of three brokers: call encode_events, encode_interests and match_shares"
        )


def match_udf(
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    on_error: Literal["raise", "reject"] = "raise",
) -> Callable[..., Column]:
    """Make a function that decides the event and interest message of a row.

    Example:
        .. code-block:: python

            decide = cs.match_udf(matcher)
            both = events.join(interests, ["subscription", "round"])
            answers = both.select("round", decide("event_message", "interest_message").alias("hit"))

            spark.udf.register("ccbps_match", decide)
            both.createOrReplaceTempView("both_sides")
            answered = spark.sql(
                "SELECT round FROM both_sides WHERE ccbps_match(event_message, interest_message)"
            )

    Args:
        matcher: the matcher; public. A broker answers for it.
        key: source of the broker's `RoleKey` for the workers; None with rounds.
        on_error: "raise" fails the job at the first malformed message. With "reject" the result is
            a STRUCT of `matched`, NULL where a message is malformed, and `rejected`, the reason as
            a string, or NULL.

    Returns:
        A function of two BINARY columns, the event message and the interest message. Its result is
        BOOLEAN, and NULL where a message is NULL. If rows are also filtered by it, Spark may
        compute it twice.

    Raises:
        ParameterError: no broker answers, or the key does not apply or is missing; or, when
            computed, a column is neither binary nor NULL.
        DecodeError: (as the cause of Spark's error, when computed) with "raise", a message is
            malformed. The error names its row by position in the Arrow batch.
    """
    _check(matcher)
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

    return decide  # type: ignore[no-any-return]


def encode_event_udf(
    matcher: Matcher,
    key: KeySource,
    *,
    on_error: Literal["raise", "reject"] = "raise",
) -> Callable[..., Column]:
    """Make a function that encodes the event of a row.

    Example:
        .. code-block:: python

            encode = cs.encode_event_udf(matcher, key)
            record = F.struct(*matcher.schema)
            sent = quotes.select("round", encode("subscription", "round", record).alias("message"))

            spark.udf.register("encode_event", encode)
            encoded = quotes.selectExpr(
                "round", "encode_event(subscription, round, struct(issue, price)) AS message"
            )

    Args:
        matcher: the matcher; public.
        key: source of the publisher's master seed for the workers; without rounds, of its
            `RoleKey`.
        on_error: "raise" fails the job at the first row that cannot be encoded. With "reject" the
            result is a STRUCT of `message`, NULL for such a row, and `rejected`, the reason as a
            string, or NULL.

    Returns:
        A function of columns, in this order: with rounds, the subscription (a string), unless
        events are broadcast, and the round; with sessions, the event's number; a STRUCT with the
        schema's attributes, found by their names, whatever other fields there are; and the payload
        (BINARY), if the matcher has payloads. Its result is BINARY, and NULL where a column is
        NULL. A NULL in an attribute is a value.

    Raises:
        ParameterError: when computed, a column is missing or of the wrong type; or a number is
            negative.
        RandomnessReuseError: when computed, a (subscription, round) or a number occurs twice in a
            batch.
        EventError: when computed, with "raise", a row cannot be encoded.
    """
    _check(matcher)
    check_key(key)
    reject = check_on_error(on_error)

    @row_function(_MESSAGE[reject])
    def encode(*columns: pa.Array) -> pa.Array:
        return event_column(matcher, key, columns, reject=reject)

    return encode


def encode_interest_udf(
    matcher: Matcher,
    key: KeySource,
    *,
    double_quoted_strings: bool = False,
    on_error: Literal["raise", "reject"] = "raise",
) -> Callable[..., Column]:
    """Make a function that encodes the interest of a row.

    Example:
        .. code-block:: python

            encode = cs.encode_interest_udf(matcher, key)
            asked = wanted.select("round", encode("subscription", "round", "predicate"))

            spark.udf.register("encode_interest", encode)
            ask = "encode_interest(subscription, round, 'price < 120') AS interest_message"
            cheap = wanted.selectExpr("subscription", "round", ask)

    Args:
        matcher: the matcher; public.
        key: source of the subscribers' seeds for the workers; without rounds, of a subscriber's
            `RoleKey`.
        double_quoted_strings: True to read text in double quotes as a string, as Spark does; see
            `Schema.parse`.
        on_error: "raise" fails the job at the first row that cannot be encoded. With "reject" the
            result is a STRUCT of `message`, NULL for such a row, and `rejected`, the reason as a
            string, or NULL.

    Returns:
        A function of columns, in this order: with rounds, the subscription (a string) and the
        round; and the predicate as a string or, if the matcher has private constants, a STRUCT of
        them, found by their names. Its result is BINARY, and NULL where a column is NULL.

    Raises:
        ParameterError: subscribers make requests, and encode no rows; or, when computed, a column
            is missing or of the wrong type.
        RandomnessReuseError: when computed, a (subscription, round) occurs twice in a batch.
        PredicateError: when computed, with "raise", a predicate cannot be used.
    """
    _check(matcher)
    check_key(key)
    reject = check_on_error(on_error)
    flag("double_quoted_strings", double_quoted_strings)
    if matcher.keying is Keying.SESSION:
        raise ParameterError(
            f"{type(matcher).__name__} has sessions: a subscriber role encodes its requests "
            "itself, on the driver, and remembers their secrets; its key is for match"
        )
    refuse_quoting(matcher, double_quoted_strings)

    @row_function(_MESSAGE[reject])
    def encode(*columns: pa.Array) -> pa.Array:
        return interest_column(
            matcher, key, columns, double_quoted_strings=double_quoted_strings, reject=reject
        )

    return encode
