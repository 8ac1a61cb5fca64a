"""What a scheme costs, as data: operations that can be counted, and priced on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Operation(Enum):
    """What a scheme's cost is counted in.

    Example:
        >>> from ccbps.matching import Operation
        >>> Operation.AES_BLOCK.value
        'AES block'
    """

    WORD = "64-bit word operation"
    BIT = "bit operation"
    COMPARISON = "comparison"
    MULTIPLICATION = "64-bit multiplication"
    AES_BLOCK = "AES block"
    HASH_BLOCK = "SHA-256 block"
    GROUP_PRODUCT = "product in a small group"
    MODULAR_PRODUCT = "modular product"
    EXPONENTIATION = "exponentiation"
    FIXED_BASE = "exponentiation of a fixed base"
    SIGNATURE = "signature made and checked"


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of what a scheme costs.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Operation, TagMatch
        >>> for cost in TagMatch(Schema(price=UInt(8))).costs:
        ...     if cost.role == "broker" and cost.operation is Operation.AES_BLOCK:
        ...         print(f"per {cost.per}: {cost}")
        per pair: ...

    Attributes:
        role: who pays: "publisher", "subscriber" or "broker".
        per: for each "event", "interest" or "pair".
        operation: what is counted.
        count: how many.
        of: the group, modulus or exponent, where the operation depends on it: "modp2048",
            "4096 bits".
        note: when, or how exactly: "at most", "for each topic".
    """

    role: Literal["publisher", "subscriber", "broker"]
    per: Literal["event", "interest", "pair"]
    operation: Operation
    count: float
    of: str = ""
    note: str = ""

    def __str__(self) -> str:
        of, note = f" ({self.of})" if self.of else "", f", {self.note}" if self.note else ""
        return f"{self.count:,.15g} x {self.operation.value}{of}{note}"
