"""Encoders as functions of Arrow columns, whose types are known only when a batch comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ccbps.arrow import chosen, is_valid, with_nulls
from ccbps.columnar.encoding import event_messages, interest_messages
from ccbps.columnar.sessions import payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_KINDS: Final[dict[str, tuple[str, Callable[[pa.DataType], bool]]]] = {
    "subscription": ("a string", _is_text),
    "round": ("a whole number", pa.types.is_integer),
    "number": ("a whole number", pa.types.is_integer),
    "predicate": ("a string", _is_text),
    "payload": ("binary", lambda kind: kind in (pa.binary(), pa.large_binary())),
}


def event_arguments(matcher: Matcher) -> list[str]:
    """Name the columns of `event_column` in order."""
    pairs = ["subscription"] * (matcher.answers is Answers.PAIRS)
    names = {Keying.ROUNDS: ["round"], Keying.SESSION: ["number"], Keying.SERVER: []}
    return [*pairs, *names[matcher.keying], "record", *["payload"] * bool(payload_bytes(matcher))]


def interest_arguments(matcher: Matcher) -> list[str]:
    """Name the columns of `interest_column` in order."""
    ids = ["subscription", "round"] * (matcher.keying is Keying.ROUNDS)
    return [*ids, "predicate" if matcher.private_names is None else "record"]


def event_column(
    matcher: Matcher, key: KeySource, columns: Sequence[pa.Array], *, reject: bool
) -> pa.Array:
    """Encode a batch of events.

    Args:
        matcher: the public parameters.
        key: source of the publisher's key or seeds.
        columns: columns of the batch, as `event_arguments` names them. The record is a struct whose
            fields are found by their names.
        reject: whether to set aside rows that cannot be encoded.

    Returns:
        binary, NULL where a column is; with `reject`, a struct of the message and the reason.

    Raises:
        ParameterError: columns are of the wrong number or type, or the record lacks a field.
        EventError: a row cannot be encoded, and is not set aside.
    """
    names = event_arguments(matcher)
    valid, given = _checked(names, columns, [*matcher.schema])
    payload = [given.pop("payload")] if "payload" in given else []
    record = given.pop("record")
    row = _row([*given.values(), *payload, *record.flatten()])
    made = event_messages(matcher, key, row, [*given], payload=bool(payload), reject=reject)
    return with_nulls(made, valid)


def interest_column(
    matcher: Matcher,
    key: KeySource,
    columns: Sequence[pa.Array],
    *,
    double_quoted_strings: bool,
    reject: bool,
) -> pa.Array:
    """Encode a batch of interests.

    Args:
        matcher: the public parameters.
        key: source of the subscriber's key or seeds.
        columns: columns of the batch, as `interest_arguments` names them. A record has the values
            of the matcher's `private_names`.
        double_quoted_strings: read text in double quotes as strings; see `Schema.parse`.
        reject: whether to set aside rows that cannot be encoded.

    Returns:
        binary, NULL where a column is; with `reject`, a struct of the message and the reason.

    Raises:
        ParameterError: columns are of the wrong number or type, or the record lacks a field.
        PredicateError: an interest cannot be encoded, and is not set aside.
    """
    *ids, last = interest_arguments(matcher)
    valid, given = _checked([*ids, last], columns, matcher.private_names or ())
    parts = given["record"].flatten() if last == "record" else [given["predicate"]]
    row = _row([*(given[name] for name in ids), *parts])
    made = interest_messages(
        matcher, key, row, ids, double_quoted_strings=double_quoted_strings, reject=reject
    )
    return with_nulls(made, valid)


def _checked(
    names: Sequence[str], columns: Sequence[pa.Array], fields: Sequence[str]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], dict[str, pa.Array]]:
    """Return the mask of rows whose record is not NULL, and their columns by name.

    Of the record only `fields` are left, in order.
    """
    if len(columns) != len(names):
        raise ParameterError(
            f"this function takes the columns {', '.join(names)}; got {len(columns)} columns"
        )
    given = dict(zip(names, columns, strict=True))
    for name, column in given.items():
        if name in _KINDS and not pa.types.is_null(column.type):
            kind, is_kind = _KINDS[name]
            if not is_kind(column.type):
                raise ParameterError(f"{name} must be {kind}, got {column.type}; cast it first")
    if "record" not in given:
        return np.ones(len(columns[0]), dtype=np.bool_), given
    record = given["record"]
    record_fields = record.type.names if pa.types.is_struct(record.type) else []
    if missing := [name for name in fields if record_fields.count(name) != 1]:
        has = ", ".join(record_fields) if record_fields else str(record.type)
        raise ParameterError(
            f"the record must be a struct with the fields {', '.join(fields)}, each once; "
            f"{missing[0]!r} is not there once: it has {has}. Take F.struct(...)"
        )
    for name in fields:
        if pa.types.is_float32(record.type[name].type):
            raise ParameterError(
                f"field {name!r} is FLOAT, whose 24 bits hold neither most decimals nor all whole "
                "numbers; cast it to the decimals that it stands for"
            )
    valid = is_valid(record)
    given = dict(zip(given, chosen(valid, *given.values()), strict=True))
    parts = [given["record"].field(name) for name in fields]
    given["record"] = pa.StructArray.from_arrays(parts, names=[*fields])
    return valid, given


def _row(columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays([*columns], names=[str(n) for n in range(len(columns))])
