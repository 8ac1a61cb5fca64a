"""Pairs: messages of one subscription and round, joined and decided. Nothing secret comes here.

A broadcast has one event for all interests of a round. If a join copied it to each of them, most of
the bytes moved would be events. So the workers get all events, if these are few, and look them up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ccbps.arrays import Bools
from ccbps.arrow import row_name
from ccbps.columnar.pairs import RoundEvents, answer_column, examine_rows, with_repeated
from ccbps.columnar.reasons import refuse
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.columns import (
    AGAIN,
    REPEATED,
    check_once,
    column,
    finish,
    has_exact,
    row_function,
)
from ccbps.spark.frames import (
    PLAN_BYTES,
    check_answers,
    check_on_error,
    refuse_alike,
    refuse_given,
    require,
)

_ONCE: Final = (
    "each pair and round has one message in {}. Drop messages that arrived twice, for example with "
    "dropDuplicates(); those that are left were encoded twice under one round, and show more than "
    "a match"
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
        events: event messages, with the columns of `on`. Other columns are kept. The events of a
            broadcast are counted now, and the driver collects up to 32 MiB of them, so that no
            event is copied to each interest. If there are more, they are joined as those of pairs
            are.
        interests: interest messages, with the columns of `on`. Other columns are kept.
        matcher: the matcher; public. It has rounds (`Answers.PAIRS` or `Answers.ROUND`).
        on: names of the columns that name a pair and round in both, for an equi-join; None for
            ("subscription", "round"), and with a broadcast for ("round",). Each side has one
            message per pair and round. The events of a broadcast have one per round.
        subscription: string column of `interests` that tells those of a round apart; None for
            "subscription". It applies with a broadcast only.
        event: binary column of `events`.
        interest: binary column of `interests`.
        output: name of the boolean column.
        on_error: "raise" fails the job at the first malformed message, and names its row. It also
            refuses a side's second message for a pair and round. "reject" gives such rows NULL and
            the cause in a string column "rejected", and leaves the other rows' answers as they are.

    Returns:
        The joined rows without the messages, with `output` (NULL where a message is NULL) and, with
        "reject", "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames, or names of
            the result differ in case only (unless ``spark.sql.caseSensitive`` is on); the matcher
            is of another kind, or `subscription` does not apply to it.
        RandomnessReuseError: (as the cause of Spark's error, when the result is computed) with
            "raise", a pair and round occurs twice in `events` or in `interests`: messages came
            twice, or their one-time randomness was used twice. This is checked for pairs and rounds
            that both sides have, and only in rows that are computed: with `first()`, few are.

            One job on each side checks it at once if the matcher is a broadcast, if one side is a
            stream, or if a column of `on` does not compare exactly. Columns compare exactly if both
            are whole numbers, or if both are of one of the types string (without a collation),
            binary, boolean, date and timestamp. A stream itself is not searched: a message that
            comes twice in it is answered twice.
        DecodeError: (as the cause of Spark's error, when the result is computed) with "raise", a
            message is malformed.
    """
    check_answers(matcher, "match_pairs")
    reject = check_on_error(on_error)
    labels, ids = [], ["subscription", "round"]
    if matcher.answers is Answers.ROUND:
        labels, ids = ["subscription" if subscription is None else subscription], ["round"]
    else:
        refuse_given(matcher, matcher.answers, subscription=subscription)
    ids = ids if on is None else list(on)
    refuse_alike(events, {"events": events.columns, "interests": interests.columns})
    require(events, ids, binary=[event], name="events")
    require(interests, ids, text=labels, binary=[interest], name="interests")
    if not ids:
        raise ParameterError("on=[] names no column: name those that tell pairs and rounds apart")
    if event == interest:
        raise ParameterError(f"both messages are called {event!r}; rename one column")
    if shared := (set(events.columns) & set(interests.columns)) - set(ids):
        raise ParameterError(
            f"column {min(shared)!r} is in both DataFrames; drop it in one of them"
        )
    sides = {"events": (events, ids), "interests": (interests, [*labels, *ids])}
    # Whether a message comes twice in a stream would be known with its last row.
    whole = {name: side for name, side in sides.items() if not side[0].isStreaming}
    # A merge join yields rows in the order of ids, in which those that occur again are neighbours:
    # to compare them is nearly free. Rows that are joined with a stream have no order across
    # batches. A broadcast's interests keep the order by rounds, in which they are decided soonest.
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
        # Messages, ids, and which rows have ids that occur again; the last column says so, unless
        # rows come in the order of ids.
        marked = (
            with_repeated(batches, first)
            if ordered
            else ((batch[:-1], batch[-1].to_numpy(zero_copy_only=False)) for batch in batches)
        )
        for columns, again in marked:
            values = columns[first:]
            if not reject:
                _refuse_repeated(again, columns, names, values)
            if at_workers is None:
                examined = examine_rows(matcher, None, *columns[:2])
            else:
                examined = at_workers.examine(columns[0], values[: len(ids)])
            if not reject:
                refuse(examined[2], names, values)
            yield answer_column(examined, again, reject=reject, repeated=REPEATED)

    arguments = [column(name) for name in (*messages, *names)]
    decided = decide(*arguments, *[repeated] * (not ordered))
    field = "matched" if reject else ""
    return finish(joined, [event, interest, *marks], decided, output, field=field)


def _in_order(events: DataFrame, interests: DataFrame, ids: list[str]) -> DataFrame:
    """Join two DataFrames so that rows of equal ids are neighbours in one partition."""
    # Spark splits no partition that was asked for, and so no rows of equal ids. Hints of the
    # caller, settings, and ids that are constants may change the join. After it, rows are together
    # and in order all the same. Spark leaves out both steps behind a merge join of such partitions.
    keys = [column(name) for name in ids]
    left, right = (df.repartition(*keys).hint("merge") for df in (events, interests))
    joined = left.join(right, on=ids, how="inner")
    return joined.repartition(*keys).sortWithinPartitions(*keys)


def _refuse_repeated(
    repeated: Bools, columns: Sequence[pa.Array], names: Sequence[str], ids: Sequence[pa.Array]
) -> None:
    """Refuse a batch in which ids occur again, and name the first such row.

    The error names the side whose message differs from the next row's. A message that came twice is
    the same in both rows, so it names both sides.
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

    Return None if they are too many, or if Arrow may compare the names of rounds in another way
    than Spark does.
    """
    if not has_exact(events, interests, ids):
        return None
    named = events.select(*map(column, [*ids, event]))
    for name in ids:
        named = named.where(column(name).isNotNull())
    # Counted without the messages, which Spark may encode only when they are selected.
    if named.select(column(ids[0])).count() * matcher.event_bytes > PLAN_BYTES:
        return None
    *names, messages = (chunks.combine_chunks() for chunks in named.toArrow().columns)
    return RoundEvents(matcher, tuple(names), messages)
