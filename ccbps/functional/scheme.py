"""A scheme of functional encryption as algebra: holdings, targets, and a key encapsulation.

`ccbps.functional.keys` builds public keys, users' keys and encrypted messages on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from ccbps.algebra.pairing import Point, Target, pairing
from ccbps.checks import Printable, instance
from ccbps.errors import ParameterError
from ccbps.predicates import Events, Schema

Draw: TypeAlias = Callable[[int], list[int]]
"""``draw(n)`` gives n uniform exponents."""
Points: TypeAlias = tuple[Sequence[Point], Sequence[Point]]
"""Elements of G1, and elements of G2."""
Shape: TypeAlias = tuple[int, int]
"""Numbers of elements of G1 and G2."""


class FunctionalScheme(Printable, ABC):
    """A scheme of functional encryption, without any key.

    The *holdings* of a user's key and the *target* of a message are policies, records or
    identities. Which of the two is a policy depends on the scheme.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.functional import CpAbe
        >>> CpAbe(Schema(age=UInt(7), ward=UInt(3)), pairing="transparent")
        <CpAbe over age, ward>

    Args:
        schema: attributes of policies and records; None for a scheme without attributes.
        pairing: name of a pairing, see `ccbps.algebra.pairing`.

    Attributes:
        name: name in public keys; never changed.
        checked: True if the opener checks a message by making its points again.
        holdings_type: type of a key's holdings, as `ccbps.records` reads it.
        label_type: type of the part of a target that stands in messages.
        schema: as given.
        group: the pairing.
    """

    name: ClassVar[str]
    checked: ClassVar[bool] = True
    holdings_type: ClassVar[Any]
    label_type: ClassVar[Any]

    def __init__(self, schema: Schema | None, *, pairing: str) -> None:
        self.schema, self.group = schema, _group(pairing)

    def __repr__(self) -> str:
        over = f" over {', '.join(self.schema.names)}" if self.schema else ""
        return f"<{type(self).__name__}{over}>"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.name, self.schema))

    @classmethod
    def made_from(cls, schema: Schema | None, pairing: str) -> FunctionalScheme:
        """Return the scheme with this schema and pairing."""
        return cls(schema, pairing=pairing)

    @property
    def domain(self) -> bytes:
        """Domain separation tag of the scheme's hashes to G1."""
        return b"CCBPS-V01-" + self.name.encode() + b"-BLS12381G1_XMD:SHA-256_SSWU_RO_"

    def hashed(self, word: str) -> Point:
        """Hash a word to G1."""
        return self.group.hash_to_g1(word.encode(), self.domain)

    # -- what users write -----------------------------------------------------------------------

    @abstractmethod
    def holdings(self, given: Any, epoch: int | None) -> Any:
        """Return the holdings of a key for a given record, policy or identity.

        Raises:
            ParameterError: the argument has another type, or the scheme has no epochs.
            PredicateError: a policy does not parse, is too large, or no record satisfies it.
            EventError: a record does not fit the schema.
        """

    @abstractmethod
    def target(self, given: Any, epoch: int | None) -> Any:
        """Return the target of a message; errors are those of `holdings`."""

    def label(self, target: Any) -> Any:
        """Return the part of a target that stands in the message."""
        return target

    def target_of(self, label: Any, holdings: Any) -> Any:
        """Return the target of a message that a key fits, from its label."""
        return label

    # -- algebra --------------------------------------------------------------------------------

    @abstractmethod
    def public_shape(self) -> tuple[int, int, int]:
        """Return the numbers of elements of G1, G2 and GT of a public key."""

    @abstractmethod
    def key_shape(self, holdings: Any) -> Shape:
        """Return the numbers of elements of a user's key."""

    @abstractmethod
    def message_shape(self, label: Any) -> Shape:
        """Return the numbers of elements of a message.

        Raises:
            DecodeError: the label does not fit the schema.
        """

    @abstractmethod
    def setup(self, draw: Draw) -> tuple[Any, Points, Sequence[Target]]:
        """Return a master key, and the points and elements of GT of its public key."""

    @abstractmethod
    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        """Return the points of a user's key."""

    @abstractmethod
    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        """Return the points of a message, and a function that computes its element of GT.

        Openers make the points again, and do not call the function.
        """

    @abstractmethod
    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        """Return functions that compute the element of GT of a message: in most schemes one.

        Raises:
            KeyMismatchError: the key does not fit the label.
        """


class SchemaScheme(FunctionalScheme):
    """A scheme whose policies and records have attributes.

    Args:
        schema: the attributes.
        pairing: name of a pairing, see `ccbps.algebra.pairing`.

    Raises:
        ParameterError: the schema is no `Schema`, or there is no such pairing.
    """

    schema: Schema

    def __init__(self, schema: Schema, *, pairing: str = "bls12-381") -> None:
        super().__init__(instance("schema", schema, Schema), pairing=pairing)


_group = pairing


def record_of(schema: Schema, given: Any) -> Events:
    """Encode one record: a mapping from the names of all attributes to values, or `Events` of one.

    Raises:
        ParameterError: the argument is neither a mapping nor `Events` of one record.
        EventError: the record does not fit the schema.
    """
    if isinstance(given, Events) and given.count == 1:
        return schema.encode(given)
    if not isinstance(given, Mapping):
        raise ParameterError(
            f"a record is a mapping from attributes to values, got {type(given).__name__}"
        )
    return schema.encode([dict(given)])
