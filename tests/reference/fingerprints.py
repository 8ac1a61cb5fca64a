"""Slow twin of `Scheme.fingerprint`: its input to the hash, written out by hand.

The hash is SHA-256 over JSON with sorted names: the scheme and its version, the schema's names and
types, the public parameters, the format of messages of rounds, and all else that messages depend
on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any


def fingerprint(
    scheme: str, attributes: Sequence[dict[str, Any]], parameters: dict[str, Any], layout: Any
) -> bytes:
    """Return the fingerprint of a matcher of version 1 whose messages have rounds, in format 2."""
    described = {
        "layout": layout,
        "parameters": parameters,
        "rounds": 2,
        "schema": {"attributes": list(attributes)},
        "scheme": scheme,
        "version": 1,
    }
    return sha256(json.dumps(described, sort_keys=True).encode()).digest()


def uint(name: str, bits: int) -> dict[str, Any]:
    """Describe UInt(bits) as a schema does."""
    return {"name": name, "type": "UInt", "bits": bits, "nullable": False}


def category(name: str, values: list[str]) -> dict[str, Any]:
    """Describe Category(values)."""
    return {"name": name, "type": "Category", "values": values, "nullable": False}


def decimal(name: str, low: str, high: str, step: str) -> dict[str, Any]:
    """Describe Decimal(low, high, step)."""
    return {
        "name": name, "type": "Decimal", "low": low, "high": high, "step": step, "nullable": False
    }  # fmt: skip


def index_digest(index: Sequence[int]) -> str:
    """Hash an index sequence, each number in four bytes, least byte first."""
    return sha256(
        b"".join(number.to_bytes(4, "little", signed=True) for number in index)
    ).hexdigest()
