"""Leakage cards: what a matcher's broker learns, as data that docs, planner and people read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from textwrap import indent, wrap
from typing import Any, Literal

__all__ = ["LeakageCard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakageCard:
    """What is protected, against whom, and what is not.

    Attributes:
        scheme: the matcher's name.
        adversary: whose view the card is about, and how that party behaves.
        hides: what the adversary does not learn.
        learns: everything the adversary does learn.
        security: "perfect" (information-theoretic) or "computational", or "broken".
        assumption: what security rests on.
        reuse: "one-time" (fresh messages for every pair) or "reusable".
        hazards: what voids the card.
        attacks: known attacks, each with what it needs and what it gives; empty when none is known.
    """

    scheme: str
    adversary: str
    hides: tuple[str, ...]
    learns: tuple[str, ...]
    security: Literal["perfect", "computational", "broken"]
    assumption: str
    reuse: Literal["one-time", "reusable"]
    hazards: tuple[str, ...] = field(default=())
    attacks: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [
            ("adversary", (self.adversary,)),
            ("learns", self.learns),
            ("does not learn", self.hides),
            ("security", (f"{self.security}; {self.assumption}",)),
            ("messages", (self.reuse,)),
            ("void if", self.hazards or ("-",)),
            ("known attacks", self.attacks or ("none",)),
        ]
        lines = [f"Leakage card: {self.scheme}"]
        for name, texts in rows:
            text = "\n".join("\n".join(wrap(t, 74, subsequent_indent="  ")) for t in texts)
            lines.append(f"  {name + ':':<16}{indent(text, ' ' * 18).lstrip()}")
        return "\n".join(lines)
