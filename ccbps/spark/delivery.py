"""Payloads through Spark: sealed once per event, keys wrapped per subscription, then opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.arrow import (
    binary_column,
    binary_rows,
    by_round,
    chosen,
    integers,
    is_valid,
    with_nulls,
)
from ccbps.ciphers.payloads import PAD_TO
from ccbps.delivery.naive import KEY_BYTES, PayloadOpener, PayloadSealer
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.sources import KeySource, master, seeds
from ccbps.spark.frames import (
    check_keep,
    check_key,
    column,
    finish,
    finish_encoded,
    require,
    row_function,
    struct,
)
from ccbps.spark.repeated import check_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["deliver", "open_payloads", "seal_payloads", "wrap_keys"]


def seal_payloads(
    df: DataFrame,
    key: KeySource,
    *,
    event: str = "event",
    payload: str = "payload",
    keep: Sequence[str] = (),
    output: str = "sealed",
    pad_to: int = PAD_TO,
) -> DataFrame:
    """Encrypt payloads, one row per event: `event`, what `keep` names and a binary `output`.

    Example:
        .. code-block:: python

            sealed = cs.seal_payloads(news, key)
            # event, sealed

    Args:
        df: has `event`, a whole number that always names the same event; and `payload`, binary or
            string.
        key: where the workers find the publisher's master seed.
        keep: other columns to leave as they are, in the clear, for the broker to see.
        pad_to: payloads are padded to a multiple of this many bytes, as lengths leak information.

    Raises:
        ParameterError: a column is missing or of the wrong type; `keep` names the payload.
        RandomnessReuseError: an event number occurs twice. Runs one job to find out.
    """
    check_key(key)
    if event == payload:
        raise ParameterError(f"event={event!r} is also the payload")
    kept = check_keep(keep, [event], [payload])
    require(df, [payload, *kept], whole=[event], rest=False)

    @row_function("binary")
    @confined
    def seal(row: pa.Array) -> pa.Array:
        numbers, payloads = row.flatten()
        valid = is_valid(numbers, payloads)
        numbers, payloads = chosen(valid, numbers, payloads)
        texts = payloads.cast(pa.binary()).to_pylist()
        sealed = PayloadSealer(master(key)).seal(texts, integers(numbers), pad_to=pad_to)
        return with_nulls(pa.array(sealed, pa.binary()), valid)

    message = seal(F.struct(column(event), column(payload).cast("binary")))
    result = finish_encoded(df, kept, message, output, reject=False)
    check_once(df, [event], "each number names one event, always")
    return result


def wrap_keys(
    df: DataFrame,
    key: KeySource,
    *,
    event: str = "event",
    subscription: str = "subscription",
    round: str = "round",
    output: str = "wrapped_key",
) -> DataFrame:
    """Wrap each event's key for each row's subscription: adds a binary column of 32 bytes.

    Example:
        .. code-block:: python

            wrapped = cs.wrap_keys(addressed, key)
            # event, subscription, round, wrapped_key

    Args:
        df: one row for each event and subscription; has `event`, `subscription`
            and `round`.
        key: where the workers find the publisher's master seed.

    Raises:
        RandomnessReuseError: a (pair, round) occurs twice. Runs one job to find out.
    """
    check_key(key)
    require(df, [], whole=[round, event], text=[subscription])

    @row_function("binary")
    @confined
    def wrap(row: pa.Array) -> pa.Array:
        columns = row.flatten()
        valid = is_valid(*columns)
        numbers, pairs, rounds = chosen(valid, *columns)
        order, label, number = by_round(pairs, rounds)
        out = np.empty((len(order), KEY_BYTES), dtype=np.uint8)
        sealer = PayloadSealer(master(key))
        out[order] = sealer.wrap(integers(numbers)[order], number, pairs=label)
        return binary_column(out, valid)

    result = finish(df, [], wrap(struct([event, subscription, round])), output)
    check_once(df, [subscription, round], "each pair and round wraps one key, once")
    return result


def deliver(
    matches: DataFrame,
    sealed: DataFrame,
    *,
    event: str = "event",
    matched: str = "matched",
) -> DataFrame:
    """The broker's last step: what each matched subscription receives.

    Example:
        .. code-block:: python

            matches = cs.match(events, interests, matcher).join(wrapped, ["subscription", "round"])
            delivered = cs.deliver(matches, sealed)
            # event, subscription, round, sealed, wrapped_key: what matched

    Args:
        matches: has `event`, the boolean `matched` and the wrapped keys; rows that did not match
            (or are NULL) are dropped.
        sealed: from `seal_payloads`, one row per event.
    """
    require(matches, [event, matched], name="matches")
    require(sealed, [event], name="sealed")
    return matches.where(column(matched)).drop(matched).join(sealed, on=event, how="inner")


def open_payloads(
    df: DataFrame,
    key: KeySource,
    *,
    subscription: str = "subscription",
    round: str = "round",
    sealed: str = "sealed",
    wrapped: str = "wrapped_key",
    output: str = "payload",
) -> DataFrame:
    """Decrypt delivered payloads: `df` without `sealed` and `wrapped`, with a binary `output`.

    Example:
        .. code-block:: python

            opened = cs.open_payloads(delivered, key)
            # event, subscription, round, payload

    Args:
        df: has the columns that the arguments name.
        key: where the workers find the pairs' seeds, or the master they come from.

    Raises:
        DecodeError (when the result is computed): a payload, key, pair or round does not fit.
    """
    check_key(key)
    require(df, [sealed, wrapped], whole=[round], text=[subscription])

    @row_function("binary")
    @confined
    def open_rows(row: pa.Array) -> pa.Array:
        columns = row.flatten()
        valid = is_valid(*columns)
        pairs, rounds, ciphertexts, keys = chosen(valid, *columns)
        order, label, number = by_round(pairs, rounds)
        rows, good = binary_rows(keys, KEY_BYTES)
        if not good.all():
            raise DecodeError(f"a wrapped key has {KEY_BYTES} bytes; some here do not")
        texts = ciphertexts.take(pa.array(order)).to_pylist()
        opened = PayloadOpener(seeds(key)).open(texts, rows[order], number, pairs=label)
        back = pa.array(opened, pa.binary()).take(pa.array(np.argsort(order)))
        return with_nulls(back, valid)

    return finish(
        df, [sealed, wrapped], open_rows(struct([subscription, round, sealed, wrapped])), output
    )
