"""What functions on message stores share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from ccbps.matching.contract import Answers, Keying
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import check_matcher, refuse_given, require
from ccbps.store.index import StoreKind, serves_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["as_spark", "check_kind", "check_pairs", "message_columns"]

_KINDS: Final[dict[pa.DataType, type[DataType]]] = {
    pa.string(): StringType,
    pa.binary(): BinaryType,
    pa.int32(): IntegerType,
    pa.int64(): LongType,
    pa.bool_(): BooleanType,
}


def check_pairs(matcher: Matcher) -> None:
    """A matcher whose messages belong to pairs and rounds."""
    check_matcher(matcher)
    if matcher.answers is not Answers.PAIRS:
        raise ParameterError(
            f"message stores hold messages of pairs and rounds, which {type(matcher).__name__} "
            "has not: write its messages as a table, such as Parquet, and call match"
        )


def check_kind(kind: str) -> None:
    """A side."""
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
    """Names of the column with messages, and of the one with subscriptions where there are some;
    as `write_messages` is told of them, checked."""
    check_kind(kind)
    check_pairs(matcher)
    message = f"{kind}_message" if message is None else message
    labels = ["subscription" if subscription is None else subscription]
    if serves_all(matcher, kind):
        refuse_given(matcher, Keying.ROUNDS, subscription=subscription)
        labels = []
    require(df, [], whole=[round], text=labels, binary=[message], rest=False)
    return message, labels


def as_spark(schema: pa.Schema) -> StructType:
    """The same schema as Spark has it."""
    return StructType([StructField(field.name, _kind(field.type)) for field in schema])


def _kind(of: pa.DataType) -> DataType:
    if pa.types.is_list(of):
        return ArrayType(_kind(of.value_type), of.value_field.nullable)
    return _KINDS[of]()
