"""The pre-filter in DataFrames: rows whose topic nobody wants are dropped before they are matched.

A row that is dropped is never joined and never sent to a matching kernel. It costs a hash and two
cells of a filter. Publishers, or a job that has their key, write `topic_tokens` beside messages. A
filter of subscriptions' tokens drops events (*Algorithm 2* of [N1]), and one of events' tokens
drops subscriptions (*Algorithm 1*).

The filter travels with the plan, so it holds no key: its entries are tokens. A reader of the filter
learns which of the tokens known to them are in it.
"""

from __future__ import annotations

from functools import lru_cache
from secrets import randbits

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ccbps.arrow import binary_column, chosen, is_valid
from ccbps.checks import instance
from ccbps.errors import DecodeError, ParameterError
from ccbps.filters.bloom import BloomFilter
from ccbps.filters.cuckoo import CuckooFilter
from ccbps.filters.hashing import Murmur3
from ccbps.filters.tokens import TOKEN_BYTES, TopicTokens
from ccbps.keys.sources import KeySource, filter_key
from ccbps.spark.columns import column
from ccbps.spark.frames import PLAN_BYTES, check_key, require
from ccbps.spark.workers import on_worker

Filter = BloomFilter | CuckooFilter


def topic_tokens(topic: Column | str, key: KeySource) -> Column:
    """Compute the tokens of topics, of 16 bytes each, as a BINARY column.

    NULL stays NULL, and stands for all topics. Equal topics have equal tokens
    (`ccbps.filters.TopicTokens`). A reader without the key learns nothing else of them.

    Example:
        .. code-block:: python

            asked = quotes.withColumn("token", cs.topic_tokens("issue", topics_key))

    Args:
        topic: string or binary column.
        key: source of the `FilterKey` for the workers.

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

    This runs a job. The driver collects the distinct tokens, of 16 bytes each, and keeps some 2
    bytes of each. Of other tokens, one in 8,000 passes.

    Example:
        .. code-block:: python

            known = cs.make_filter(asked)
            # <CuckooFilter of 1 keys, ...>

    Args:
        df: the rows.
        tokens: binary column of tokens from `topic_tokens`. NULL is left out.

    Raises:
        ParameterError: the column is missing or not binary.
        DecodeError: some tokens do not have 16 bytes.
        FilterFullError: somebody who could choose tokens has chosen some that do not fit together.
    """
    require(df, [], binary=[tokens], rest=False)
    distinct = df.select(column(tokens)).dropna().distinct().toArrow().column(0)
    malformed = pc.sum(pc.not_equal(pc.binary_length(distinct), TOKEN_BYTES)).as_py()
    if malformed:
        raise DecodeError(
            f"column {tokens!r} has {malformed} tokens, of those that differ, that are not of "
            f"{TOKEN_BYTES} bytes: take what topic_tokens makes, or leave such rows out"
        )
    wanted = CuckooFilter.for_capacity(max(1, len(distinct)), hashing=Murmur3(randbits(32)))
    wanted.add_all(distinct)
    return wanted


def prefilter(df: DataFrame, wanted: Filter, tokens: str = "token") -> DataFrame:
    """Drop rows whose token is not in a filter.

    Rows whose token is NULL, which stands for all topics, pass. So do rows with a malformed token,
    not of 16 bytes, which says nothing about the topic.

    Call it before `match`. A row that it drops takes part in no join and in no match, so its pairs
    are missing from the result instead of false. A filter is certain only that a token is absent.
    Other tokens may pass, so the predicate, or `on=`, must name the topic, too.

    Example:
        .. code-block:: python

            hopeful = cs.prefilter(asked, known)
            # all rows of `asked`: events = cs.encode_events(hopeful, ...) comes next

    Args:
        df: the rows, batch or streaming.
        wanted: filter of tokens, which the workers get with the plan.
        tokens: binary column of tokens.

    Raises:
        ParameterError: the column is missing or not binary; `wanted` is no filter, has a key, or is
            larger than 32 MiB, which takes some 15 million tokens.
    """
    require(df, [], binary=[tokens])
    instance("wanted", wanted, (CuckooFilter, BloomFilter))
    if not isinstance(wanted.hashing, Murmur3):
        raise ParameterError(
            "wanted has a key, which must not enter a Spark plan: make a filter of tokens, as "
            "make_filter does, with hashing=Murmur3()"
        )
    kind, content = type(wanted), wanted.to_bytes()
    if len(content) > PLAN_BYTES:
        raise ParameterError(
            f"wanted has {len(content)} bytes, more than a plan may carry ({PLAN_BYTES}): join on "
            "the tokens instead"
        )

    @F.arrow_udf("boolean")
    @on_worker
    def passes(column: pa.Array) -> pa.Array:
        sized = pc.equal(pc.binary_length(column), TOKEN_BYTES).fill_null(False)
        tokens = sized.to_numpy(zero_copy_only=False)
        (some,) = chosen(tokens, column)
        out = np.ones(len(column), dtype=np.bool_)
        out[tokens] = _read(kind, content).has_all(some)
        return pa.array(out)

    return df.where(passes(column(tokens)))


@lru_cache(4)
def _read(kind: type[Filter], content: bytes) -> Filter:
    """Read a filter, once in each worker."""
    return kind.from_bytes(content)
