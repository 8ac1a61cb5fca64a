"""Leaks of a candidate: sets of facts that parties learn, which are compared by inclusion.

There is no score. A candidate that shows less than another in every respect is better; of two
candidates that each hide something that the other shows, only the user can tell.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from ccbps.errors import ParameterError
from ccbps.leakage import LeakageCard, Protects

Party = Literal["broker", "subscribers"]

DATA: Final = "data"
"""The fact that the data is read in plaintext."""
FACTS: Final = {**{kind.name.lower(): kind.value for kind in Protects}, DATA: "all data, as it is"}
"""Facts by name, in words."""
PARTIES: Final[tuple[Party, ...]] = ("broker", "subscribers")

T = TypeVar("T")


@dataclass(frozen=True, order=True, slots=True)
class Leak:
    """A fact that a party learns.

    Example:
        >>> from ccbps.planner import Leak
        >>> leak = Leak("broker", "match")
        >>> leak.name, str(leak)
        ('match', 'the broker: which events match which subscriptions')
        >>> Leak("subscribers", "event").name
        'subscribers:event'

    Attributes:
        party: the party: "broker", or "subscribers" for those whom an event does not match.
        fact: a member of `ccbps.leakage.Protects` in lower case, or "data".
    """

    party: Party
    fact: str

    @property
    def name(self) -> str:
        """Name for the arguments of `plan`."""
        return self.fact if self.party == "broker" else f"{self.party}:{self.fact}"

    def __str__(self) -> str:
        return f"the {self.party}: {FACTS[self.fact]}"


NOTHING: Final[frozenset[Leak]] = frozenset()
EVERYTHING: Final = frozenset(Leak("broker", fact) for fact in FACTS)


def leaks_of(card: LeakageCard) -> frozenset[Leak]:
    """Return the facts that a card lets the broker learn."""
    facts = {kind.name.lower() for kind in Protects if kind not in card.protects}
    if card.security == "broken":
        facts.add(DATA)
    return frozenset(Leak("broker", fact) for fact in facts)


def read_leaks(argument: str, names: Collection[str | Protects]) -> frozenset[Leak]:
    """Return the leaks of some names: ``"match"``, ``"subscribers:event"``.

    Raises:
        ParameterError: a name is unknown, or the argument is no collection.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Collection):
        raise ParameterError(f"{argument} must be a collection of names, got {names!r}")
    out = set()
    for name in names:
        text = name.name.lower() if isinstance(name, Protects) else name
        party, _, fact = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if fact not in FACTS or party not in ("", *PARTIES):
            known = ", ".join(FACTS)
            raise ParameterError(
                f"{argument} must be names among {known}, perhaps behind 'subscribers:', "
                f"got {name!r}"
            )
        out.add(Leak("subscribers" if party == "subscribers" else "broker", fact))
    return frozenset(out)


def fronts(sets: Collection[tuple[T, frozenset[Leak]]]) -> list[list[T]]:
    """Sort things by inclusion of their leaks: the minimal ones, those of the rest, and so on."""
    rest, out = list(sets), []
    while rest:
        least = {leaks for _, leaks in rest}
        least = {leaks for leaks in least if not any(other < leaks for other in least)}
        out.append([thing for thing, leaks in rest if leaks in least])
        rest = [(thing, leaks) for thing, leaks in rest if leaks not in least]
    return out
