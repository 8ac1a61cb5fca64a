"""The broker's side: join messages of one pair and round, and decide. Nothing secret comes here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F

from ccbps.errors import ParameterError
from ccbps.matching import Matcher
from ccbps.spark.arrow import binary_rows, is_valid
from ccbps.spark.causes import cause_texts, check_on_error, refuse
from ccbps.spark.frames import check_matcher, column, finish, require
from ccbps.wire import Cause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName

__all__ = ["match", "match_column"]


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
        on: what names a pair and round in both; an equi-join.
        event: binary column of `events`.
        interest: binary column of `interests`.
        output: name of the boolean column.
        on_error: "raise" fails the job and names the first malformed row by its `on` columns;
            "reject" gives it NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are.

    Returns:
        the joined rows without the messages, with `output` (NULL where a message is NULL) and,
        with "reject", "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, or no binary column.
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
    joined = events.join(interests, on=ids, how="inner")
    arguments = [column(name) for name in (event, interest, *ids)]

    if on_error == "raise":

        @F.arrow_udf("boolean")
        def decide(event: pa.Array, interest: pa.Array, *columns: pa.Array) -> pa.Array:
            answers, valid, causes = _examine(matcher, event, interest)
            refuse(causes, ids, columns)
            return pa.array(answers, mask=~valid)

        return finish(joined, [event, interest], decide(*arguments), output)

    @F.arrow_udf("matched boolean, rejected string")
    def decide_or_reject(event: pa.Array, interest: pa.Array) -> pa.Array:
        answers, valid, causes = _examine(matcher, event, interest)
        return pa.StructArray.from_arrays(
            [pa.array(answers, mask=~valid | (causes != 0)), cause_texts(causes)],
            names=["matched", "rejected"],
        )

    both = "__ccbps_decision"
    result = finish(joined, [event, interest], decide_or_reject(*arguments[:2]), both)
    result = finish(result, [], F.col(f"{both}.matched"), output)
    return finish(result, [both], F.col(f"{both}.rejected"), "rejected")


def match_column(event: ColumnOrName, interest: ColumnOrName, matcher: Matcher) -> Column:
    """BOOLEAN column: does the event message match the interest message of the same row?

    For DataFrames that hold both already; `match` joins them. NULL where a message is NULL.

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
