"""Constants: which codes an operand selects, and whether it fits its attribute at all.

The one place where comparison operators, LIKE patterns and Hamming centres meet attribute types.
Both readings of a predicate (plaintext meaning, lowering) and both checks (while parsing, while
binding) ask here. Errors say what is accepted and never repeat the constant: it may be private.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ccbps.predicates.numeric import UInt
from ccbps.predicates.types import AttributeType, ConstantError


class PatternError(ConstantError):
    """A constant, pattern or Hamming attribute that is valid SQL but outside the language."""


def is_prefix(pattern: Any) -> bool:
    """Tell whether a LIKE pattern ends in its one wildcard; without one it is an equality.

    Raises:
        PatternError: other wildcards, or a backslash (an escape to some engines, not to others).
        ConstantError: not a string.
    """
    if not isinstance(pattern, str):
        raise ConstantError("LIKE needs a string pattern in single quotes")
    stem = pattern.removesuffix("%")
    if "%" in stem or "_" in stem or "\\" in stem:
        raise PatternError(
            "LIKE takes a text with at most one wildcard, a final %, and without _ or backslash"
        )
    return stem != pattern


def selected(kind: AttributeType, use: str, constant: Any) -> tuple[int, int]:
    """Return the codes (low, high), both included, for a use: =, <, <=, >, >= or "like".

    Raises:
        ConstantError: see `AttributeType.code_range` and `is_prefix`.
    """
    if use != "like":
        return kind.code_range(use, constant)
    kind.check_operator("prefix")
    if is_prefix(constant):
        return kind.code_range("prefix", constant.removesuffix("%"))
    return kind.code_range("=", constant)


def hamming_code(kind: AttributeType, constant: Any) -> int:
    """Return the code of the centre of a Hamming ball.

    Raises:
        ConstantError: not an integer of the attribute's width: its surplus bits would count.
    """
    low, high = kind.code_range("=", constant)
    if low > high:
        raise ConstantError(f"hamming(attribute, value) needs a value that is {kind.accepts}")
    return low


def check_use(kind: AttributeType, use: str) -> None:
    """Refuse a use that no constant at all makes fit the type.

    Raises:
        ConstantError: the use does not fit.
    """
    if use == "hamming":
        if not isinstance(kind, UInt):
            raise ConstantError("hamming(attribute, value) needs a UInt attribute")
        if kind.nullable:
            raise PatternError("hamming(attribute, value) needs an attribute without NULL")
    else:
        kind.check_operator("prefix" if use == "like" else use)


def check_constant(kind: AttributeType, use: str, constant: Any) -> None:
    """Refuse a constant, other than NULL, that does not fit the use.

    Raises:
        ConstantError: the constant or the use does not fit.
    """
    if use == "hamming":
        check_use(kind, use)
        hamming_code(kind, constant)
    else:
        selected(kind, use, constant)


def told_apart(constants: Mapping[Any, Any]) -> Hashable | None:
    """Return a key that tells constants apart wherever some attribute does.

    Returns:
        the key, which holds the constants; None if a constant cannot be hashed.
    """
    # Types too: True is no 1 to a schema. And folds: the hour that clocks repeat in autumn is
    # twice the same to ==.
    items = tuple(
        (name, type(value), value, getattr(value, "fold", 0)) for name, value in constants.items()
    )
    try:
        hash(items)
    except TypeError:
        return None
    return items
