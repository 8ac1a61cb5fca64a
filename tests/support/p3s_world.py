"""All parties of P3S in one process: what they publish and subscribe to, and what servers see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ccbps import Category, Schema, UInt
from ccbps.functional import Authority, CpAbe, HiddenVectors
from ccbps.p3s import (
    DisseminationServer,
    Publisher,
    Repository,
    Subscriber,
    TokenAuthority,
    local,
)
from ccbps.p3s.messages import Request

METADATA: Final = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(3))
DESKS: Final = ("bonds", "risk", "shares")
ATTRIBUTES: Final = Schema(desk=Category(DESKS), level=UInt(2))
POLICIES: Final = ("desk = 'shares'", "desk = 'risk' OR level >= 2", "level < 3")


@dataclass
class World:
    """Servers with a log each, and ways to them.

    Attributes:
        members: attributes of the subscribers, by name.
        pairing: name of the pairing.
        limits: limits of the repository.
        keep: number of announcements that the dissemination server keeps.
        now: time of the repository's clock (seconds).
        seen: requests of each server, with the names of clients.
    """

    members: dict[str, dict[str, Any]]
    pairing: str = "transparent"
    limits: dict[str, Any] = field(default_factory=dict)
    keep: int = 1 << 16
    now: float = 0.0
    seen: dict[str, list[tuple[str, Request]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metadata = Authority.generate(HiddenVectors(METADATA, pairing=self.pairing))
        self.access = Authority.generate(CpAbe(ATTRIBUTES, pairing=self.pairing))
        self.authority = TokenAuthority(
            self.metadata, self.access, self.members, log=self.log("authority")
        )
        self.dissemination = DisseminationServer(
            self.metadata.public,
            ["feed"],
            keep=self.keep,
            wait_seconds=0,
            log=self.log("dissemination"),
        )
        self.repository = Repository(
            self.access.public,
            ["feed"],
            clock=lambda: self.now,
            log=self.log("repository"),
            **self.limits,
        )

    def log(self, server: str) -> Any:
        """Return the function that notes the requests of a server."""
        seen = self.seen.setdefault(server, [])
        return lambda client, request: seen.append((client, request))

    def ways(self, client: str) -> list[Any]:
        """Return the ways of a client to authority, dissemination server and repository."""
        return [
            local(server, client)
            for server in (self.authority, self.dissemination, self.repository)
        ]

    def publisher(self) -> Publisher:
        """Return the one publisher."""
        return Publisher.enrol(*self.ways("feed"))

    def subscriber(self, name: str, *predicates: str, **options: Any) -> Subscriber:
        """Return a subscriber with tokens for predicates."""
        return Subscriber.enrol(predicates, *self.ways(name), **options)


def drawn_members(rng: np.random.Generator, count: int) -> dict[str, dict[str, Any]]:
    """Return subscribers with random attributes, by name."""
    return {
        f"subscriber {number}": {
            "desk": DESKS[rng.integers(len(DESKS))],
            "level": int(rng.integers(4)),
        }
        for number in range(count)
    }


def drawn_predicate(rng: np.random.Generator) -> str:
    """Return a random box."""
    low, high = sorted(rng.integers(8, size=2).tolist())
    box = f"price BETWEEN {low} AND {high}"
    return f"issue = '{['AAPL', 'IBM'][rng.integers(2)]}' AND {box}" if rng.integers(2) else box


def drawn_records(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return random metadata."""
    return [
        {"issue": ["AAPL", "IBM"][rng.integers(2)], "price": int(rng.integers(8))}
        for _ in range(count)
    ]


def matches(predicate: str, records: list[dict[str, Any]]) -> set[int]:
    """Return the rows whose metadata satisfies a predicate, in plaintext."""
    holds = METADATA.parse(predicate).evaluate(METADATA.encode(records))
    return set(np.flatnonzero(holds).tolist())


def satisfies(policy: str, attributes: dict[str, Any]) -> bool:
    """Return whether attributes satisfy a policy, in plaintext."""
    return bool(ATTRIBUTES.parse(policy).evaluate(ATTRIBUTES.encode([attributes]))[0])
