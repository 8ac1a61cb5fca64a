"""Pairs: messages of one subscription and round, joined and decided. Nothing secret comes here.

A broadcast has one event for all interests of a round. Copied to each of them by a join, it would
be most of what is moved; so the workers get all events, if these are few, and look them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ccbps.arrays import Bools, Bytes
from ccbps.arrow import row_name
from ccbps.columnar.broadcast import RoundEvents
from ccbps.columnar.pairs import examine_rows
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import (
    AGAIN,
    EXACT_TYPES,
    PLAN_BYTES,
    REPEATED,
    check_on_error,
    check_once,
    column,
    finish,
    mark_repeated,
    require,
    row_function,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["match_pairs"]

_ONCE = (
    "each pair and round has one message in {}. Drop what arrived twice, for example with "
    "dropDuplicates(); whatever is left was encoded twice under one round, and shows more than a "
    "match"
)
_AGAIN: Final = {side: f"{AGAIN}_in_{side}" for side in ("events", "interests")}


def match_pairs(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    labels: list[str],
    ids: list[str],
    event: str,
    interest: str,
    output: str,
    on_error: str,
) -> DataFrame:
    """See `ccbps.spark.match`; `ids` are its `on`, and `labels` tell interests of a round apart."""
    check_on_error(on_error, "reject")
    require(events, ids, binary=[event], name="events")
    require(interests, ids, text=labels, binary=[interest], name="interests")
    if event == interest:
        raise ParameterError(f"both messages are called {event!r}; rename one column")
    shared = (set(events.columns) & set(interests.columns)) - set(ids)
    if shared:
        raise ParameterError(
            f"column {min(shared)!r} is in both DataFrames; drop it in one of them"
        )
    sides = {"events": (events, ids), "interests": (interests, [*labels, *ids])}
    # What comes twice in a stream would be known with its last row.
    whole = {name: side for name, side in sides.items() if not side[0].isStreaming}
    # Counted beside the join, which needs the same shuffle and order: that is nearly free. What is
    # joined with a stream would be counted in each of its batches, and a broadcast's interests lose
    # the order by rounds, in which they are decided soonest.
    beside = len(whole) == len(sides) and not labels
    if beside:
        events, interests = (
            mark_repeated(df, keys, _ONCE.format(name), _AGAIN[name])
            for name, (df, keys) in whole.items()
        )
    elif on_error == "raise":
        for name, (df, keys) in whole.items():
            check_once(df, keys, _ONCE.format(name))

    at_workers = None
    if labels and "events" in whole:
        at_workers = _collected(events, interests, matcher, ids, event)
    if at_workers is None:
        messages, joined = [event, interest], events.join(interests, on=ids, how="inner")
    else:
        others = events.select(*[column(name) for name in events.columns if name != event])
        messages, joined = [interest], F.broadcast(others).join(interests, on=ids, how="inner")

    def examine(columns: Sequence[pa.Array]) -> tuple[Bools, Bools, Bytes]:
        """Of messages, and what names their round."""
        if at_workers is None:
            return examine_rows(matcher, None, *columns[:2])
        return at_workers.examine(columns[0], columns[1 : 1 + len(ids)])

    if not beside and on_error == "reject":
        for name, (df, keys) in whole.items():
            # Few or none: Spark sends them to all tasks.
            named = [column(key) for key in keys]
            again = (F.count("*") > 1).alias(_AGAIN[name])
            rows = df.groupBy(*named).agg(again).where(column(_AGAIN[name]))
            joined = joined.join(rows, on=keys, how="left")
    marks = {name: mark for name, mark in _AGAIN.items() if mark in joined.columns}
    # The side that has the pair and round more than once.
    twice = F.coalesce(
        *[F.when(column(mark), F.lit(name)) for name, mark in marks.items()],
        F.lit(None).cast("string"),
    )
    dropped = [event, interest, *marks.values()]
    names = [*ids, *labels]
    arguments = [*[column(name) for name in (*messages, *names)], twice]

    if on_error == "raise":

        @row_function("boolean")
        def decide(*columns: pa.Array) -> pa.Array:
            answers, valid, causes = examine(columns)
            named = columns[len(messages) : -1]
            _refuse_repeated(columns[-1], names, named)
            refuse(causes, names, named)
            return pa.array(answers, mask=~valid)

        return finish(joined, dropped, decide(*arguments), output)

    @row_function("matched boolean, rejected string")
    def decide_or_reject(*columns: pa.Array) -> pa.Array:
        answers, valid, causes = examine(columns)
        repeated = columns[-1].is_valid()
        unsure = (causes != 0) | repeated.to_numpy(zero_copy_only=False)
        return pa.StructArray.from_arrays(
            [
                pa.array(answers, mask=~valid | unsure),
                pc.if_else(repeated, REPEATED, cause_texts(causes)),
            ],
            names=["matched", "rejected"],
        )

    both = "__ccbps_decision"
    result = finish(joined, dropped, decide_or_reject(*arguments), both)
    result = finish(result, [], F.col(f"{both}.matched"), output)
    return finish(result, [both], F.col(f"{both}.rejected"), "rejected")


def _refuse_repeated(sides: pa.Array, names: Sequence[str], ids: Sequence[pa.Array]) -> None:
    """Raise an error that names the first row of which one of the sides has several."""
    if sides.null_count < len(sides):
        row = sides.is_valid().index(True).as_py()
        side = sides[row].as_py()
        raise RandomnessReuseError(
            f"{row_name(names, ids, row)} occurs more than once: {_ONCE.format(side)}"
        )


def _collected(
    events: DataFrame, interests: DataFrame, matcher: Matcher, ids: list[str], event: str
) -> RoundEvents | None:
    """Events that travel to the workers with the plan, unless they are too many for it, or rounds
    have names that Arrow might compare in another way than Spark."""
    kinds = {df.schema[name].dataType.simpleString() for df in (events, interests) for name in ids}
    if not kinds <= EXACT_TYPES:
        return None
    whole = events.select(*[column(name) for name in (*ids, event)])
    for name in ids:
        whole = whole.where(column(name).isNotNull())
    # Counted without the messages, which are perhaps encoded only when they are asked for.
    if whole.select(column(ids[0])).count() * matcher.event_bytes > PLAN_BYTES:
        return None
    columns = [one.combine_chunks() for one in whole.toArrow().columns]
    return RoundEvents(matcher, tuple(columns[:-1]), columns[-1])
