"""Attacks on P3S by its servers, from requests alone, without any key.

No server of `ccbps.p3s` can match. But subscribers fetch matching items, each under its name. A
server's log holds pairs of a client and its `ccbps.p3s.messages.Request`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np

from ccbps.arrays import Index, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import whole
from ccbps.delivery.policies import PolicyPayload
from ccbps.functional import Authority, CpAbe, HiddenVectors
from ccbps.p3s import DisseminationServer, Publisher, Repository, Subscriber, TokenAuthority, local
from ccbps.p3s.messages import Request
from ccbps.predicates import Bool, Schema, UInt

ServerLog: TypeAlias = Sequence[tuple[str, Request]]
"""Requests that a server saw, with the names of clients."""


def fetches_of(log: ServerLog) -> dict[str, set[int]]:
    """Find the events that each client fetched, by the order in which items were stored.

    An item is stored just before its event is announced. So together with the dissemination server,
    the repository knows the announcement, too.

    Args:
        log: log of the repository.
    """
    stored = [request.guid for _, request in log if request.verb == "store"]
    number = {guid: row for row, guid in enumerate(stored)}
    fetched: dict[str, set[int]] = defaultdict(set)
    for client, request in log:
        if request.verb == "fetch":
            fetched[client].add(number[request.guid])
    return dict(fetched)


def co_matches(log: ServerLog) -> set[frozenset[str]]:
    """Find the pairs of clients that match the same event.

    Args:
        log: log of the repository.
    """
    fetched = fetches_of(log)
    return {
        frozenset((one, other))
        for one, other in combinations(fetched, 2)
        if fetched[one] & fetched[other]
    }


def containments(log: ServerLog) -> set[tuple[str, str]]:
    """Find the pairs of clients of which the first matches a part of the second one's events.

    Args:
        log: log of the repository.
    """
    fetched = fetches_of(log)
    return {(a, b) for a in fetched for b in fetched if fetched[a] < fetched[b]}


def similarities(log: ServerLog, clients: Sequence[str]) -> Reals:
    """Return Jaccard's index of the fetched events of two clients, shape (clients, clients).

    Clients that fetch more than they need have many events in common. But clients that fetch
    nearly the same still need nearly the same.

    Args:
        log: log of the repository.
        clients: names of the clients.
    """
    fetched = fetches_of(log)
    count = 1 + max((row for rows in fetched.values() for row in rows), default=0)
    seen = np.zeros((len(clients), count))
    for place, name in enumerate(clients):
        seen[place, list(fetched.get(name, ()))] = 1
    both, own = seen @ seen.T, seen.sum(axis=1)
    return np.asarray(both / np.maximum(1, own[:, None] + own - both))


def items_of(log: ServerLog) -> list[PolicyPayload]:
    """Return the stored items, whose policies and padded lengths are in the clear.

    Args:
        log: log of the repository.
    """
    stored = [request.content for _, request in log if request.verb == "store"]
    return [PolicyPayload.from_bytes(content) for content in stored]


def predicates_of(log: ServerLog) -> dict[str, list[str]]:
    """Read the predicates of each client.

    Args:
        log: log of the token authority.
    """
    predicates: dict[str, list[str]] = defaultdict(list)
    for client, request in log:
        if request.verb == "token":
            predicates[client].append(request.content.decode())
    return dict(predicates)


def _repository_log(bits: int, predicates: Mapping[str, str], values: Sequence[int]) -> ServerLog:
    """Let clients receive events, and return what the repository saw."""
    seen: list[tuple[str, Request]] = []
    metadata = Authority.generate(HiddenVectors(Schema(x=UInt(bits)), pairing="transparent"))
    access = Authority.generate(CpAbe(Schema(reads=Bool()), pairing="transparent"))
    authority = TokenAuthority(metadata, access, {name: {"reads": True} for name in predicates})
    dissemination = DisseminationServer(metadata.public, ["feed"], wait_seconds=0)
    repository = Repository(
        access.public, ["feed"], log=lambda client, request: seen.append((client, request))
    )
    servers = authority, dissemination, repository
    feed = Publisher.enrol(*(local(server, "feed") for server in servers))
    clients = [
        Subscriber.enrol([text], *(local(server, name) for server in servers))
        for name, text in predicates.items()
    ]
    feed.publish([{"x": value} for value in values], [b"payload"] * len(values), "reads = TRUE")
    for client in clients:
        while [*client.receive()]:
            pass
    return seen


@attack(
    title="The repository finds out who matches the same events",
    goal="confidentiality",
    adversary="the repository of P3S, with its log, and no key",
    defence="tokens for wider predicates, each wider by another amount; best of all for everything",
    source="[PLKHL12]",
)
def p3s_co_matches(
    *, subscribers: int = 12, events: int = 40, wider: int = 8, bits: int = 4, seed: int = 1
) -> Outcome:
    """Find pairs of subscribers whose intervals overlap.

    Whoever matches fetches. The adversary takes those for overlapping who fetch the same to more
    than some share. Its advantage is the share of true pairs that it finds, less the share of
    others that it takes for true ones, for the best such share: 1 for one who knows, 0 for one who
    guesses. With the defence, each token is for more values than the subscriber needs, a random
    number on each side, and what it does not need, it throws away. That costs fetches. If all
    tokens are wider by the same number, the adversary loses far less.

    Args:
        subscribers: number of subscribers, 3 or more.
        events: number of events, 1 or more.
        wider: number of values by which tokens are wider on each side on average, 1 or more.
        bits: number of bits of a value, 3 to 6.
        seed: seed of intervals and events.

    Example:
        >>> from ccbps.attacks import p3s_co_matches
        >>> advantage = p3s_co_matches()["advantage on overlaps"]
        >>> advantage.undefended > 0.9 > 0.7 > advantage.defended
        True
    """
    whole("subscribers", subscribers, 3)
    whole("events", events, 1)
    whole("wider", wider, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 3, 6)
    width = random.integers(1, size // 3 + 1, subscribers)
    low = random.integers(0, size - width + 1)
    high = low + width - 1
    values = random.integers(0, size, events).tolist()
    names = [f"subscriber {number}" for number in range(subscribers)]
    pairs = np.triu_indices(subscribers, 1)
    true = ((low[:, None] <= high) & (low <= high[:, None]))[pairs]

    def attacked(below: Index, above: Index) -> tuple[float, float]:
        """Return the advantage, and the fetches of an event, for tokens that are wider."""
        ends = zip(np.maximum(low - below, 0), np.minimum(high + above, size - 1), strict=True)
        predicates = {
            name: f"x BETWEEN {a} AND {b}" for name, (a, b) in zip(names, ends, strict=True)
        }
        log = _repository_log(bits, predicates, values)
        fetches = sum(map(len, fetches_of(log).values())) / events
        if true.all() or not true.any():
            return 0.0, fetches
        score = similarities(log, names)[pairs]
        claimed = score >= np.unique(score)[:, None]
        return float(
            (claimed[:, true].mean(axis=1) - claimed[:, ~true].mean(axis=1)).max()
        ), fetches

    margins = sorted({round(wider * part) for part in (0, 0.25, 0.5, 1)})
    equal = [attacked(*np.full((2, subscribers), margin)) for margin in margins]
    uneven = equal[:1]
    for margin in margins[1:]:
        uneven.append(attacked(*random.integers(0, 2 * margin + 1, (2, subscribers))))
    return Outcome(
        (
            Figure("advantage on overlaps", "", equal[0][0], uneven[-1][0]),
            Figure("fetches of an event", "", equal[0][1], uneven[-1][1]),
        ),
        Curve(
            "values by which tokens are wider on each side",
            "advantage on overlaps",
            tuple(margins),
            {
                "without defence": (equal[0][0],) * len(margins),
                "with tokens that are all wider by the same": tuple(each for each, _ in equal),
                "with tokens that are wider at random": tuple(each for each, _ in uneven),
            },
        ),
    )
