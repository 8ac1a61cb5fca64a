"""Leakage cards: what a matcher's broker learns, as data that docs, planner and people read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from textwrap import indent, wrap
from typing import Any, Final, Literal

FROM_ANSWERS: Final = (
    "from answers: seeing which subscriptions match the same events puts nested ones in order, "
    "and every event between their bounds",
    "from answers: anyone who can have events of their choice published finds a bound of k bits "
    "with k of them",
)
"""Attacks that no matcher can prevent if it tells the adversary who matched what."""


_INTEGRITY: Final = {
    ("one-time", True): "none: whoever alters messages on their way may change answers; only what "
    "is malformed, or of another pair or round, is refused",
    ("reusable", True): "a MAC of 64 bits, under a key that the broker shares with publishers, and "
    "another with subscribers",
    ("reusable", False): "requests and sessions are signed, payloads sealed; slots of events are "
    "not, so whoever alters them keeps an event from its readers",
}
"""By reuse and answers."""


class Protects(Enum):
    """What a scheme may keep from its broker, for planners; a card's `hides` says it exactly.

    A scheme protects what its broker, with the messages, the answers and public parameters, and
    with nobody's help, learns nothing about but what the answers say.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakageCard:
    """What is protected, against whom, and what is not.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> card = FormulaMatch.box(Schema(price=UInt(16))).leakage
        >>> card.security, card.reuse
        ('perfect', 'one-time')
        >>> card.learns[0]
        'whether the event matches the predicate'

    Attributes:
        scheme: the matcher's name.
        adversary: whose view the card is about, and how that party behaves.
        hides: what the adversary does not learn.
        protects: the same for planners, in a word each.
        learns: everything the adversary does learn.
        security: "perfect" (information-theoretic), "computational" or "broken".
        assumption: what security rests on.
        reuse: "one-time" (fresh messages for every pair) or "reusable".
        hazards: what voids the card.
        integrity: what becomes of messages that somebody alters on their way.
        answers: whether the adversary sees match bits. If so, `FROM_ANSWERS` are known attacks.
        attacks: known attacks, each with what it needs and what it gives; those from answers last.
    """

    scheme: str
    adversary: str
    hides: tuple[str, ...]
    protects: frozenset[Protects]
    learns: tuple[str, ...]
    security: Literal["perfect", "computational", "broken"]
    assumption: str
    reuse: Literal["one-time", "reusable"]
    hazards: tuple[str, ...] = field(default=())
    attacks: tuple[str, ...] = field(default=())
    integrity: str = ""
    answers: bool = True

    def __post_init__(self) -> None:
        if not self.integrity:
            object.__setattr__(self, "integrity", _INTEGRITY[self.reuse, self.answers])
        if self.answers:
            others = (attack for attack in self.attacks if attack not in FROM_ANSWERS)
            object.__setattr__(self, "attacks", (*others, *FROM_ANSWERS))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        found = asdict(self)
        found["protects"] = sorted(one.name for one in self.protects)
        return found

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
