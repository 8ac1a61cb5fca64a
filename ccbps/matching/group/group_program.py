"""GroupMatch: what the matchers by blinded group programs have in common but their messages.

Public parameters, sizes, costs and what the broker learns; the messages themselves are
`ccbps.matching.group.group_messages`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ccbps.algebra import A5, S5, Group
from ccbps.arrays import Bools
from ccbps.circuits import Circuit
from ccbps.circuits.bristol import BristolCircuit
from ccbps.encodings.group import LAYOUT, GroupEncoding
from ccbps.errors import ParameterError
from ccbps.forms.bits import event_bits
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import within_text
from ccbps.matching.contract.scheme import Cost, Operation, Operator, bound_predicate
from ccbps.matching.group.group_messages import GroupMessages, sizes_of
from ccbps.predicates import Events, Predicate, Schema
from ccbps.programs.group import PreservingProgram

GROUPS: Final[Mapping[str, Group]] = {"A5": A5, "S5": S5}
PROPOSED: Final = 1 << 21
"""Most elements of a publisher in what is proposed: its messages are a megabyte and a half."""


MAX_ELEMENTS: Final = 1 << 34
"""Most elements of a publisher at all: its messages are gigabytes."""


class GroupMatch(GroupMessages):
    """A matcher by blinded group programs.

    Attributes:
        group: where the elements are.
        length: l, elements of the publisher; the subscriber has l + 1.
        encoding: the two encoders and the decoder.
    """

    operators: tuple[Operator, ...] = (
        "=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming",
    )  # fmt: skip
    _hides: frozenset[Protects]
    """What is protected of a subscription."""

    def _compile(self, schema: Schema, group: str | Group, length: int) -> None:
        """To be called at the end of the constructor."""
        self._afford(self._group_of(group), length)
        self.group, self.length = self._group_of(group), length
        self.encoding = GroupEncoding(self.group, length)
        self._set_up(schema, sizes_of(self.encoding))

    @staticmethod
    def _afford(group: Group, length: int) -> None:
        """Refuse what would be too long, before it is built.

        Args:
            group: where the elements are.
            length: the publisher's elements, or what they surely are not less than.

        Raises:
            ParameterError: they are too many, at all or for a matcher of a text.
        """
        if length > MAX_ELEMENTS:
            raise ParameterError(
                f"messages would have {length:,} elements, more than {MAX_ELEMENTS:,}: take fewer "
                "or shorter attributes, or fewer instructions"
            )
        within_text(group.element_bytes(group.padded(length)))

    @staticmethod
    def _group_of(group: str | Group) -> Group:
        """A group by its name."""
        if isinstance(group, Group):
            return group
        if not isinstance(group, str) or group not in GROUPS:
            raise ParameterError(
                f"group must be one of {', '.join(map(repr, GROUPS))}, got {group!r}"
            )
        return GROUPS[group]

    def layout(self) -> Any:
        """Lengths, and the index sequence, for which both parties' elements are made."""
        index = sha256(np.ascontiguousarray(self._positions, dtype="<i4").data).hexdigest()
        randomness = self.encoding.segment_randomness
        return [LAYOUT, self.length, self.encoding.segment, randomness, index]

    @property
    def elements(self) -> int:
        """Elements in the broker's product, 2 l + 1."""
        return 2 * self.length + 1

    @property
    @abstractmethod
    def _public(self) -> str:
        """The public parameters, in words."""

    @property
    @abstractmethod
    def _hidden(self) -> str:
        """What is hidden of a subscription, in words."""

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return self._perfect(self._public, self._hidden, self._hides)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role for a pair."""
        count, product = 2 * self.length, Operation.GROUP_PRODUCT
        return (
            Cost("publisher", "pair", product, count, of=self.group.name),
            Cost("subscriber", "pair", product, count, of=self.group.name),
            Cost("broker", "pair", product, count, of=self.group.name),
        )

    def explain(self) -> str:
        """Program size, bytes per side, predicted operations and the leakage card, as text."""
        length = self.length
        return self._explain(
            [
                ("public", self._public),
                ("group", f"{self.group.name}, {self.group.order} elements"),
                ("segments", f"{len(self.encoding.segments)}"),
                (
                    "program",
                    f"{self.elements:,} elements: {length:,} of the publisher, "
                    f"{length + 1:,} of the subscriber",
                ),
            ]
        )

    def identify(self, prepared: PreservingProgram) -> bytes:
        """See `PairScheme.identify`."""
        return prepared.interstitials.tobytes() + prepared.index.tobytes()

    def meaning(self, interest: Any, events: Events) -> Bools:
        """See `Scheme.meaning`; a circuit's value."""
        if isinstance(interest, Circuit):
            return interest.evaluate(event_bits(events))[:, 0]
        return super().meaning(interest, events)


def formula(schema: Schema, interest: Any) -> Predicate | Circuit:
    """A subscription to a matcher that hides its formula: a predicate, or a circuit.

    Raises:
        PredicateError: it does not parse, or has no value for a private constant.
        ParameterError: it is neither, or of another schema.
    """
    if isinstance(interest, Circuit):
        return interest
    if isinstance(interest, (str, Predicate)):
        return bound_predicate(schema, interest)
    hint = "; pass its most_significant_first()" if isinstance(interest, BristolCircuit) else ""
    raise ParameterError(
        "an interest is a predicate (SQL text or Predicate) or a Circuit, "
        f"got {type(interest).__name__}{hint}"
    )
