"""Pairs: messages of one subscription and round, joined and decided. Nothing secret comes here.

A broadcast has one event for all interests of a round. Copied to each of them by a join, it would
be most of what is moved; so the workers get all events, if these are few, and look them up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.arrays import Bools
from ccbps.arrow import row_name
from ccbps.columnar.broadcast import RoundEvents
from ccbps.columnar.pairs import answer_column, examine_rows, with_repeated
from ccbps.columnar.reasons import refuse
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.columns import AGAIN, REPEATED, column, finish, finish_struct, row_function
from ccbps.spark.frames import (
    PLAN_BYTES,
    check_answers,
    check_on_error,
    refuse_alike,
    refuse_given,
    require,
)
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
    *,
    on: Sequence[str] | None = None,
    subscription: str | None = None,
    event: str = "event_message",
    interest: str = "interest_message",
    output: str = "matched",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Match event and interest messages of the same pair and round, or of the same round.

    Example:
        .. code-block:: python

            hits = cs.match_pairs(events, interests, matcher, output="hit")
            # subscription, round, hit: true in round 0, false in round 1

        An event for all interests of its round, in a matcher such as `BroadcastMatch`:

        .. code-block:: python

            answers = cs.match_pairs(one_each_round, interests, broadcast, on_error="reject")
            # round, subscription, matched, rejected

    Args:
        events: has `event` and the columns of `on`. Its other columns are kept. A broadcast's
            events are counted now, and up to 32 MiB of them collected by the driver, so that no
            event is copied to each interest; more are joined as those of pairs are.
        interests: has `interest` and the columns of `on`. Its other columns are kept.
        matcher: public; one with rounds (`Answers.PAIRS` or `Answers.ROUND`).
        on: what names a pair and round in both, by an equi-join; None for ("subscription",
            "round"), and with a broadcast for ("round",). Each side has one message per pair and
            round; a broadcast's events have one per round.
        subscription: with a broadcast only, string column of `interests` that tells those of a
            round apart; None for "subscription".
        event: binary column of `events`.
        interest: binary column of `interests`.
        output: name of the boolean column.
        on_error: "raise" fails the job at the first malformed message, and names its row; it also
            refuses messages of a pair and round that one side has already. "reject" gives such rows
            NULL and the cause in a string column "rejected", and leaves the other rows' answers as
            they are.

    Returns:
        The joined rows without the messages, with `output` (NULL where a message is NULL) and, with
        "reject", "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames, or names of
            the result differ in case only (unless ``spark.sql.caseSensitive`` is on); the matcher
            is of another kind, or `subscription` does not apply to it.
        RandomnessReuseError: (as the cause of Spark's error, when the result is computed; at once
            for a broadcast, for what is joined with a stream, and unless columns of `on` are whole
            numbers, or of one type in both, a string without a collation, binary, boolean, date or
            timestamp; that runs one job on each side) with "raise", a pair and round occurs twice
            in `events` or in `interests`: messages came twice, or their one-time randomness was
            used twice. When the result is computed, this is seen of pairs and rounds that both
            sides have, and of rows that are taken, if only some are, as by `first()`. A stream
            itself is not looked through: what comes twice in it is answered twice.
        DecodeError: (as the cause of Spark's error, when the result is computed) with "raise", a
            message is malformed.
    """
    check_answers(matcher, "match_pairs")
    reject = check_on_error(on_error)
    if matcher.answers is Answers.ROUND:
        labels = ["subscription" if subscription is None else subscription]
        ids = ["round"] if on is None else list(on)
    else:
        refuse_given(matcher, matcher.answers, subscription=subscription)
        labels, ids = [], ["subscription", "round"] if on is None else list(on)
    _check_sides(events, interests, ids, labels, event, interest)
    sides = {"events": (events, ids), "interests": (interests, [*labels, *ids])}
    # What comes twice in a stream would be known with its last row.
    whole = {name: side for name, side in sides.items() if not side[0].isStreaming}
    # A merge join yields rows in the order of ids, in which those that occur again are neighbours:
    # to compare them is nearly free. What is joined with a stream has no order across batches, and
    # a broadcast's interests keep the order by rounds, in which they are decided soonest.
    ordered = len(whole) == len(sides) and not labels and has_exact(events, interests, ids)
    if not (ordered or reject):
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
        joined = _in_order(events, interests, ids)
    else:
        joined = events.join(interests, on=ids, how="inner")
    repeated, marks = F.lit(False), []
    if reject and not ordered:
        for name, (df, keys) in whole.items():
            # Few or none: Spark sends them to all tasks.
            marks.append(f"{AGAIN}_in_{name}")
            again = (F.count("*") > 1).alias(marks[-1])
            rows = df.groupBy(*map(column, keys)).agg(again).where(column(marks[-1]))
            joined = joined.join(rows, on=keys, how="left")
            repeated = repeated | F.coalesce(column(marks[-1]), F.lit(False))
    first, names = len(messages), [*ids, *labels]

    @row_function("matched boolean, rejected string" if reject else "boolean")
    def decide(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for columns, again in _marked(batches, first, ordered):
            named = columns[first:]
            if not reject:
                _refuse_repeated(again, columns, names, named)
            if at_workers is None:
                examined = examine_rows(matcher, None, *columns[:2])
            else:
                examined = at_workers.examine(columns[0], named[: len(ids)])
            if not reject:
                refuse(examined[2], names, named)
            yield answer_column(examined, again, reject=reject, repeated=REPEATED)

    dropped = [event, interest, *marks]
    arguments = [column(name) for name in (*messages, *names)]
    decided = decide(*arguments, *[repeated] * (not ordered))
    if reject:
        return finish_struct(joined, dropped, decided, "matched", output)
    return finish(joined, dropped, decided, output)


def _check_sides(
    events: DataFrame,
    interests: DataFrame,
    ids: list[str],
    labels: list[str],
    event: str,
    interest: str,
) -> None:
    """Refuse two DataFrames that cannot be joined."""
    refuse_alike(events, {"events": events.columns, "interests": interests.columns})
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


def _in_order(events: DataFrame, interests: DataFrame, ids: list[str]) -> DataFrame:
    """Join two DataFrames; rows of equal ids are neighbours in one partition."""
    # Spark splits no partition that was asked for, and with it equal ids. Whatever it does, for
    # hints of the caller, settings or ids that are constants: rows are together, and in order,
    # after the join. Behind a merge join of what was asked for, it leaves both steps out.
    keys = [column(name) for name in ids]
    left, right = (df.repartition(*keys).hint("merge") for df in (events, interests))
    joined = left.join(right, on=ids, how="inner")
    return joined.repartition(*keys).sortWithinPartitions(*keys)


def _marked(
    batches: Iterator[tuple[pa.Array, ...]], first: int, ordered: bool
) -> Iterator[tuple[Sequence[pa.Array], Bools]]:
    """Yield messages and ids, and rows whose pair and round occurs more than once.

    Args:
        batches: columns of messages and, from `first` on, of ids; behind them, unless rows are
            `ordered` by ids, which rows occur again.
    """
    if ordered:
        return with_repeated(batches, first)
    return ((batch[:-1], batch[-1].to_numpy(zero_copy_only=False)) for batch in batches)


def _refuse_repeated(
    repeated: Bools, columns: Sequence[pa.Array], names: Sequence[str], ids: Sequence[pa.Array]
) -> None:
    """Refuse a batch in which ids occur again; name the first such row.

    Name also the side where its message differs from the next row's. What came twice is the same in
    both rows, whichever side has it.
    """
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
    """Collect the events that travel to the workers with the plan.

    None if they are too many for it, or if rounds have names that Arrow might compare in another
    way than Spark.
    """
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
