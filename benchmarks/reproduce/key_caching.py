"""How many encryptions does an event take? [OP01] Table 1 and Figures 6 to 9.

- Table 1: numbers of the source's formulas, beside what is printed there, and simulated.
- Figures 6 and 7: encryptions by the number of subscribers, with 10,000 and 20,000 keys. The
  popular set is that of Table 1's small set; our text of the source names none.
- Figure 8: encryptions by the number of keys, with the bound; the popular set is that of the large
  set. The source has formulas only, but for the tree; here it is simulated, too.
- Figure 9: events a second by the number of encryptions, with AES-256-GCM instead of DES, each
  under a key of its own; measured on one core.

15,000 events each, after as many as warm the caches: keys of whole groups need as many as repeat
all popular groups, keys of parts some ten thousand. `learned` is this library's: clusters and
capacities learned from a sample of the traffic, with as many keys in all.

    python benchmarks/reproduce/key_caching.py [--quick] [--plot FOLDER]
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from report import Table, options, picture
from timing import machine, one_core, timed
from tqdm import tqdm

from ccbps.delivery import expected
from ccbps.delivery.clustered import ClusteredCache, ClusteredPopularCache
from ccbps.delivery.expected import PopularSet, uniform_groups
from ccbps.delivery.groups import Clusters, even_sizes
from ccbps.delivery.learned import LearnedCache
from ccbps.delivery.plans import Strategy
from ccbps.delivery.strategies import BuildUpCache, KeyHierarchy, Naive, SimpleCache

Draw = Callable[[int], np.ndarray]
Line = dict[str, list[tuple[float, float]]]
CHUNK = 20_000
# Colours of Okabe and Ito, which colour-blind readers can tell apart, and widths: where lines lie
# on one another, as none, simple and build-up do, the wider ones are below.
STYLES = {
    "none": ("#bbbbbb", 6.0),
    "simple": ("#e69f00", 3.0),
    "build-up": ("#009e73", 1.2),
    "hierarchy": ("#cc79a7", 1.5),
    "clustered": ("#56b4e9", 1.5),
    "clustered-popular": ("#0072b2", 1.5),
    "learned": ("#d55e00", 2.5),
    "bound": ("#000000", 1.2),
}
PRINTED = {  # strategy, uniform and popular, small and large
    "none": (50, 50, 500, 500),
    "simple": (50, 6, 500, 101),
    "clustered": (11, 11, 109, 109),
    "clustered-popular": (17, 6.7, 112, 68),
}


class Panel(NamedTuple):
    """Half of a figure: uniform groups or a popular set. Lines are by strategy."""

    title: str
    simulated: Line
    formula: Line
    printed: Line


def sets(quick: bool) -> list[tuple[str, int, int, float, int, int]]:
    """Return the sets of Table 1: name, N, C, p, S, and events that warm caches."""
    found = [("small", 100, 10_000, 0.9, 10_000, 150_000)]
    if not quick:
        found.append(("large", 1000, 100_000, 0.8, 100_000, 1_200_000))
    return found


def draws(subscribers: int, share: float, groups: int, seed: int) -> dict[str, Draw]:
    rng = np.random.default_rng(seed)
    again = PopularSet(subscribers, groups, share, rng)
    return {
        "uniform": lambda events: uniform_groups(events, subscribers, rng),
        "popular": lambda events: again.draw(events, rng),
    }


def cluster_counts(subscribers: int, keys: int) -> tuple[int, int]:
    """Return the numbers of clusters of the clustered and the clustered-popular cache.

    For Table 1 they are as printed; the rule gives 113 for the last one.
    """
    if (subscribers, keys) == (1000, 100_000):
        return 100, 114
    rule = expected.cluster_count
    return rule(subscribers, keys), rule(subscribers, keys / 2)


def strategies(
    subscribers: int, keys: int, draw: Draw, sample: int
) -> Iterator[tuple[str, Callable[[], Strategy]]]:
    """Yield strategies with a number of keys in all."""
    yield "none", lambda: Naive(subscribers)
    yield "simple", lambda: SimpleCache(subscribers, keys)
    one, two = cluster_counts(subscribers, keys)
    yield (
        "clustered",
        lambda: ClusteredCache(Clusters.of_sizes(even_sizes(subscribers, one)), keys // one),
    )
    yield (
        "clustered-popular",
        lambda: ClusteredPopularCache(
            Clusters.of_sizes(even_sizes(subscribers, two)), keys // 2, keys // 2 // two
        ),
    )
    yield "hierarchy", lambda: KeyHierarchy(subscribers)
    yield "learned", lambda: LearnedCache.learn(draw(sample), subscribers, keys)


def warming(strategy: Strategy, kind: str, warm: int) -> int:
    """Return the events that warm a cache; `warm` if it has keys of whole groups that recur."""
    if isinstance(strategy, Naive | KeyHierarchy):
        return 0
    return min(warm, CHUNK) if kind == "uniform" or isinstance(strategy, ClusteredCache) else warm


def simulate(strategy: Strategy, draw: Draw, warm: int, events: int, label: str) -> float:
    """Return the mean encryptions of an event."""
    with tqdm(total=warm + events, desc=label, unit=" events", leave=False) as bar:
        while warm > 0:
            strategy.count(draw(min(CHUNK, warm)))
            bar.update(min(CHUNK, warm))
            warm -= CHUNK
        found = strategy.count(draw(events))
        bar.update(events)
    return float(found.mean())


def formula(
    name: str, subscribers: int, keys: int, share: float = 0.0, groups: int = 0
) -> float | None:
    """Return the source's formula, for uniform groups or for a popular set."""
    popular = {"popular": share, "groups": groups}
    if name == "none":
        return expected.naive(subscribers)
    if name == "simple":
        return expected.simple(subscribers, keys, **popular)
    if name == "clustered":
        return expected.clustered(subscribers, keys, cluster_counts(subscribers, keys)[0])
    if name == "clustered-popular":
        clusters = cluster_counts(subscribers, keys)[1]
        return expected.clustered_popular(subscribers, keys, clusters, **popular)
    if name == "hierarchy" and subscribers & subscribers - 1 == 0:
        return expected.key_hierarchy(subscribers)
    return None


def table_1(quick: bool) -> dict[tuple[str, str], float]:
    """Print Table 1, and return the encryptions of the large set by kind of groups and strategy."""
    columns = {"printed": "", "formula": ",.4g", "simulated": ",.2f", "events/s": ",.0f"}
    heads = {
        f"{kind}: {column}": form
        for kind in ("uniform", "popular")
        for column, form in columns.items()
    }
    large: dict[tuple[str, str], float] = {}
    for place, (title, subscribers, keys, share, groups, warm) in enumerate(sets(quick)):
        print(f"\n{subscribers} subscribers, {keys:,} keys")
        workloads = draws(subscribers, share, groups, seed=1)
        cells: dict[str, list[float | None]] = {}
        for column, (kind, draw) in enumerate(workloads.items()):
            popular = (share, groups) if kind == "popular" else (0.0, 0)
            for name, make in strategies(subscribers, keys, draw, min(warm, 100_000)):
                strategy = make()
                first = warming(strategy, kind, warm)
                mean = simulate(strategy, draw, first, 15_000, f"{title} {name}")
                events = draw(15_000)
                speed = len(events) / timed(partial(strategy.count, events))
                said = PRINTED[name][2 * place + column] if name in PRINTED else None
                given = formula(name, subscribers, keys, *popular)
                cells.setdefault(name, []).extend((said, given, mean, speed))
                if title == "large":
                    large[kind, name] = mean
        what = f"Table 1, {title} set: encryptions of an event"
        table = Table(what, heads, width=20)
        for name, row in cells.items():
            table.row(name, *row)
        table = Table(f"Bounds for the worst group, {title} set", {"encryptions": ".1f"})
        table.row("source", expected.source_bound(subscribers, keys))
        table.row("counting sets", expected.counting_bound(subscribers, keys))
    print("\n6.7 is 10.07 by the formula; it comes out if a popular group that is cached costs 0.")
    return large


def titled(kind: str, share: float, groups: int) -> str:
    return "uniform groups" if kind == "uniform" else f"{share:.0%} of events to {groups:,} groups"


def printed(kind: str, at: int, place: int) -> Line:
    """Return Table 1's numbers of the small (0) or large (1) set, which belong into a figure."""
    column = 2 * place + (kind == "popular")
    return {name: [(at, values[column])] for name, values in PRINTED.items()}


def point(strategy: Strategy, draw: Draw, warm: int, label: str) -> float:
    """Return the encryptions of an event. Without a cache, few events are enough."""
    return simulate(strategy, draw, warm, 15_000 if warm else 3_000, label)


def by_subscribers(number: int, keys: int, quick: bool) -> list[Panel]:
    """Return Figure 6 or 7."""
    sizes = (100, 200) if quick else (100, 200, 400, 600, 800, 1000)
    warm = 20_000 if quick else 100_000
    panels = []
    for kind in ("uniform", "popular"):
        popular = (0.9, 10_000) if kind == "popular" else (0.0, 0)
        simulated: Line = {}
        given: Line = {}
        for subscribers in sizes:
            draw = draws(subscribers, 0.9, 10_000, seed=number)[kind]
            named = [*strategies(subscribers, keys, draw, min(warm, 100_000))]
            if number == 6:
                named.append(("build-up", lambda n=subscribers, c=keys: BuildUpCache(n, c)))
            for name, make in named:
                strategy = make()
                mean = point(strategy, draw, warming(strategy, kind, warm), name)
                simulated.setdefault(name, []).append((subscribers, mean))
                value = formula(name, subscribers, keys, *popular)
                if value is not None:
                    given.setdefault(name, []).append((subscribers, value))
        said = printed(kind, 100, 0) if number == 6 else {}
        panels.append(Panel(titled(kind, *popular), simulated, given, said))
    return panels


def by_keys(quick: bool, large: dict[tuple[str, str], float]) -> list[Panel]:
    """Return Figure 8: 1,000 subscribers; points for 100,000 keys are those of Table 1."""
    sizes = (5_000, 10_000, 20_000, 50_000, 100_000)
    panels = []
    for kind in ("uniform", "popular"):
        popular = (0.8, 100_000) if kind == "popular" else (0.0, 0)
        simulated: Line = {}
        given: Line = {}
        for keys in sizes[:1] if quick else sizes[:-1]:
            draw = draws(1000, 0.8, 100_000, seed=8)[kind]
            warm = 20_000 if quick else 12 * keys
            for name, make in strategies(1000, keys, draw, 100_000):
                strategy = make()
                mean = point(strategy, draw, warming(strategy, kind, warm), name)
                simulated.setdefault(name, []).append((keys, mean))
        for name, cells in simulated.items():
            if (kind, name) in large:
                cells.append((100_000, large[kind, name]))
        for keys in sizes:
            for name in PRINTED:
                value = formula(name, 1000, keys, *popular)
                if value is not None:
                    given.setdefault(name, []).append((keys, value))
            if kind == "uniform":  # events to popular groups may well take fewer
                given.setdefault("bound", []).append((keys, expected.counting_bound(1000, keys)))
        said = printed(kind, 100_000, 1)
        panels.append(Panel(titled(kind, *popular), simulated, given, said))
    return panels


def figure_9(quick: bool) -> Line:
    """Return events a second, with 8 bytes as in the source, and 64."""
    line: Line = {}
    keys = [AESGCM(os.urandom(32)) for _ in range(1000)]
    nonces = [number.to_bytes(12) for number in range(1000)]
    cases = [(size, n) for size in (8, 64) for n in (1, 10, 44, 101, 359, 500, 1000)]
    least = dict.fromkeys(cases, math.inf)
    for _ in range(5 if quick else 60):  # in turn, and the least: others use the machine, too
        for size, count in cases:
            data, events = bytes(size), max(1, 1_000 // count)

            def seal(count: int = count, data: bytes = data, events: int = events) -> None:
                for _ in range(events):
                    for key, nonce in zip(keys[:count], nonces, strict=False):
                        key.encrypt(nonce, data, None)

            least[size, count] = min(least[size, count], timed(seal) / events)
    for (size, count), took in least.items():
        line.setdefault(f"{size} bytes", []).append((count, 1 / took))
    return line


def print_line(title: str, head: str, line: Line) -> None:
    printed = Table(title, dict.fromkeys(line, ",.1f"), head=head, width=12, least=19)
    for size in sorted({size for cells in line.values() for size, _ in cells}):
        printed.row(f"{size:,}", *(dict(cells).get(size) for cells in line.values()))


def plot(number: int, title: str, panels: list[Panel], folder: Path) -> None:
    """Draw Figure 6, 7 or 8: simulated lines, and circles by formula."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    unit = 1000 if number == 8 else 1
    path = folder / f"key_caching_{number}.png"
    with picture(path, (10, 4.6), 2, sharey=True) as (figure, axes):
        for place, panel in zip(axes, panels, strict=True):
            for name, (color, width) in STYLES.items():
                if name in panel.simulated:
                    place.plot(*zip(*panel.simulated[name], strict=True), color=color, lw=width)
                if name in panel.formula:
                    style = ":k" if name == "bound" else "o"
                    at = {"mfc": "white", "mec": color, "ms": 5, "lw": width, "zorder": 4}
                    place.plot(*zip(*panel.formula[name], strict=True), style, **at)
                if name in panel.printed:
                    at = {"mec": color, "ms": 9, "mew": 2, "zorder": 5, "clip_on": False}
                    place.plot(*zip(*panel.printed[name], strict=True), "x", **at)
            place.set(yscale="log", title=panel.title, xlabel="subscribers")
            if number == 8:
                place.set(xscale="log", xlabel="keys in the cache, thousands")
                place.set_xticks([keys for keys, _ in panel.formula["none"]])
                place.xaxis.set_minor_locator(NullLocator())
            place.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:,.0f}"))
            place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            place.yaxis.set_minor_formatter(NullFormatter())
            place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            place.grid(alpha=0.3, lw=0.5)
        axes[0].set_ylabel("encryptions of an event")
        figure.suptitle(title)
        entries = [
            Line2D([], [], color=color, lw=width, label=name)
            for name, (color, width) in STYLES.items()
            if name in panels[0].simulated
        ]
        marks = [("o", "the source's formula", {"mfc": "white"})]
        if panels[0].printed:
            marks.append(("x", "printed in Table 1", {"ms": 8, "mew": 2}))
        for marker, label, style in marks:
            entries.append(
                Line2D([], [], ls="", marker=marker, mec="#333333", label=label, **style)
            )
        if number == 8:
            entries.append(Line2D([], [], color="k", ls=":", label="bound, worst group"))
        figure.legend(handles=entries, loc="outside right center", frameon=False, fontsize=9)


def plot_9(ninth: Line, large: dict[tuple[str, str], float], folder: Path) -> None:
    """Draw Figure 9, with the strategies of Table 1 (large popular set) at their encryptions."""
    from matplotlib.ticker import FuncFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.0f}")
    with picture(folder / "key_caching_9.png", (7.2, 4.2)) as (_, place):
        for (name, cells), style in zip(ninth.items(), ("--", "-"), strict=True):
            place.plot(
                *zip(*cells, strict=True), style, color="#777777", label=f"payload of {name}"
            )
        counts, speeds = zip(*ninth["64 bytes"], strict=True)
        for (kind, name), mean in large.items():
            if kind == "popular":
                speed = np.exp(np.interp(np.log(mean), np.log(counts), np.log(speeds)))
                label = f"{name}: {mean:,.0f}"
                place.plot(mean, speed, "o", color=STYLES[name][0], ms=8, mec="white", label=label)
        place.set(xscale="log", yscale="log", ylabel="events a second")
        place.set_xlabel("encryptions of an event")
        place.xaxis.set_major_formatter(plain)
        place.yaxis.set_major_formatter(plain)
        place.set_title("Figure 9: events a second, AES-256-GCM, one core")
        place.grid(alpha=0.3, lw=0.5)
        place.legend(frameon=False, fontsize=9)


def main(arguments: list[str] | None = None) -> None:
    given = options(__doc__, arguments, quick="smallest sizes only", plot=Path)
    print(machine())
    large = table_1(given.quick)
    figures = {
        6: ("10,000 keys", by_subscribers(6, 10_000, given.quick)),
        7: ("20,000 keys", by_subscribers(7, 20_000, given.quick)),
        8: ("1,000 subscribers", by_keys(given.quick, large)),
    }
    ninth = figure_9(given.quick)
    for number, (what, panels) in figures.items():
        for panel in panels:
            head = "keys" if number == 8 else "subscribers"
            for how, line in (("simulated", panel.simulated), ("by formula", panel.formula)):
                title = f"Figure {number}, {what}, {panel.title}: encryptions of an event, {how}"
                print_line(title, head, line)
    print_line("Figure 9: events a second on one core", "encryptions", ninth)
    if given.plot:
        for number, (what, panels) in figures.items():
            title = f"Figure {number}: encryptions of an event, {what}"
            plot(number, title, panels, given.plot)
        plot_9(ninth, large, given.plot)


if __name__ == "__main__":
    one_core()
    main()
