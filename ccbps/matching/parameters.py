"""Public parameters of a matcher: equal where a hash of all of them, the fingerprint, is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

__all__ = ["PublicParameters", "fingerprint_of"]


def fingerprint_of(described: Mapping[str, Any]) -> bytes:
    """32 bytes that name public parameters, which must be JSON."""
    return sha256(json.dumps(described, sort_keys=True).encode()).digest()


class PublicParameters:
    """What all matchers are: compared and hashed by their fingerprint."""

    fingerprint: bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicParameters):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)
