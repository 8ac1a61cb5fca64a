"""The pre-filter in DataFrames: rows whose topic nobody wants are dropped before they are matched.

What is dropped is never joined, never sent to a matching kernel, and costs a hash and two cells of
a filter. Publishers, or a job that has their key, write `topic_tokens` beside messages; a filter of
subscriptions' tokens drops events (*Algorithm 2* of [N1]), and one of events' tokens drops
subscriptions (*Algorithm 1*).

The filter travels with the plan, so it holds no key: its entries are tokens already, and whoever
reads it learns which tokens it knows are in it.
"""

from __future__ import annotations

from functools import lru_cache
from secrets import randbits
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ccbps.arrow import binary_column, chosen, is_valid
from ccbps.errors import DecodeError, ParameterError
from ccbps.filters.bloom import BloomFilter
from ccbps.filters.cuckoo import CuckooFilter
from ccbps.filters.hashing import Murmur3
from ccbps.filters.tokens import TOKEN_BYTES, TopicTokens
from ccbps.keys.sources import KeySource, filter_key
from ccbps.spark.columns import column
from ccbps.spark.frames import PLAN_BYTES, check_key, require
from ccbps.spark.workers import on_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName


def topic_tokens(topic: ColumnOrName, key: KeySource) -> Column:
    """Compute the token of a topic, 16 bytes, as a BINARY column.

    NULL stays NULL: for all topics. Equal topics have equal tokens (`ccbps.filters.TopicTokens`),
    which is what whoever has no key learns of them.

    Example:
        .. code-block:: python

            asked = quotes.withColumn("token", cs.topic_tokens("issue", topics_key))

    Args:
        topic: string or binary.
        key: where the workers find the `FilterKey`.

    Raises:
        ParameterError: `key` is not a `KeySource`; when computed, the column is of another type.
    """
    check_key(key)

    @F.arrow_udf("binary")
    @on_worker
    def write(topics: pa.Array) -> pa.Array:
        valid = is_valid(topics)
        (some,) = chosen(valid, topics)
        return binary_column(TopicTokens(filter_key(key)).many(some), valid)

    return write(topic)


def make_filter(df: DataFrame, tokens: str = "token") -> CuckooFilter:
    """Make a filter of a column's tokens, for `prefilter`.

    Runs a job; the driver collects those that differ, 16 bytes each, and keeps some 2 bytes of
    each. Of other tokens one in 8,000 passes.

    Example:
        .. code-block:: python

            known = cs.make_filter(asked)
            # <CuckooFilter of 1 keys, ...>

    Args:
        df: has `tokens`, as `topic_tokens` makes; NULL is left out.

    Raises:
        ParameterError: the column is missing or not binary.
        DecodeError: some tokens have not 16 bytes.
        FilterFullError: somebody who could choose tokens has chosen some that do not fit together.
    """
    require(df, [], binary=[tokens], rest=False)
    found = df.select(column(tokens)).dropna().distinct().toArrow().column(0)
    malformed = pc.sum(pc.not_equal(pc.binary_length(found), TOKEN_BYTES)).as_py()
    if malformed:
        raise DecodeError(
            f"column {tokens!r} has {malformed} tokens, of those that differ, that are not of "
            f"{TOKEN_BYTES} bytes: take what topic_tokens makes, or leave such rows out"
        )
    made = CuckooFilter.for_capacity(max(1, len(found)), hashing=Murmur3(randbits(32)))
    made.add_all(found)
    return made


def prefilter(
    df: DataFrame, wanted: BloomFilter | CuckooFilter, tokens: str = "token"
) -> DataFrame:
    """Drop rows whose token is not in a filter.

    Rows whose token is NULL, for all topics, pass. So does a row whose token is malformed, not of
    16 bytes, since that says nothing about it.

    Call it before `match`: what it drops takes part in no join and in no match, so pairs of a
    dropped row are missing from the result instead of false. It drops only what the filter knows
    not to be there, so the predicate, or `on=`, must say the topic, too.

    Example:
        .. code-block:: python

            hopeful = cs.prefilter(asked, known)
            # all rows of `asked`: events = cs.encode_events(hopeful, ...) comes next

    Args:
        df: may be streaming; has `tokens`.
        wanted: a `CuckooFilter` or `BloomFilter` of tokens, which the workers get with the plan.

    Raises:
        ParameterError: the column is missing or not binary; the filter is none, has a key, or is
            larger than 32 MiB, which takes some 15 million tokens.
    """
    require(df, [], binary=[tokens])
    if not isinstance(wanted, BloomFilter | CuckooFilter):
        raise ParameterError(
            f"wanted must be a CuckooFilter or a BloomFilter, got {type(wanted).__name__}"
        )
    if not isinstance(wanted.hashing, Murmur3):
        raise ParameterError(
            "wanted has a key, which must not enter a Spark plan: make a filter of tokens, as "
            "make_filter does, with hashing=Murmur3()"
        )
    name, content = type(wanted).__name__, wanted.to_bytes()
    if len(content) > PLAN_BYTES:
        raise ParameterError(
            f"wanted has {len(content)} bytes, more than a plan may carry ({PLAN_BYTES}): join on "
            "the tokens instead"
        )

    @F.arrow_udf("boolean")
    @on_worker
    def passes(found: pa.Array) -> pa.Array:
        sized = pc.equal(pc.binary_length(found), TOKEN_BYTES).fill_null(False)
        known = sized.to_numpy(zero_copy_only=False)
        (some,) = chosen(known, found)
        out = np.ones(len(found), dtype=np.bool_)
        out[known] = _read(name, content).has_all(some)
        return pa.array(out)

    return df.where(passes(column(tokens)))


@lru_cache(4)
def _read(name: str, content: bytes) -> BloomFilter | CuckooFilter:
    """Read a filter, once in each worker."""
    return (CuckooFilter if name == "CuckooFilter" else BloomFilter).from_bytes(content)
