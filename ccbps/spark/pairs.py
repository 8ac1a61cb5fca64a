"""Pairs: messages of one subscription and round, joined and decided. Nothing secret comes here.

A broadcast has one event for all interests of a round. Copied to each of them by a join, it would
be most of what is moved; so the workers get all events, if these are few, and look them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ccbps.arrays import Bools, Bytes
from ccbps.arrow import row_name
from ccbps.columnar.broadcast import RoundEvents
from ccbps.columnar.pairs import examine_rows, with_repeated
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import AGAIN, REPEATED, column, finish, row_function
from ccbps.spark.frames import PLAN_BYTES, check_on_error, require
from ccbps.spark.repeated import check_once, has_exact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ONCE = (
    "each pair and round has one message in {}. Drop what arrived twice, for example with "
    "dropDuplicates(); whatever is left was encoded twice under one round, and shows more than a "
    "match"
)


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
    check_on_error(on_error)
    require(events, ids, binary=[event], name="events")
    require(interests, ids, text=labels, binary=[interest], name="interests")
    if not ids:
        raise ParameterError("on=[] names no column: name what a pair and round are told apart by")
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
    # A merge join yields rows in the order of ids, in which those that occur again are neighbours:
    # to compare them is nearly free. What is joined with a stream has no order across batches, and
    # a broadcast's interests keep the order by rounds, in which they are decided soonest.
    ordered = len(whole) == len(sides) and not labels and has_exact(events, interests, ids)
    if not ordered and on_error == "raise":
        for name, (df, keys) in whole.items():
            check_once(df, keys, _ONCE.format(name))

    at_workers, messages = None, [event, interest]
    if labels and "events" in whole:
        at_workers = _collected(events, interests, matcher, ids, event)
    if at_workers is not None:
        messages = [interest]
        others = events.select(*[column(name) for name in events.columns if name != event])
        joined = F.broadcast(others).join(interests, on=ids, how="inner")
    elif ordered:
        # Spark splits no partition that was asked for, and with it equal ids. Whatever it does, for
        # hints of the caller, settings or ids that are constants: rows are together, and in order,
        # after the join. Behind a merge join of what was asked for, it leaves both steps out.
        keys = [column(name) for name in ids]
        left, right = (df.repartition(*keys).hint("merge") for df in (events, interests))
        joined = left.join(right, on=ids, how="inner")
        joined = joined.repartition(*keys).sortWithinPartitions(*keys)
    else:
        joined = events.join(interests, on=ids, how="inner")

    def examine(columns: Sequence[pa.Array]) -> tuple[Bools, Bools, Bytes]:
        """Of messages, and what names their round."""
        if at_workers is None:
            return examine_rows(matcher, None, *columns[:2])
        return at_workers.examine(columns[0], columns[1 : 1 + len(ids)])

    repeated, marks = F.lit(False), []
    if not ordered and on_error == "reject":
        for name, (df, keys) in whole.items():
            # Few or none: Spark sends them to all tasks.
            marks.append(f"{AGAIN}_in_{name}")
            again = (F.count("*") > 1).alias(marks[-1])
            rows = df.groupBy(*map(column, keys)).agg(again).where(column(marks[-1]))
            joined = joined.join(rows, on=keys, how="left")
            repeated = repeated | F.coalesce(column(marks[-1]), F.lit(False))
    dropped, names = [event, interest, *marks], [*ids, *labels]
    arguments = [column(name) for name in (*messages, *names)]
    arguments += [repeated] * (not ordered)

    def marked(
        batches: Iterable[tuple[pa.Array, ...]],
    ) -> Iterable[tuple[Sequence[pa.Array], Bools]]:
        """Messages and names; and rows whose pair and round occurs more than once."""
        if ordered:
            return with_repeated(batches, len(messages))
        return ((batch[:-1], batch[-1].to_numpy(zero_copy_only=False)) for batch in batches)

    if on_error == "raise":

        @row_function("boolean")
        def decide(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            for columns, again in marked(batches):
                named = columns[len(messages) :]
                _refuse_repeated(again, columns, names, named)
                answers, valid, causes = examine(columns)
                refuse(causes, names, named)
                yield pa.array(answers, mask=~valid)

        return finish(joined, dropped, decide(*arguments), output)

    @row_function("matched boolean, rejected string")
    def decide_or_reject(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for columns, again in marked(batches):
            answers, valid, causes = examine(columns)
            yield pa.StructArray.from_arrays(
                [
                    pa.array(answers, mask=~valid | (causes != 0) | again),
                    pc.if_else(pa.array(again), REPEATED, cause_texts(causes)),
                ],
                names=["matched", "rejected"],
            )

    both = "__ccbps_decision"
    result = finish(joined, dropped, decide_or_reject(*arguments), both)
    result = finish(result, [], F.col(f"{both}.matched"), output)
    return finish(result, [both], F.col(f"{both}.rejected"), "rejected")


def _refuse_repeated(
    repeated: Bools, columns: Sequence[pa.Array], names: Sequence[str], ids: Sequence[pa.Array]
) -> None:
    """Raise an error that names the first row with the ids of the next one, and the side where
    their messages differ; what came twice is the same in both rows, whichever side has it."""
    if not repeated.any():
        return
    row = int(repeated.argmax())
    differ = [
        name
        for name, messages in zip(("events", "interests"), columns[:2], strict=True)
        if row + 1 < len(messages) and messages[row] != messages[row + 1]
    ]
    sides = " and one in ".join(differ or ("events", "interests"))
    raise RandomnessReuseError(
        f"{row_name(names, ids, row)} occurs more than once: {_ONCE.format(sides)}"
    )


def _collected(
    events: DataFrame, interests: DataFrame, matcher: Matcher, ids: list[str], event: str
) -> RoundEvents | None:
    """Events that travel to the workers with the plan, unless they are too many for it, or rounds
    have names that Arrow might compare in another way than Spark."""
    if not has_exact(events, interests, ids):
        return None
    whole = events.select(*[column(name) for name in (*ids, event)])
    for name in ids:
        whole = whole.where(column(name).isNotNull())
    # Counted without the messages, which are perhaps encoded only when they are asked for.
    if whole.select(column(ids[0])).count() * matcher.event_bytes > PLAN_BYTES:
        return None
    columns = [one.combine_chunks() for one in whole.toArrow().columns]
    return RoundEvents(matcher, tuple(columns[:-1]), columns[-1])
