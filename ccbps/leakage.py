"""Leakage cards: the knowledge of a matcher's broker, as data for the docs, planners and people."""

from __future__ import annotations

from enum import Enum
from textwrap import indent, wrap
from typing import Any, Final, Literal

from msgspec import Struct, structs

FROM_ANSWERS: Final = (
    "from answers: seeing which subscriptions match the same events gives the order of nested "
    "subscriptions, and between which of their bounds each event lies",
    "from answers: anyone who can have events of their choice published finds a bound of k bits "
    "with k events",
)
"""Attacks that no matcher can prevent if it tells the adversary which pairs match."""

_INTEGRITY: Final = {
    ("one-time", True): "none: whoever alters messages on their way may change answers; only what "
    "is malformed, or of another pair or round, is refused",
    ("reusable", True): "a MAC of 64 bits, under a key that the broker shares with publishers, and "
    "another with subscribers",
    ("reusable", False): "requests and sessions are signed, payloads sealed; slots of events are "
    "not, so whoever alters a slot prevents its reader from opening the event",
}
"""Default `LeakageCard.integrity` by reuse and answers."""

WithClient = Literal["nothing", "pairs", "others"]
WITH_CLIENT: Final[dict[WithClient, str]] = {
    "nothing": "what the client may read, and what answers to its messages tell",
    "pairs": "events that meet the client's subscriptions, subscriptions that meet its events, and "
    "what answers to these tell",
    "others": "events and subscriptions of others, too, read or found by guessing",
}
"""Upper bounds of the facts that a broker learns with the help of one client, in words."""


class Protects(Enum):
    """A kind of data that a scheme may protect, for planners. A card's `hides` is exact.

    A scheme protects data if its broker learns nothing about it but what follows from the answers.
    The broker has the messages, the answers and public parameters, and no help.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.leakage import Protects
        >>> from ccbps.matching import FormulaMatch
        >>> card = FormulaMatch.box(Schema(price=UInt(16))).leakage
        >>> Protects.ATTRIBUTES in card.protects, Protects.MATCH in card.protects
        (True, False)
    """

    EVENT = "values of events"
    CONSTANTS = "constants of subscriptions"
    ATTRIBUTES = "which attributes a subscription constrains"
    FORMULA = "the form of a subscription"
    MATCH = "which events match which subscriptions"
    EQUALITY_OF_EVENTS = "which events are equal"
    EQUALITY_OF_INTERESTS = "which subscriptions are equal"


class LeakageCard(Struct, frozen=True, kw_only=True):
    """A statement of the protected data, the adversary, and the data that it learns.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> card = FormulaMatch.box(Schema(price=UInt(16))).leakage
        >>> card.security, card.reuse
        ('perfect', 'one-time')
        >>> card.learns[0]
        'whether the event matches the predicate'

    Attributes:
        scheme: name of the matcher.
        adversary: party with the described view, and its behaviour.
        hides: facts that the adversary does not learn.
        protects: kinds of protected data, for planners.
        learns: all facts that the adversary learns.
        security: "perfect" (information-theoretic), "computational" or "broken".
        assumption: assumption of the security.
        reuse: "one-time" (fresh messages for every pair) or "reusable".
        hazards: circumstances that void the card.
        integrity: consequences for messages that are altered on their way.
        with_client: upper bound of the facts that the broker learns with the help of one client,
            a key of `WITH_CLIENT`; by default, the widest.
        answers: True if the adversary sees match bits. Then `FROM_ANSWERS` are known attacks.
        attacks: known attacks with their requirements and results; those from answers are last.
    """

    scheme: str
    adversary: str
    hides: tuple[str, ...]
    protects: frozenset[Protects]
    learns: tuple[str, ...]
    security: Literal["perfect", "computational", "broken"]
    assumption: str
    reuse: Literal["one-time", "reusable"]
    hazards: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    integrity: str = ""
    with_client: WithClient = "others"
    answers: bool = True

    def __post_init__(self) -> None:
        if not self.integrity:
            structs.force_setattr(self, "integrity", _INTEGRITY[self.reuse, self.answers])
        if self.answers:
            others = (attack for attack in self.attacks if attack not in FROM_ANSWERS)
            structs.force_setattr(self, "attacks", (*others, *FROM_ANSWERS))

    def to_dict(self) -> dict[str, Any]:
        """Convert the card to plain data for JSON."""
        return structs.asdict(self) | {"protects": sorted(kind.name for kind in self.protects)}

    def __str__(self) -> str:
        rows = [
            ("adversary", (self.adversary,)),
            ("learns", self.learns),
            ("does not learn", self.hides),
            ("security", (f"{self.security}; {self.assumption}",)),
            ("messages", (self.reuse,)),
            ("integrity", (self.integrity,)),
            ("void if", self.hazards or ("-",)),
            ("known attacks", self.attacks or ("none",)),
        ]
        lines = [f"Leakage card: {self.scheme}"]
        for name, texts in rows:
            text = "\n".join("\n".join(wrap(t, 74, subsequent_indent="  ")) for t in texts)
            lines.append(f"  {name + ':':<16}{indent(text, ' ' * 18).lstrip()}")
        return "\n".join(lines)
