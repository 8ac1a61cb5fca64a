"""Truth values as an attribute type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ccbps.predicates.types import AttributeType, ConstantError, Outcome, Refused


@dataclass(frozen=True, repr=False)
class Bool(AttributeType):
    """A truth value; FALSE sorts before TRUE. Integers 0 and 1 are not accepted for it.

    Example:
        >>> from ccbps import Bool, Schema
        >>> schema = Schema(active=Bool(), checked=Bool(nullable=True))
        >>> records = {"active": [True, True, False], "checked": [True, None, True]}
        >>> schema.parse("active AND checked").evaluate(records)
        array([ True, False, False])
    """

    @property
    def cardinality(self) -> int:
        return 2

    @property
    def accepts(self) -> str:
        return "a boolean (True or False)"

    def parameters(self) -> dict[str, Any]:
        return {}

    def bisect(self, constant: Any) -> tuple[int, int]:
        if not isinstance(constant, (bool, np.bool_)):
            raise ConstantError("a Bool compares with TRUE and FALSE")
        return int(constant), int(constant) + 1

    def number_of(self, value: Any) -> int:
        if not isinstance(value, (bool, np.bool_)):
            raise Refused(f"wrong type ({type(value).__name__})")
        return int(value)

    def numbers_of(self, values: npt.NDArray[Any], scale: int) -> Outcome | None:
        return (values.astype(np.uint64), []) if values.dtype.kind == "b" else None
