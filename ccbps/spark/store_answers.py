"""What a worker answers for a piece of work of two message stores.

Spark copies what comes out of Python row by row, but unfolds lists in the code it compiles for
whatever follows: so a row is a run of pairs here, with a list of answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.matching.broker import Broker
from ccbps.spark.frames import column
from ccbps.store.plan import Work, chosen_pairs, pair_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ANSWERS", "answers_of", "unfolded"]

ANSWERS: Final = pa.schema(
    [
        ("subscription", pa.string()),
        ("first", pa.int64()),
        ("rounds", pa.list_(pa.int64())),
        ("matched", pa.list_(pa.bool_())),
        ("rejected", pa.list_(pa.string())),
    ]
)
"""One row per run of pairs of one subscription. Rounds follow one another from `first` on, where
`rounds` is NULL; nothing is wrong where `rejected` is."""


def answers_of(
    work: Work, broker: Broker, *, reject: bool, matches_only: bool = False
) -> pa.RecordBatch:
    """Decide all pairs of a piece; with `matches_only`, those that do not match are left out.

    Raises:
        DecodeError: without `reject`, a message is malformed; or a file is.
    """
    answers = np.empty(work.counts.sum(), dtype=np.bool_)
    causes = np.empty(len(answers), dtype=np.uint8)
    for at, *messages in work.blocks:
        answers[at], causes[at] = broker.examine(*messages)
    bad = causes.any()
    if bad and not reject:
        refuse(causes, ("subscription", "round"), pair_names(work))
    if matches_only:
        chosen = np.flatnonzero(answers | (causes != 0) if bad else answers)
        work = chosen_pairs(work, chosen)
        answers, causes = answers[chosen], causes[chosen]
    ends = pa.array(np.append(0, np.cumsum(work.counts)).astype(np.int32))
    lists = (
        work.rounds,
        pa.array(answers, mask=causes != 0 if bad else None),
        cause_texts(causes) if bad else None,
    )
    columns = [work.runs["subscription"], work.runs["first"]] + [
        pa.nulls(len(work.runs), field.type)
        if values is None
        else pa.ListArray.from_arrays(ends, values)
        for values, field in zip(lists, list(ANSWERS)[2:], strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ANSWERS)


def unfolded(answered: DataFrame, *, reject: bool) -> DataFrame:
    """A row for each answer: subscription, round, matched and, with `reject`, rejected."""
    at = column("at")
    return answered.select("*", F.posexplode("matched").alias("at", "answer")).select(
        "subscription",
        F.coalesce(column("rounds")[at], column("first") + at).alias("round"),
        column("answer").alias("matched"),
        *[column("rejected")[at].alias("rejected")] * reject,
    )
