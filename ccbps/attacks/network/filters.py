"""Filters as weapons: subscriptions that come and go, that match everything, or that cost most."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.routers import line_of_routers
from ccbps.checks import number, whole
from ccbps.overlay.routing.relations import PlainRelation
from ccbps.overlay.routing.router import Publication
from ccbps.predicates import Schema, UInt


@attack(
    title="One client withdraws and repeats a wide subscription",
    goal="availability",
    adversary="a client that may subscribe, at the broker of others whose filters its own covers",
    defence="its first broker takes few withdrawals from each client (`Quota` limits changes of "
    "subscriptions), and holds each for some seconds: a subscription that is back by then was "
    "never away",
    taxonomy=Taxonomy("semantic", "client", "broker", "multi-hop", "soft", "proportional"),
)
def uncovering_churn(
    *,
    covered: int = 40,
    brokers: int = 8,
    withdrawals: int = 10,
    hold: float = 4.0,
    pause: float = 20.0,
    seconds: float = 40.0,
    seed: int = 1,
) -> Outcome:
    """Make a line of routers send the filters of others, again and again.

    A wide subscription covers those of other clients, which therefore stay at the first broker.
    When it is withdrawn, all of them travel to the end of the line. When it is repeated, all of
    them are withdrawn there. With the defence, the first broker takes a withdrawal every `pause`
    seconds from a client, and acts on it after `hold` seconds. The hold-down alone stops an
    adversary in haste only, and the quota alone still lets each withdrawal through.

    Args:
        covered: number of filters of others that the wide one covers.
        brokers: number of routers on the line, 2 or more.
        withdrawals: number of withdrawals of the adversary, each repeated half-way to the next.
        hold: seconds for which the broker holds a withdrawal, with the defence.
        pause: seconds between two withdrawals that it takes from a client, with the defence.
        seconds: length of the simulation.
        seed: seed of the filters.

    Example:
        >>> from ccbps.attacks import uncovering_churn
        >>> print(uncovering_churn(covered=40, brokers=8, withdrawals=4))
                                             without defence  with defence  expected
        messages for one withdrawal                      287                     287
        messages a second at the worst rate             57.4          28.7      57.4
    """
    whole("covered", covered, 0, 1 << 10)
    whole("brokers", brokers, 2)
    whole("withdrawals", withdrawals, 1)
    number("hold", hold, 0)
    number("pause", pause, 1e-3)
    number("seconds", seconds, withdrawals * brokers * 0.01)
    relation = PlainRelation(Schema(x=UInt(16)))
    codes = np.random.default_rng(whole("seed", seed, 0)).choice(1 << 16, covered, replace=False)
    wide, *others = map(relation.filter_bytes, ["TRUE", *(f"x = {code}" for code in codes)])

    def simulate(cycles: float, hold: float = 0.0, pause: float = 0.0) -> int:
        """Return the messages of so many withdrawals and repetitions; the last may lack its one."""
        links, routers = line_of_routers(brokers, relation, lambda *_: None)
        for place, content in enumerate(others):
            routers[0].add("subscription", "others", place, content)
        routers[0].add("subscription", "adversary", 0, wide)
        links.run()
        before, changes, accepted = links.messages, 0, -np.inf

        def change(is_withdrawal: bool) -> None:
            nonlocal changes, accepted
            if not is_withdrawal:
                routers[0].add("subscription", "adversary", 0, wide)
            elif links.time < accepted + pause:
                return
            else:
                accepted, number = links.time, changes + 1
                links.after(hold, lambda: act(number))
            changes += 1

        def act(number: int) -> None:
            if number == changes:
                routers[0].withdraw("subscription", "adversary", 0)

        for half in range(int(2 * cycles)):
            time = half * seconds / (2 * max(1, cycles))
            links.after(time, lambda half=half: change(not half % 2))  # type: ignore[misc]
        links.run()
        return links.messages - before

    counts = sorted({max(1, withdrawals * part // 10) for part in (1, 2, 4, 10)})
    lines = {
        name: tuple(simulate(each, *limits) / seconds for each in counts)
        for name, limits in {
            "without defence": (0.0, 0.0),
            "with a hold-down": (hold, 0.0),
            "with a quota": (0.0, pause),
            "with both": (hold, pause),
        }.items()
    }
    each = (covered + 1) * (brokers - 1)
    return Outcome(
        (
            Figure("messages for one withdrawal", "", simulate(0.5), None, each),
            Figure(
                "messages a second at the worst rate",
                "",
                max(lines["without defence"]),
                max(lines["with both"]),
                2 * each * withdrawals / seconds,
            ),
        ),
        Curve(
            "withdrawals of the adversary (a second)",
            "messages between brokers (a second)",
            tuple(each / seconds for each in counts),
            lines,
            log="x",
        ),
    )
