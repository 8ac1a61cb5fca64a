"""Public parameters of a matcher, and what it costs, as data.

Parameters are equal where a hash of all of them, the fingerprint, is.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any, Final, Literal, Self

from ccbps.errors import KeyMismatchError, ParameterError, UnsupportedPredicateError
from ccbps.keys.role_key import Role, RoleKey
from ccbps.predicates import Predicate, Schema

__all__ = [
    "ROLES",
    "ClientRole",
    "Cost",
    "PublicParameters",
    "bound_predicate",
    "check_key",
    "fingerprint_of",
]


def fingerprint_of(described: Mapping[str, Any]) -> bytes:
    """32 bytes that name public parameters, which must be JSON."""
    return sha256(json.dumps(described, sort_keys=True).encode()).digest()


ClientRole = Literal["publisher", "subscriber", "broker"]
ROLES: Final[tuple[ClientRole, ...]] = ("publisher", "subscriber", "broker")


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of what a scheme costs.

    Attributes:
        role: who pays: "publisher", "subscriber" or "broker".
        per: for each "event", "interest" or "pair".
        operation: what is counted, such as "exponentiation" or "AES block".
        count: how many.
    """

    role: ClientRole
    per: Literal["event", "interest", "pair"]
    operation: str
    count: float


class PublicParameters:
    """What all matchers are: compared and hashed by their fingerprint."""

    fingerprint: bytes

    def __new__(cls, schema: Schema, *arguments: Any, **options: Any) -> Self:
        # Here, so that every matcher's constructor may use the schema from its first line on.
        if not isinstance(schema, Schema):
            raise ParameterError(
                f"schema must be a ccbps.Schema, got {type(schema).__name__}; make one with "
                "Schema(price=UInt(16), ...)"
            )
        return super().__new__(cls)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicParameters):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


class ParsedPredicates:
    """The predicates parsed last, by text and schema, up to a number of characters in all.

    Batches of one job bring the same texts again and again, and parsing is most of what preparing
    an interest costs. A predicate takes some sixty times its text. Texts that are refused are not
    kept. Threads may share it.

    Hazard: the texts stay in the memory of the process that encodes them.
    """

    def __init__(self, characters: int) -> None:
        self._most, self._used = characters, 0
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Predicate] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<ParsedPredicates: {len(self._kept)}>"

    def __len__(self) -> int:
        return len(self._kept)

    def parse(self, schema: Schema, text: str) -> Predicate:
        """As `Schema.parse`."""
        # Not by the schema itself, whose hash takes all categories of all attributes.
        key = text, tuple(schema)
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found.schema == schema:
                self._kept.move_to_end(key)
                return found
        predicate = schema.parse(text)
        with self._lock:
            if len(text) <= self._most:
                self._used += 0 if key in self._kept else len(text)
                self._kept[key] = predicate
                self._kept.move_to_end(key)
            while self._used > self._most:
                (old, _), _ = self._kept.popitem(last=False)
                self._used -= len(old)
        return predicate


PARSED: Final = ParsedPredicates(1 << 20)
"""Of this process: some twenty thousand predicates, and 60 MB."""


def bound_predicate(schema: Schema, interest: Any, what: str = "an interest") -> Predicate:
    """SQL text or a `Predicate` of this schema, with all its constants; `what` it is, for errors.

    Raises:
        ParameterError: it is neither, or of another schema.
        PredicateError: it does not parse, or a private constant has no value.
    """
    if isinstance(interest, str):
        interest = PARSED.parse(schema, interest)
    if not isinstance(interest, Predicate):
        raise ParameterError(
            f"{what} is a predicate (SQL text or Predicate), got {type(interest).__name__}"
        )
    if interest.schema != schema:
        raise ParameterError("the predicate was parsed for another schema")
    if interest.unbound_names:
        names = ", ".join(interest.unbound_names)
        raise UnsupportedPredicateError(
            f"private constants ({names}) need values; call bind first",
            text=interest.text,
            summary="private constants need values; call bind first",
        )
    return interest


def check_key(matcher: PublicParameters, key: RoleKey, role: Role) -> None:
    """Raise KeyMismatchError unless this is a key of that role and matcher."""
    if not isinstance(key, RoleKey):
        where = "; matcher.key_server() gives it" if getattr(matcher, "has_key_server", 0) else ""
        raise KeyMismatchError(f"a {role} needs a RoleKey, got {type(key).__name__}{where}")
    if key.matcher != matcher.fingerprint:
        raise KeyMismatchError(f"this key belongs to another matcher than {matcher!r}")
    if key.role != role:
        raise KeyMismatchError(f"this is the key of a {key.role}, wanted a {role}'s")
