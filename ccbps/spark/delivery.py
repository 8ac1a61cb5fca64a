"""Payloads in DataFrames: sealed once per event, opened with keys wrapped per subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from ccbps.arrow import binary_column, binary_rows, by_round, chosen, integers, with_nulls
from ccbps.ciphers.payloads import PAD_TO
from ccbps.columnar.reasons import readable, refuse_rows, with_reasons
from ccbps.delivery.naive import KEY_BYTES, PayloadOpener, PayloadSealer
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource, master, seeds
from ccbps.spark.columns import column, encode_rows
from ccbps.spark.frames import check_keep, check_key, check_on_error, require
from ccbps.spark.stability import refuse_unstable

_ONE_EVENT: Final = "each number names one event, always"
_ONE_KEY: Final = "each pair and round wraps one key, once"
_KEY_WIDTH: Final = f"a wrapped key has {KEY_BYTES} bytes, this one has not"
_ADVICE: Final = "open_payloads sets such rows aside with on_error='reject'"


def seal_payloads(
    df: DataFrame,
    key: KeySource,
    *,
    event: str = "event",
    payload: str = "payload",
    keep: Sequence[str] = (),
    output: str = "sealed",
    pad_to: int = PAD_TO,
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encrypt payloads, with one row for each event.

    The result has the columns `event`, those that `keep` names and a binary `output`.

    Example:
        .. code-block:: python

            sealed = cs.seal_payloads(news, key)
            # event, sealed

    Args:
        df: the rows, one for each event.
        key: source of the publisher's master seed for the workers.
        event: column of whole numbers, each of which always names the same event.
        payload: binary or string column of payloads.
        keep: names of other columns to leave as they are, in the clear, for the broker to see.
        output: name of the column of sealed payloads.
        pad_to: block size in bytes. Payloads are padded to a multiple of it, since lengths leak
            information.
        on_error: "raise" fails the job where a number is negative or occurs twice, and seals
            nothing where the number or the payload is NULL. "reject" gives such rows NULL and the
            reason in a string column "rejected".

    Raises:
        ParameterError: a column is missing or of the wrong type; `keep` names the payload; a number
            comes from rand() or the like; or, when the result is computed, is negative.
        RandomnessReuseError: with "raise", an event number occurs twice; a job checks this.
    """
    check_key(key)
    reject = check_on_error(on_error)
    if event == payload:
        raise ParameterError(f"event={event!r} is also the payload")
    kept = check_keep(keep, [event], [payload])
    require(df, [payload, *kept], whole=[event], rest=False)
    kind = df.schema[payload].dataType.typeName()
    if kind not in ("binary", "string"):
        raise ParameterError(f"column {payload!r} must be binary or a string, got {kind}")
    refuse_unstable(df, event, "event")

    def seal(row: pa.Array) -> pa.Array:
        columns, others = row.flatten(), ["the payload"]
        valid, reasons = readable([event], columns, reject=reject, others=others, numbers=[0])
        numbers, payloads = chosen(valid, *columns)
        texts = payloads.cast(pa.binary()).to_pylist()
        sealed = PayloadSealer(master(key)).seal(texts, integers(numbers), pad_to=pad_to)
        messages = with_nulls(pa.array(sealed, pa.binary()), valid)
        return with_reasons(messages, reasons if reject else None)

    names = [event, payload]
    return encode_rows(
        df, seal, names, kept, output, reject=reject, once=[event], purpose=_ONE_EVENT
    )


def wrap_keys(
    df: DataFrame,
    key: KeySource,
    *,
    event: str = "event",
    subscription: str = "subscription",
    round: str = "round",
    output: str = "wrapped_key",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Wrap each event's key for each row's subscription: adds a binary column of 32 bytes.

    Example:
        .. code-block:: python

            wrapped = cs.wrap_keys(addressed, key)
            # event, subscription, round, wrapped_key

    Args:
        df: the rows, one for each event and subscription. All columns are kept.
        key: source of the publisher's master seed for the workers.
        event: column of the events' numbers.
        subscription: string column with the label of the pair.
        round: column with the round, a whole number.
        output: name of the column of wrapped keys.
        on_error: "raise" fails the job where a (pair, round) occurs twice or a number is negative,
            and wraps nothing where the event, the subscription or the round is NULL. "reject" gives
            such rows NULL and the reason in a string column "rejected".

    Raises:
        ParameterError: a column is missing or of the wrong type; a number comes from rand() or the
            like; or, when the result is computed, is negative.
        RandomnessReuseError: with "raise", a (pair, round) occurs twice; a job checks this.
    """
    check_key(key)
    reject = check_on_error(on_error)
    require(df, [], whole=[round, event], text=[subscription])
    ids = [subscription, round]
    names = [*ids, event]
    for name, argument in ((round, "round"), (event, "event")):
        refuse_unstable(df, name, argument)

    def wrap(row: pa.Array) -> pa.Array:
        columns, seed = row.flatten(), master(key)
        valid, reasons = readable(names, columns, reject=reject, numbers=[1, 2], seed=seed)
        pairs, rounds, numbers = chosen(valid, *columns)
        order, label, number = by_round(pairs, rounds)
        out = np.empty((len(order), KEY_BYTES), dtype=np.uint8)
        sealer = PayloadSealer(seed)
        out[order] = sealer.wrap(integers(numbers)[order], number, pairs=label)
        return with_reasons(binary_column(out, valid), reasons if reject else None)

    return encode_rows(
        df, wrap, names, df.columns, output, reject=reject, once=ids, purpose=_ONE_KEY
    )


def deliver(
    matches: DataFrame,
    sealed: DataFrame,
    *,
    event: str = "event",
    matched: str = "matched",
) -> DataFrame:
    """Join matches with the payloads that the broker sends to the subscriptions that matched.

    Example:
        .. code-block:: python

            matches = cs.match(events, interests, matcher).join(wrapped, ["subscription", "round"])
            delivered = cs.deliver(matches, sealed)
            # event, subscription, round, sealed, wrapped_key: rows that matched

    Args:
        matches: answers, with the wrapped keys. Rows that did not match, or have no answer, are
            dropped.
        sealed: sealed payloads from `seal_payloads`, one row for each event.
        event: column of both DataFrames that names the event.
        matched: boolean column of `matches`.
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
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Decrypt delivered payloads: `df` without `sealed` and `wrapped`, with a binary `output`.

    Example:
        .. code-block:: python

            opened = cs.open_payloads(delivered, key)
            # event, subscription, round, payload

    Args:
        df: the rows, one for each event and subscription.
        key: source of the pairs' seeds, or of the master they come from, for the workers.
        subscription: string column with the label of the pair.
        round: column with the round, a whole number.
        sealed: binary column of sealed payloads.
        wrapped: binary column of wrapped keys.
        output: name of the column of payloads.
        on_error: "raise" fails the job at the first row that cannot be opened, and opens nothing
            where a column is NULL. "reject" gives such rows NULL and the reason in a string column
            "rejected".

    Raises:
        DecodeError (when the result is computed): with "raise", a payload, key, pair or round does
            not fit. The error names its row by subscription and round.
        KeyMismatchError (when the result is computed): with "raise", the key has no seed for a
            pair.
    """
    check_key(key)
    reject, ids = check_on_error(on_error), [subscription, round]
    require(df, [], whole=[round], text=[subscription], binary=[sealed, wrapped])
    kept = [name for name in df.columns if name not in (sealed, wrapped)]
    names = [*ids, sealed, wrapped]

    def open_rows(row: pa.Array) -> pa.Array:
        columns, source = row.flatten(), seeds(key)
        valid, reasons = readable(names, columns, reject=reject, numbers=[1], seed=source)
        pairs, rounds, ciphertexts, keys = chosen(valid, *columns)
        order, label, number = by_round(pairs, rounds)
        rows, good = binary_rows(keys, KEY_BYTES)
        texts = ciphertexts.take(pa.array(order)).to_pylist()
        opener = PayloadOpener(source)
        opened, causes = opener.examine(texts, rows[order], number, pairs=label)
        problems = {int(order[at]): cause for at, cause in causes.items()}
        problems |= dict.fromkeys(np.flatnonzero(~good).tolist(), _KEY_WIDTH)
        if not reject:
            refuse_rows(problems, ids, (pairs, rounds), _ADVICE)
        places = np.flatnonzero(valid)
        for at, cause in problems.items():
            reasons[places[at]] = cause
        back = pa.array(opened, pa.binary()).take(pa.array(np.argsort(order)))
        return with_reasons(with_nulls(back, valid), reasons if reject else None)

    return encode_rows(df, open_rows, names, kept, output, reject=reject)
