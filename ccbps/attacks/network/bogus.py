"""Bogus brokers, which drop and forge events, and complaints about them."""

from __future__ import annotations

from functools import partial

import numpy as np

from ccbps.arrays import Bools, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.forgeries import GuardedLine, PlainLine, delivered_forgeries
from ccbps.checks import number, whole
from ccbps.overlay.topology import Topology, parallel_paths

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of bogus brokers of the curve."""


def honest_paths(topology: Topology, subscriber: str, paths: int, bogus: Reals, f: float) -> Bools:
    """Tell which of several disjoint paths have no bogus broker, shape (trials, paths).

    Args:
        topology: logical brokers, each of as many physical ones as there are paths.
        subscriber: name of the subscriber.
        paths: number of paths from the publisher.
        bogus: number from 0 to 1 of each physical broker, uniform in each trial, shape
            (trials, brokers). Brokers whose number is below the share are bogus.
        f: share of bogus brokers.
    """
    graph = topology.physical(paths)
    clients = ["publisher", *topology.subscribers]
    place = {name: at for at, name in enumerate(sorted({*graph} - {*clients}))}
    routes = parallel_paths(graph, "publisher", subscriber, paths, clients=clients)
    on = np.array([[place[broker] for broker in route[1:-1]] for route in routes])
    return np.asarray((bogus[:, on] >= f).all(axis=2))


def lost(
    drops: Bools, *, patience: int, heartbeat: int, majority: bool = False, leave: bool = False
) -> Bools:
    """Tell which deliveries a bogus broker drops before it is off the path.

    Events are numbered, so a neighbour misses an event once a later one comes, or the number of
    events, which the publisher sends by another path now and then. It complains when it misses too
    many.

    Args:
        drops: deliveries that the broker would drop, shape (events, neighbours).
        patience: missing events after which a neighbour complains.
        heartbeat: number of events after which the publisher sends their number.
        majority: whether the broker is taken off once more than half of its neighbours complain.
        leave: whether each neighbour takes another path once it complains itself.
    """
    events, neighbours = drops.shape
    missing = np.cumsum(drops, axis=0)
    told = np.arange(1, events + 1) % heartbeat == 0
    missed = np.maximum.accumulate(np.where(~drops | told[:, None], missing, 0))
    complains = missed >= patience
    off = np.zeros_like(drops)
    if majority:
        off |= (2 * complains.sum(axis=1) > neighbours)[:, None]
    if leave:
        off |= complains
    # What is told with an event is of use from the next one on.
    off = np.concatenate([np.zeros((1, neighbours), np.bool_), off[:-1]])
    return np.asarray(drops & ~off)


@attack(
    title="Brokers drop events, make events up, and accuse others",
    goal="availability",
    adversary="a share of the brokers, which work together and know all routes",
    defence="disjoint paths (`parallel_paths`), `GuardedBroker`, complaints of a majority",
    source="[Survey]",
    taxonomy=Taxonomy("semantic", "broker", "client", "multi-hop", "stateless", "proportional"),
)
def bogus_brokers(
    *,
    share: float = 0.1,
    hops: int = 4,
    paths: int = 3,
    trials: int = 20_000,
    neighbours: int = 5,
    drop: float = 0.2,
    patience: int = 3,
    heartbeat: int = 20,
    events: int = 1000,
    seed: int = 1,
) -> Outcome:
    """Drop and forge events on the path to a subscriber, and complain about honest brokers.

    Each broker is bogus with the same probability. An event arrives if one of its paths has no
    bogus broker. With several brokers at the edge and one path behind them, it arrives if one of
    these and all of the others are honest.

    Signed events stop forgeries if the subscriber has the publisher's identity. If it asks the
    overlay for it, a bogus broker on the way answers with its own. With the defence the subscriber
    asks over all paths, and believes what they say if they say the same. Then one bogus broker
    suffices to have a lookup refused.

    Neighbours behind a broker complain when events are missing, and more than half of them take it
    off the paths. A broker that drops events for fewer of them stays, and neighbours that work with
    it do not complain. So each neighbour should also take another path by itself. Liars below a
    majority take no honest broker off.

    Args:
        share: share of bogus brokers.
        hops: number of brokers on a path, at most 100.
        paths: number of disjoint paths, and of brokers at the edge, with the defence, 2 to 20.
        trials: number of draws of bogus brokers.
        neighbours: number of neighbours to which a broker sends.
        drop: share of the events that a bogus broker drops.
        patience: missing events after which a neighbour complains.
        heartbeat: number of events after which the publisher tells their number by another path.
        events: number of events that a bogus broker would pass on.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import bogus_brokers
        >>> outcome = bogus_brokers()
        >>> round(outcome["events delivered"].expected, 3)
        0.656
        >>> outcome["forgeries delivered"].undefended, outcome["forgeries delivered"].defended
        (1.0, 0.0)
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    number("share", share, 0, 1)
    size = whole("trials", trials, 1), whole("hops", hops, 1, 100) * whole("paths", paths, 2, 20)
    topology, bogus = Topology.line(hops), random.random(size)
    honest = {f: honest_paths(topology, "S1", paths, bogus, f) for f in {share, *SHARES}}
    edge = random.random((trials, paths))

    def delivered(f: float, count: int) -> float:
        return float(honest[f][:, :count].any(axis=1).mean())

    def at_edge(f: float) -> float:
        """Return the share that arrives over one path with several brokers at its end."""
        inner = honest_paths(Topology.line(hops - 1), "S1", 1, bogus, f)[:, 0] if hops > 1 else True
        return float(np.mean(inner & (edge >= f).any(axis=1)))

    lose = partial(
        lost, patience=whole("patience", patience, 1), heartbeat=whole("heartbeat", heartbeat, 1)
    )
    whole("neighbours", neighbours, 2)
    drops = random.random((whole("events", events, 1), neighbours)) < number("drop", drop, 0, 1)
    few = drops & (np.arange(neighbours) < neighbours // 2)
    stays = lose(few, majority=True).mean()
    liars = (random.random((trials, neighbours)) < share).sum(axis=1)
    return Outcome(
        (
            Figure(
                "events delivered",
                "",
                delivered(share, 1),
                delivered(share, paths),
                (1 - share) ** hops,
            ),
            Figure("events delivered over two paths", "", delivered(share, 1), delivered(share, 2)),
            Figure(
                "subscribers without an honest edge broker",
                "",
                float((edge[:, 0] < share).mean()),
                float((edge < share).all(axis=1).mean()),
                share,
            ),
            Figure(
                "forgeries delivered",
                "",
                delivered_forgeries(PlainLine()),
                delivered_forgeries(GuardedLine("every hop")),
            ),
            Figure(
                "forged identities believed",
                "",
                float((~honest[share][:, 0]).mean()),
                float((~honest[share]).all(axis=1).mean()),
                1 - (1 - share) ** hops,
            ),
            Figure(
                "lookups of identities refused",
                "",
                0.0,
                float((honest[share].any(axis=1) & ~honest[share].all(axis=1)).mean()),
            ),
            Figure(
                "deliveries lost at a bogus broker",
                "",
                float(drops.mean()),
                float(lose(drops, majority=True).mean()),
                drop,
            ),
            Figure(
                "deliveries lost if it drops for a minority", "", float(few.mean()), float(stays)
            ),
            Figure(
                "deliveries lost if neighbours leave it",
                "",
                float(few.mean()),
                float(lose(few, leave=True).mean()),
            ),
            Figure(
                "honest brokers taken off",
                "",
                float((liars > 0).mean()),
                float((2 * liars > neighbours).mean()),
                1 - (1 - share) ** neighbours,
            ),
        ),
        Curve(
            "bogus brokers (share)",
            "events delivered (share)",
            SHARES,
            {
                "one path": tuple(delivered(f, 1) for f in SHARES),
                f"with {paths} brokers at the edge": tuple(map(at_edge, SHARES)),
                **{
                    f"with {count} disjoint paths": tuple(delivered(f, count) for f in SHARES)
                    for count in range(2, paths + 1)
                },
            },
        ),
    )
