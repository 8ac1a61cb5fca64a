"""Content pre-filters in DataFrames: masks beside messages, so that few pairs are tested.

Publishers, or a job that has their key, write `event_masks` beside event messages, and subscribers
`interest_masks` beside interest messages. `match` or `match_all_pairs` with ``mask=`` then makes
the encrypted test only for pairs that pass. `ccbps.filters.ContentFilter` says what masks show a
broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ccbps.arrow import binary_column, chosen, is_valid, strings
from ccbps.checks import instance
from ccbps.filters.contents import LEVELS, MASKS, ContentFilter
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.sources import KeySource, filter_key
from ccbps.predicates import Schema
from ccbps.predicates.syntax import single_quoted
from ccbps.spark.columns import column, row_function
from ccbps.spark.frames import check_key

_Options: TypeAlias = tuple[tuple[str, Any], ...]


def event_masks(
    schema: Schema,
    key: KeySource,
    *,
    levels: int | Mapping[str, int] = LEVELS,
    rate: float = 0.01,
    masks: int = MASKS,
) -> Column:
    """Compute the masks of events, as a BINARY column, from the columns of a schema.

    Example:
        .. code-block:: python

            masked = quotes.withColumn("mask", cs.event_masks(schema, topics_key))
            # then cs.encode_events(masked, tags, ..., keep=["mask"])

    Args:
        schema: attributes of events, which are columns of the DataFrame.
        key: source of the `FilterKey` for the workers.
        levels: number of prefixes, for all attributes or by attribute, as in `ContentFilter`.
        rate: probability that a pair passes with one need unmet.
        masks: number of masks of a subscription. All three must be equal for events and interests.

    Raises:
        ParameterError: an argument does not fit.
        EventError: (as the cause of Spark's error) a value does not fit the schema.
    """
    options = _checked(schema, key, levels, rate, masks)

    def write(row: pa.Array) -> pa.Array:
        table = pa.table(dict(zip(schema, row.flatten(), strict=True)))
        return binary_column(_filter(schema, filter_key(key), options).events(table))

    fields = [column(name).alias(str(place)) for place, name in enumerate(schema)]
    return row_function("binary")(write)(F.struct(*fields))


def interest_masks(
    predicate: Column | str,
    schema: Schema,
    key: KeySource,
    *,
    levels: int | Mapping[str, int] = LEVELS,
    rate: float = 0.01,
    masks: int = MASKS,
    double_quoted_strings: bool = False,
) -> Column:
    """Compute the masks of subscriptions, as a BINARY column. NULL stays NULL.

    Example:
        .. code-block:: python

            selective = wanted.withColumn(
                "mask", cs.interest_masks("predicate", schema, topics_key)
            )
            # then cs.encode_interests(selective, tags, ..., keep=["mask"])

    Args:
        predicate: string column of predicates in SQL.
        schema: attributes of events.
        key: source of the `FilterKey` for the workers.
        levels: number of prefixes, for all attributes or by attribute, as in `ContentFilter`.
        rate: probability that a pair passes with one need unmet.
        masks: number of masks of a subscription. All three must be equal for events and interests.
        double_quoted_strings: True to read text in double quotes as a string, as Spark does.

    Raises:
        ParameterError: an argument does not fit.
        PredicateError: (as the cause of Spark's error) a predicate does not parse.
    """
    options = _checked(schema, key, levels, rate, masks)

    def write(texts: pa.Array) -> pa.Array:
        valid = is_valid(texts)
        (some,) = chosen(valid, texts)
        read = strings(some)
        values = [single_quoted(v) if double_quoted_strings else v for v in read.values]
        rows = _filter(schema, filter_key(key), options).interests(values)
        return binary_column(rows[read.index], valid)

    return row_function("binary")(write)(predicate)


def _checked(
    schema: Schema, key: KeySource, levels: int | Mapping[str, int], rate: float, masks: int
) -> _Options:
    """Return the options of a filter that can be made, so that its errors come at once."""
    check_key(key)
    own = dict(levels) if isinstance(levels, Mapping) else levels
    given = ContentFilter(
        instance("schema", schema, Schema),
        FilterKey(bytes(FilterKey.length)),
        levels=own,
        rate=rate,
        masks=masks,
    )
    return ("levels", tuple(given.levels.items())), ("rate", given.rate), ("masks", given.masks)


@lru_cache(4)
def _filter(schema: Schema, key: FilterKey, options: _Options) -> ContentFilter:
    """Make a filter, once in each worker."""
    given = dict(options)
    return ContentFilter(schema, key, **{**given, "levels": dict(given["levels"])})
