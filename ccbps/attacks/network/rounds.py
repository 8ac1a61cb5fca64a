"""Rounds as a resource: each event takes one of every pair, and none is ever used again."""

from __future__ import annotations

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.checks import Printable, number, whole
from ccbps.errors import PadExhaustedError, RandomnessReuseError
from ccbps.keys.pad import OneTimePad
from ccbps.matching.contract.roles import Publisher
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.predicates import Schema, UInt


class PadStock(Printable):
    """The one-time pads of a publisher and one subscriber, used one after the other.

    Args:
        matcher: matcher of the pair.
        random: source of the pads.

    Attributes:
        left: number of rounds that were not used.
    """

    def __init__(self, matcher: FormulaMatch, random: np.random.Generator) -> None:
        self.matcher, self._random, self.left = matcher, random, 0
        self._pads: list[tuple[Publisher, int]] = []
        self._used = 0

    def __repr__(self) -> str:
        return f"<PadStock of {self.left} rounds>"

    def add(self, rounds: int) -> None:
        """Take in a new pad with so many rounds."""
        pad = OneTimePad(self._random.bytes(rounds * self.matcher.randomness_bytes))
        self._pads.append((self.matcher.publisher(pad, randomness=self._random.bytes), rounds))
        self.left += rounds

    def encode(self, event: int) -> None:
        """Encode an event in the next round.

        Raises:
            PadExhaustedError: no round is left.
        """
        while len(self._pads) > 1 and self._used == self._pads[0][1]:
            del self._pads[0]
            self._used = 0
        self._pads[0][0].encode([{"x": event}], [self._used])
        self._used, self.left = self._used + 1, self.left - 1

    def encode_again(self, event: int) -> None:
        """Encode an event in the first round of the current pad, which was used.

        Raises:
            RandomnessReuseError: always, as the publisher has a ledger.
        """
        self._pads[0][0].encode([{"x": event}], [0])


@attack(
    title="A client makes a publisher use up its one-time pads",
    goal="availability",
    adversary="a client whose requests make a publisher publish",
    defence="a budget of rounds for each cause of events, new pads that are ordered below a low "
    "mark, and roles that refuse to use a round again",
    taxonomy=Taxonomy("resource", "client", "client", "single-hop", "persistent", "independent"),
)
def round_exhaustion(
    *,
    triggers: float = 50.0,
    honest: float = 5.0,
    pairs: int = 2,
    rounds: int = 1000,
    limit: float = 10.0,
    low: int = 250,
    refill: int = 500,
    delay: float = 10.0,
    seconds: int = 100,
    seed: int = 1,
) -> Outcome:
    """Make a publisher publish until no round is left for the events of others.

    A publisher of `FormulaMatch` has a one-time pad with each subscriber, and encodes every event
    once for each. Its events have two causes: honest ones, and requests of the adversary. When a
    pad is empty, it publishes nothing more, and asks its roles in vain to use the first round
    again. With the defence, it takes `limit` events a second from each cause, and orders a pad of
    `refill` rounds when less than `low` are left. The pad comes after `delay` seconds.

    Seeds do not end like this. But the interests that their subscribers made ahead do.

    Args:
        triggers: events that the adversary causes in a second.
        honest: other events in a second.
        pairs: number of subscribers.
        rounds: rounds of each pad at the beginning.
        limit: events a second from one cause, with the defence.
        low: number of rounds below which a new pad is ordered, with the defence.
        refill: rounds of a new pad.
        delay: seconds until a new pad is there.
        seconds: length of the simulation.
        seed: seed of pads and events.

    Example:
        >>> from ccbps.attacks import round_exhaustion
        >>> outcome = round_exhaustion(triggers=20, rounds=200, low=190, seconds=40)
        >>> outcome["honest events sent"].undefended < 0.3
        True
        >>> outcome["honest events sent"].defended
        1.0
        >>> outcome["rounds used again"].undefended
        0.0
    """
    number("triggers", triggers, 0)
    number("honest", honest, 1e-6)
    whole("pairs", pairs, 1)
    whole("rounds", rounds, 1, 1 << 16)
    number("limit", limit, 1)
    whole("low", low, 0)
    whole("refill", refill, 1, 1 << 16)
    number("delay", delay, 0)
    whole("seconds", seconds, 1, 1 << 16)
    matcher = FormulaMatch.box(Schema(x=UInt(8)))

    def simulate(has_budget: bool, has_refill: bool) -> tuple[list[int], float, int, float]:
        """Return rounds left, the share of honest events sent, reuses, and when pads are empty."""
        random = np.random.default_rng(whole("seed", seed, 0))
        stocks = [PadStock(matcher, random) for _ in range(pairs)]
        for stock in stocks:
            stock.add(rounds)
        now, arrival, empty = 0.0, np.inf, float(seconds)
        buckets = [Bucket(limit, limit, lambda: now) for _ in range(2)]
        counts, reused, left = np.zeros((2, 2), dtype=np.int64), 0, [rounds]
        for second in range(seconds):
            causes = np.repeat([0, 1], random.poisson([honest, triggers]))
            times = second + np.sort(random.uniform(0, 1, len(causes)))
            for cause, time in zip(
                random.permutation(causes).tolist(), times.tolist(), strict=True
            ):
                now = time
                counts[cause, 0] += 1
                if now >= arrival:
                    arrival = np.inf
                    for stock in stocks:
                        stock.add(refill)
                if has_budget and buckets[cause].level() < 1:
                    continue
                buckets[cause].take(1)
                event = int(random.integers(256))
                try:
                    for stock in stocks:
                        stock.encode(event)
                    counts[cause, 1] += 1
                except PadExhaustedError:
                    empty = min(empty, now)
                    try:
                        stocks[0].encode_again(event)
                        reused += 1
                    except RandomnessReuseError:
                        pass
                if has_refill and arrival == np.inf and stocks[0].left < low:
                    arrival = now + delay
            left.append(stocks[0].left)
        return left, float(counts[0, 1] / max(1, counts[0, 0])), reused, empty

    runs = {
        "without defence": simulate(False, False),
        "with new pads": simulate(False, True),
        "with new pads and a budget": simulate(True, True),
    }
    plain, safe = runs["without defence"], runs["with new pads and a budget"]
    lasts = min(float(seconds), rounds / (honest + triggers))
    return Outcome(
        (
            Figure("honest events sent", "", plain[1], safe[1], lasts / seconds),
            Figure("time until a pad is empty", "s", plain[3], safe[3], lasts),
            Figure("rounds used again", "", float(plain[2]), float(safe[2]), 0.0),
        ),
        Curve(
            "time (seconds)",
            "rounds left of a pair",
            tuple(map(float, range(seconds + 1))),
            {name: tuple(map(float, run[0])) for name, run in runs.items()},
        ),
    )
