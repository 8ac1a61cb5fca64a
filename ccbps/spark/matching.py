"""The broker's side: join messages of one pair and round, and decide. Nothing secret comes here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import functions as F

from ccbps.arrow import binary_rows, is_valid
from ccbps.errors import ParameterError
from ccbps.matching import Matcher
from ccbps.spark.causes import cause_texts, check_on_error, refuse
from ccbps.spark.frames import check_matcher, check_once, column, finish, require
from ccbps.wire import Cause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName

__all__ = ["match", "match_column"]

_ONCE = (
    "each pair and round has one message in {}. Drop what arrived twice, for example with "
    "dropDuplicates(); whatever is left was encoded twice under one round, and shows more than a "
    "match"
)
_REPEATED = "the pair and round occurs more than once"


def match(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    *,
    on: Sequence[str] = ("subscription", "round"),
    event: str = "event_message",
    interest: str = "interest_message",
    output: str = "matched",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Match event messages with interest messages of the same pair and round.

    Example:
        .. code-block:: python

            matches = cs.match(events, interests, matcher)
            # subscription, round, matched: true in round 0, false in round 1

    Args:
        events: has the columns `on` and `event`.
        interests: has the columns `on` and `interest`.
        matcher: public.
        on: what names a pair and round in both; an equi-join. Each side has one message per pair
            and round.
        event: binary column of `events`.
        interest: binary column of `interests`.
        output: name of the boolean column.
        on_error: "raise" refuses messages of a pair and round that one side has already, and fails
            the job at the first malformed row, which it names by its `on` columns; "reject" gives
            such rows NULL and the cause in a string column "rejected", and leaves the other rows'
            answers as they are.

    Returns:
        the joined rows without the messages, with `output` (NULL where a message is NULL) and,
        with "reject", "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing or not binary; or a DataFrame is streaming.
        RandomnessReuseError: with "raise", a pair and round occurs twice in `events` or in
            `interests`: messages came twice, or their one-time randomness was used twice. Runs one
            job on the `on` columns of each to find out.
        DecodeError (as the cause of Spark's error, when the result is computed): see `on_error`.
    """
    check_on_error(on_error)
    check_matcher(matcher, Matcher)
    ids = list(on)
    require(events, ids, binary=[event], name="events")
    require(interests, ids, binary=[interest], name="interests")
    if event == interest:
        raise ParameterError(f"both messages are called {event!r}; rename one column")
    shared = (set(events.columns) & set(interests.columns)) - set(ids)
    if shared:
        raise ParameterError(
            f"column {min(shared)!r} is in both DataFrames; drop it in one of them"
        )
    for df, name in ((events, "events"), (interests, "interests")):
        if df.isStreaming:
            raise ParameterError(
                f"{name} is a streaming DataFrame, in which a pair and round that occurs twice "
                "cannot be found: call this in foreachBatch"
            )

    if on_error == "raise":
        for df, name in ((events, "events"), (interests, "interests")):
            check_once(df, ids, _ONCE.format(name))
        joined = events.join(interests, on=ids, how="inner")
        arguments = [column(name) for name in (event, interest, *ids)]

        @F.arrow_udf("boolean")
        def decide(event: pa.Array, interest: pa.Array, *columns: pa.Array) -> pa.Array:
            answers, valid, causes = _examine(matcher, event, interest)
            refuse(causes, ids, columns)
            return pa.array(answers, mask=~valid)

        return finish(joined, [event, interest], decide(*arguments), output)

    @F.arrow_udf("matched boolean, rejected string")
    def decide_or_reject(event: pa.Array, interest: pa.Array, repeated: pa.Array) -> pa.Array:
        answers, valid, causes = _examine(matcher, event, interest)
        twice = repeated.is_valid()
        return pa.StructArray.from_arrays(
            [
                pa.array(answers, mask=~valid | (causes != 0) | _bools(twice)),
                pc.if_else(twice, _REPEATED, cause_texts(causes)),
            ],
            names=["matched", "rejected"],
        )

    both, many = "__ccbps_decision", "__ccbps_repeated"
    # Few or none: Spark sends them to all tasks.
    keys = [column(name) for name in ids]
    repeated = [
        df.groupBy(*keys).agg(F.count("*").alias(many)).where(column(many) > 1).select(*keys)
        for df in (events, interests)
    ]
    rows = repeated[0].unionByName(repeated[1]).distinct().withColumn(many, F.lit(True))
    joined = events.join(interests, on=ids, how="inner").join(rows, on=ids, how="left")
    arguments = [column(name) for name in (event, interest, many)]
    result = finish(joined, [event, interest, many], decide_or_reject(*arguments), both)
    result = finish(result, [], F.col(f"{both}.matched"), output)
    return finish(result, [both], F.col(f"{both}.rejected"), "rejected")


def _bools(array: pa.Array) -> NDArray[np.bool_]:
    out: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return out


def match_column(event: ColumnOrName, interest: ColumnOrName, matcher: Matcher) -> Column:
    """BOOLEAN column: does the event message match the interest message of the same row?

    For DataFrames that hold both already; `match` joins them. NULL where a message is NULL. It sees
    no rounds, so the caller must know whether one occurs twice.

    Example:
        .. code-block:: python

            both = events.join(interests, ["subscription", "round"])
            matched = cs.match_column("event_message", "interest_message", matcher)
            answers = both.select("round", matched.alias("matched"))

    Raises:
        DecodeError (as the cause of Spark's error, when computed): a malformed message; names its
            row by position in the Arrow batch.
    """
    check_matcher(matcher, Matcher)

    @F.arrow_udf("boolean")
    def decide(event: pa.Array, interest: pa.Array) -> pa.Array:
        answers, valid, causes = _examine(matcher, event, interest)
        refuse(causes, (), ())
        return pa.array(answers, mask=~valid)

    return decide(event, interest)


def _examine(
    matcher: Matcher, events: pa.Array, interests: pa.Array
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.uint8]]:
    """Answers, rows without NULL, and `Cause`s of a batch; a NULL row has no cause."""
    valid = is_valid(events, interests)
    event_rows, event_good = binary_rows(events, matcher.event_bytes)
    interest_rows, interest_good = binary_rows(interests, matcher.interest_bytes)
    answers, causes = matcher.broker().examine(event_rows, interest_rows)
    causes[~interest_good] = Cause.INTEREST_WIDTH
    causes[~event_good] = Cause.EVENT_WIDTH
    causes[~valid] = Cause.NONE
    return answers, valid, causes
