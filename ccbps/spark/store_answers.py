"""What a worker answers for a piece of work of two message stores.

Spark takes long for each row and each element of a list that comes out of Python, but unfolds lists
in the code it compiles for whatever follows. So a row here is all pairs of a run that have one
answer, and lists their rounds, or has a bit for each round. A filter of the answer or of the reason
drops whole rows, before anything is unfolded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.arrays import Bools
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.matching.broker import Broker
from ccbps.store.plan import Work, chosen_rounds, pair_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ANSWERS", "answers_of", "unfolded"]

ANSWERS: Final = pa.schema(
    [
        ("subscription", pa.string()),
        ("rounds", pa.list_(pa.int64())),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("bits", pa.list_(pa.int64())),
        ("matched", pa.bool_()),
        ("rejected", pa.string()),
    ]
)
"""Pairs of one run and one answer in a row: of `rounds`, or of those from `first` to `last` whose
bit is set, 64 to a number, the least significant first."""

# Pairs of a run, on average, for bits to be worth it: each run is packed by itself.
BITS: Final = 1024


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
    found = np.unique(causes) if causes.any() else causes[:0]
    if len(found) and not reject:
        refuse(causes, ("subscription", "round"), pair_names(work))
    groups = [_group(work, answers, True)]
    if not matches_only:
        others = ~(answers | (causes != 0)) if len(found) else ~answers
        groups.append(_group(work, others, False))
    for cause, why in zip(found, cause_texts(found).to_pylist(), strict=True):
        if cause:
            groups.append(_group(work, causes == cause, None, why))
    return pa.concat_batches(groups)


def _group(work: Work, mask: Bools, matched: bool | None, why: str | None = None) -> pa.RecordBatch:
    """Pairs that have one answer, in a row for each run with some."""
    ends, runs = np.cumsum(work.counts), len(work.counts)
    nothing = {field.name: pa.nulls(runs, field.type) for field in ANSWERS}
    if work.rounds is None and 2 * np.count_nonzero(mask) > len(mask) > BITS * runs:
        there = [mask[end - n : end] for end, n in zip(ends, work.counts, strict=True)]
        some = np.array([part.any() for part in there])
        first = work.runs["first"].to_numpy()
        given = {"first": first, "last": first + work.counts - 1, "bits": _packed(there)}
    else:
        chosen = np.flatnonzero(mask)
        offsets = np.append(0, np.searchsorted(chosen, ends))
        some = offsets[1:] > offsets[:-1]
        rounds = chosen_rounds(work, chosen)
        given = {"rounds": pa.ListArray.from_arrays(offsets.astype(np.int32), rounds)}
    given["subscription"] = work.runs["subscription"]
    given["matched"] = pa.repeat(pa.scalar(matched, pa.bool_()), runs)
    given["rejected"] = pa.repeat(pa.scalar(why, pa.string()), runs)
    batch = pa.RecordBatch.from_pydict({**nothing, **given}, schema=ANSWERS)
    return batch if some.all() else batch.filter(pa.array(some))


def _packed(masks: list[Bools]) -> pa.ListArray:
    """Bits of each mask in 64-bit numbers."""
    words = np.array([-(-len(mask) // 64) for mask in masks])
    ends = np.cumsum(words)
    out = np.zeros((ends[-1], 8), dtype=np.uint8)
    for mask, start in zip(masks, (ends - words).tolist(), strict=True):
        packed = np.packbits(mask, bitorder="little")
        out[start:].reshape(-1)[: len(packed)] = packed
    return pa.ListArray.from_arrays(
        np.append(0, ends).astype(np.int32), out.view("<i8").reshape(-1)
    )


def unfolded(answered: DataFrame, *, reject: bool) -> DataFrame:
    """A row for each answer: subscription, round, matched and, with `reject`, rejected."""
    rounds = F.expr("coalesce(rounds, sequence(first, last))")
    return (
        answered.select("*", F.explode(rounds).alias("round"))
        .where("bits IS NULL OR bits[(round - first) >> 6] >> ((round - first) & 63) & 1 = 1")
        .select("subscription", "round", "matched", *["rejected"] * reject)
    )
