"""The base of the reusable schemes: keys from a key server, and a broker that keeps tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bytes, Randomness, Words
from ccbps.checks import fields
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError
from ccbps.keys.role_key import Role
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import (
    Draw,
    Operator,
    ServerScheme,
    TableScheme,
)
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box
from ccbps.wire import Cause

BOXES: Final[tuple[Operator, ...]] = ("=", "<", "interval", "prefix", "and")
"""Operators of a scheme whose interests are boxes: one interval for each attribute."""


class ReusableMatcher(Matcher, ServerScheme, TableScheme):
    """A matcher whose messages are made with a key and matched again and again.

    Attributes:
        shown: fields of the master key that a broker may know. Clients have the whole master key.
        parts: fields of the master key, each of which `check_part` checks.
    """

    shown: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        """Return options of the constructor for matchers that may take a box, cheapest first."""
        return ({},)

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        options: Iterable[Mapping[str, Any]] = ()
        with suppress(CcbpsError):
            options = cls.options_for(schema, bound_predicate(schema, predicate).box())
        for chosen in options:
            with suppress(CcbpsError):
                matcher = cls(schema, **chosen)
                matcher.prepare(predicate)
                yield matcher

    def parameters(self) -> dict[str, Any]:
        return {}

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Any]) -> Bytes:
        """Return the bodies of distinct prepared interests, where these follow from the key."""
        raise NotImplementedError

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        out[:] = self._distinct(key, interests.values)[interests.index]

    def issue(
        self, master: dict[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        return {field: master[field] for field in (self.shown if role == "broker" else master)}

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        fields("key data", data, self.shown if role == "broker" else self.parts)
        for name, value in data.items():
            self.check_part(name, value)

    def check_part(self, name: str, value: Any) -> None:
        """Check a field of a key, as `check_key_data` does."""
        raise NotImplementedError


def check_widths(schema: Schema, most: int, hint: str = "") -> None:
    """Check that no attribute has more than `most` bits.

    Raises:
        ParameterError: an attribute is wider.
    """
    for name in schema:
        if schema[name].bits > most:
            raise ParameterError(
                f"attribute {name!r} must have at most {most} bits, got {schema[name].bits}{hint}"
            )


def causes(malformed: ArrayLike) -> Bytes:
    """Return the `ccbps.wire.Cause` of each body: VALUE where it is malformed."""
    return np.where(malformed, Cause.VALUE, Cause.NONE).astype(np.uint8)


def words_of(bodies: Bytes) -> Words:
    """Return rows of bytes as rows of 64-bit words, least significant byte first."""
    return np.ascontiguousarray(bodies).view("<u8")


def bytes_of(words: Words) -> Bytes:
    """Return rows of 64-bit words, of any further shape, as rows of bytes: reverse `words_of`."""
    rows = np.ascontiguousarray(words, dtype="<u8")
    return rows.view(np.uint8).reshape(len(rows), -1)
