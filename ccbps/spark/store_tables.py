"""What functions on message stores share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Keying
from ccbps.spark.frames import check_matcher, refuse_given, require
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind, serves_all
from ccbps.store.once import refuse_twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Stores: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""Path of a store, or of several."""

_KINDS: Final[dict[pa.DataType, type[DataType]]] = {
    pa.string(): StringType,
    pa.binary(): BinaryType,
    pa.int32(): IntegerType,
    pa.int64(): LongType,
    pa.bool_(): BooleanType,
}


def check_pairs(matcher: Matcher) -> None:
    """Refuse a matcher whose messages do not belong to pairs and rounds."""
    check_matcher(matcher)
    if matcher.keying is not Keying.ROUNDS:
        raise ParameterError(
            f"message stores hold messages of pairs and rounds, which {type(matcher).__name__} "
            "has not: write its messages as a table, such as Parquet, and call match"
        )


def check_kind(kind: str) -> None:
    """Refuse anything but a side."""
    if kind not in ("event", "interest"):
        raise ParameterError(f"kind must be 'event' or 'interest', got {kind!r}")


def message_columns(
    df: DataFrame,
    matcher: Matcher,
    kind: StoreKind,
    message: str | None,
    subscription: str | None,
    round: str,
) -> tuple[str, list[str]]:
    """Return the column of messages, and the one of subscriptions where there are some.

    The arguments are those of `write_messages`, and are checked.
    """
    check_kind(kind)
    check_pairs(matcher)
    message = f"{kind}_message" if message is None else message
    labels = ["subscription" if subscription is None else subscription]
    if serves_all(matcher, kind):
        refuse_given(matcher, Keying.ROUNDS, subscription=subscription)
        labels = []
    require(df, [], whole=[round], text=labels, binary=[message], rest=False)
    return message, labels


def indexes(paths: Stores, matcher: Matcher, kind: StoreKind) -> Index:
    """Join the indexes of all stores of a side."""
    name = f"{kind}s"
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(several, list | tuple) or not several:
        raise ParameterError(f"{name} must be a path or a URI as text, or several, got {paths!r}")
    folders = [Folder.of(path, name) for path in several]
    if len({folder.path for folder in folders}) < len(folders):
        raise ParameterError(f"{name} names the same store twice")
    found = [Index.read(folder, matcher, kind) for folder in folders]
    if len(found) > 1:
        refuse_twice(found)
    return Index.together(found)


def as_spark(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's."""
    return StructType([StructField(field.name, _kind(field.type)) for field in schema])


def _kind(of: pa.DataType) -> DataType:
    if pa.types.is_list(of):
        return ArrayType(_kind(of.value_type), of.value_field.nullable)
    return _KINDS[of]()
