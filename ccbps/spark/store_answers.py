"""What a worker answers for a piece of work of two message stores.

Spark takes long for each row and each element of a list that comes out of Python, but unfolds lists
in the code it compiles for whatever follows. So a row here is all pairs of a run that have one
answer, and lists how far their rounds are from the first, or has a bit for each round. A filter of
the answer or of the reason drops whole rows, before anything is unfolded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.arrays import Bools, Index, Numbers
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.matching.contract.broker import Broker
from ccbps.store.plan import Work, pair_names, spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark looks twice at each element of a list that may have NULLs.
_STEPS: Final = pa.list_(pa.field("element", pa.int32(), nullable=False))
_BITS: Final = pa.list_(pa.field("element", pa.int64(), nullable=False))

ANSWERS: Final = pa.schema(
    [
        ("subscription", pa.string()),
        ("base", pa.int64()),
        ("steps", _STEPS),
        ("first", pa.int32()),
        ("last", pa.int32()),
        ("bits", _BITS),
        ("matched", pa.bool_()),
        ("rejected", pa.string()),
    ]
)
"""Pairs of one run and one answer in a row. Their rounds are `base` and each of `steps`; or each
step from `first` to `last` whose bit is set, 64 to a number, the least significant first."""

# Pairs of a run, on average, for bits to be worth it.
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
    """Group the pairs that have one answer, in a row for each run with some."""
    runs = len(work.counts)
    if work.rounds is None and 2 * np.count_nonzero(mask) > len(mask) > BITS * runs:
        run, given = _as_bits(work, mask)
    else:
        run, given = _as_steps(work, np.flatnonzero(mask))
    given["subscription"] = work.runs["subscription"].take(pa.array(run))
    given["matched"] = pa.repeat(pa.scalar(matched, pa.bool_()), len(run))
    given["rejected"] = pa.repeat(pa.scalar(why, pa.string()), len(run))
    nothing = {field.name: pa.nulls(len(run), field.type) for field in ANSWERS}
    return pa.RecordBatch.from_pydict(nothing | given, schema=ANSWERS)


def _as_steps(work: Work, chosen: Index) -> tuple[Index, dict[str, Any]]:
    """Return the run of each row and its columns, for some of a piece's pairs, in order."""
    ends = np.cumsum(work.counts)
    counts = np.diff(np.searchsorted(chosen, ends), prepend=0)
    if work.rounds is None:
        run = np.flatnonzero(counts)
        counts = counts[run]
        base = work.runs["first"].to_numpy()[run]
        steps = chosen - np.repeat((ends - work.counts)[run], counts)
    else:
        # A row for each 2^31 rounds of a run, since steps have 32 bits.
        rounds, of = work.rounds[chosen], np.repeat(np.arange(len(counts)), counts)
        far = rounds >> 31
        new = np.ones(len(rounds), dtype=np.bool_)
        new[1:] = (np.diff(of) != 0) | (np.diff(far) != 0)
        starts = np.flatnonzero(new)
        run, base = of[starts], far[starts] << 31
        counts, steps = np.diff(starts, append=len(rounds)), rounds & (1 << 31) - 1
    return run, {"base": base, "steps": _lists(counts, steps.astype(np.int32), _STEPS)}


def _as_bits(work: Work, mask: Bools) -> tuple[Index, dict[str, Any]]:
    """Return the run of each row and its columns, for the pairs of a mask.

    Runs are packed as one, so the first and the last number of each may have bits of its
    neighbours.
    """
    words = np.zeros((-(-len(mask) // 64), 8), dtype=np.uint8)
    packed = np.packbits(mask, bitorder="little")
    words.reshape(-1)[: len(packed)] = packed
    run = np.flatnonzero(work.counts)
    counts = work.counts[run]
    ends = np.cumsum(counts)
    starts = ends - counts
    low, high = starts >> 6, (ends + 63) >> 6
    first = starts & 63
    return run, {
        "base": work.runs["first"].to_numpy()[run] - first,
        "first": first.astype(np.int32),
        "last": (first + counts - 1).astype(np.int32),
        "bits": _lists(high - low, words.view("<i8")[:, 0][spans(low, high)[1]], _BITS),
    }


def _lists(counts: Numbers, values: Numbers, kind: pa.ListType) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=kind)


def unfolded(answered: DataFrame, *, reject: bool) -> DataFrame:
    """Unfold a row for each answer: subscription, round, matched and, with `reject`, rejected."""
    steps = F.expr("coalesce(steps, sequence(first, last))")
    return (
        answered.select("*", F.explode(steps).alias("step"))
        .where("bits IS NULL OR bits[step >> 6] >> (step & 63) & 1 = 1")
        .select(
            "subscription",
            F.expr("base + step").alias("round"),
            "matched",
            *["rejected"] * reject,
        )
    )
