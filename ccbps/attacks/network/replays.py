"""Replays: a broker sends events again, and uses up numbers that their publisher needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.forgeries import MADE_UP, RELATION, GuardedLine, Line, PlainLine
from ccbps.checks import whole
from ccbps.overlay.routing.router import Publication, RoutingMessage
from ccbps.overlay.seen_numbers import WINDOW


class NumberlessLine(PlainLine):
    """Brokers that match events, and do not look at their numbers."""

    def send(self, message: RoutingMessage) -> bool:
        """Let the bogus broker send a message, and tell whether the subscriber gets it."""
        if not isinstance(message, Publication):
            return super().send(message)
        filters = self.routers["last"].tables["subscription"]["subscriber"].values()
        event = RELATION.read_event(message.content)
        arrives = bool(RELATION.matches(event, [*map(RELATION.read_filter, filters)]).any())
        self.delivered += arrives
        return arrives


LINES: Final[dict[str, Callable[[], Line]]] = {
    "without defence": NumberlessLine,
    "with numbers alone": PlainLine,
    "with numbers, and signatures at borders": partial(GuardedLine, "border"),
    "with numbers, and signatures at every hop": partial(GuardedLine, "every hop"),
}
"""Brokers behind the adversary, by what they examine."""


@attack(
    title="A broker repeats events, and runs ahead of their numbers",
    goal="integrity",
    adversary="a broker on the path of events, which has the key of the topic",
    defence="numbers that count once, and before them the publisher's signature over number and "
    "content, examined at every hop (`GuardedBroker`)",
    taxonomy=Taxonomy("semantic", "broker", "client", "multi-hop", "stateless", "proportional"),
)
def replay(*, copies: int = 3, events: int = 20) -> Outcome:
    """Send every event again, beside events with numbers far ahead.

    For each true event, the adversary sends `copies` copies of it, and as many events that it makes
    up. Brokers that do not look at numbers deliver all of them. A `Router` looks at numbers, so
    it drops the copies. A made-up event has a new number. If that number is far ahead, the router
    then drops the true events that follow, as too old. A `GuardedBroker` first examines the
    signature, so it learns numbers from the publisher only. If it examines signatures at the border
    of its domain only, it believes the adversary, which is inside.

    Args:
        copies: number of copies of a true event, and of events that are made up beside it.
        events: number of true events.

    Example:
        >>> from ccbps.attacks import replay
        >>> print(replay(copies=2, events=10))
                                              without defence  with defence  expected
        false events taken for a true one                   4             0         4
        false events taken, by numbers alone                2
        true events taken                                   1             1
        true events taken, by numbers alone               0.1
    """
    whole("copies", copies, 0, 1 << 10)
    whole("events", events, 1, 1 << 12)

    def simulate(line: Line, copies: int) -> tuple[float, float]:
        """Return false events that the subscriber gets for a true one, and the true share."""
        false = true = 0
        for number in range(1, events + 1):
            event = line.event(number)
            true += line.send(event)
            for copy in range(copies):
                false += line.send(event)
                ahead = WINDOW * (1 + number * copies + copy)
                false += line.send(line.forgeries(event, ahead)[MADE_UP])
        return false / events, true / events

    places = sorted({0, 1, 2, copies})
    runs = {name: [simulate(line(), each) for each in places] for name, line in LINES.items()}
    plain, numbers, _, signatures = (run[places.index(copies)] for run in runs.values())
    return Outcome(
        (
            Figure("false events taken for a true one", "", plain[0], signatures[0], 2 * copies),
            Figure("false events taken, by numbers alone", "", numbers[0]),
            Figure("true events taken", "", plain[1], signatures[1]),
            Figure("true events taken, by numbers alone", "", numbers[1]),
        ),
        Curve(
            "copies of a true event, and events that are made up beside it",
            "false events taken for a true one",
            tuple(map(float, places)),
            {name: tuple(run[0] for run in many) for name, many in runs.items()},
        ),
    )
