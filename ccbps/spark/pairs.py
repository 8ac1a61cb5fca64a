"""Pairs: messages of one subscription and round, joined and decided. Nothing secret comes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ccbps.columnar.pairs import examine_rows
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.errors import ParameterError
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import check_on_error, check_once, column, finish, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["match_pairs"]

_ONCE = (
    "each pair and round has one message in {}. Drop what arrived twice, for example with "
    "dropDuplicates(); whatever is left was encoded twice under one round, and shows more than a "
    "match"
)
_REPEATED = "the pair and round occurs more than once"


def match_pairs(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    ids: list[str],
    event: str,
    interest: str,
    output: str,
    on_error: str,
) -> DataFrame:
    """See `ccbps.spark.match`; `ids` are its `on`."""
    check_on_error(on_error, "reject")
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
            answers, valid, causes = examine_rows(matcher, None, event, interest)
            refuse(causes, ids, columns)
            return pa.array(answers, mask=~valid)

        return finish(joined, [event, interest], decide(*arguments), output)

    @F.arrow_udf("matched boolean, rejected string")
    def decide_or_reject(event: pa.Array, interest: pa.Array, repeated: pa.Array) -> pa.Array:
        answers, valid, causes = examine_rows(matcher, None, event, interest)
        twice = repeated.is_valid()
        unsure = (causes != 0) | twice.to_numpy(zero_copy_only=False)
        return pa.StructArray.from_arrays(
            [
                pa.array(answers, mask=~valid | unsure),
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
