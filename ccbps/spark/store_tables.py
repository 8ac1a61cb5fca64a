"""What functions on message stores share."""

from __future__ import annotations

import pyarrow as pa

from ccbps.errors import ParameterError
from ccbps.matching.contract import Answers
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import check_matcher

__all__ = ["as_spark", "check_kind", "check_pairs"]


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


def as_spark(schema: pa.Schema) -> str:
    """The same schema in Spark's words."""
    kinds = {
        pa.string(): "string",
        pa.binary(): "binary",
        pa.int64(): "long",
        pa.bool_(): "boolean",
    }

    def kind(of: pa.DataType) -> str:
        return f"array<{kind(of.value_type)}>" if pa.types.is_list(of) else kinds[of]

    return ", ".join(f"{field.name} {kind(field.type)}" for field in schema)
