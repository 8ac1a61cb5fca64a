"""How many encryptions does an event take? [OP01] Table 1 and Figures 6 to 9.

- Table 1: numbers of the source's formulas, beside what is printed there, and simulated.
- Figures 6 and 7: encryptions by the number of subscribers, with 10,000 and 20,000 keys.
- Figure 8: encryptions by the number of keys, with both bounds.
- Figure 9: events a second by the number of encryptions, with AES-256-GCM instead of DES, each
  under a key of its own; measured on one core.

15,000 events each, after as many as warm the caches. `learned` is this library's: clusters and
capacities learned from a sample of the traffic, with as many keys in all.

    python benchmarks/reproduce/key_caching.py [--quick] [--plot FOLDER]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from timing import machine, one_core
from tqdm import tqdm

from ccbps.delivery import expected
from ccbps.delivery.clustered import ClusteredCache, ClusteredPopularCache
from ccbps.delivery.groups import Clusters, even_sizes
from ccbps.delivery.hierarchy import KeyHierarchy
from ccbps.delivery.learned import LearnedCache
from ccbps.delivery.plans import Strategy
from ccbps.delivery.whole_groups import BuildUpCache, Naive, SimpleCache
from ccbps.delivery.workloads import PopularSet, uniform_groups

Draw = Callable[[int], np.ndarray]
Line = dict[str, list[tuple[float, float]]]
CHUNK = 20_000
COLORS = {  # of Okabe and Ito, which colour-blind readers can tell apart
    "none": "#000000",
    "simple": "#e69f00",
    "build-up": "#f0c000",
    "clustered": "#56b4e9",
    "clustered-popular": "#0072b2",
    "hierarchy": "#cc79a7",
    "learned": "#d55e00",
    "bound": "#777777",
}
PRINTED = {  # strategy, uniform and popular, small and large
    "none": (50, 50, 500, 500),
    "simple": (50, 6, 500, 101),
    "clustered": (11, 11, 109, 109),
    "clustered-popular": (17, 6.7, 112, 68),
}


def sets(quick: bool) -> list[tuple[str, int, int, float, int, int]]:
    """Table 1's: name, N, C, p, S, and events that warm caches."""
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
    """Of the clustered and the clustered-popular cache; in Table 1 as printed (the rule gives 113
    for the last one)."""
    if (subscribers, keys) == (1000, 100_000):
        return 100, 114
    rule = expected.cluster_count
    return rule(subscribers, keys), rule(subscribers, keys / 2)


def strategies(
    subscribers: int, keys: int, draw: Draw, sample: int
) -> Iterator[tuple[str, Callable[[], Strategy]]]:
    """With so many keys in all."""
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


def simulate(strategy: Strategy, draw: Draw, warm: int, events: int, label: str) -> float:
    """Encryptions of an event."""
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
    """The source's, for uniform groups or for a popular set."""
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


def table_1(quick: bool) -> None:
    print("\nTable 1: encryptions of an event: printed, by formula, simulated; events a second")
    head = f"{'':<20}" + "".join(f"{title:>34}" for title in ("uniform groups", "popular set"))
    for place, (title, subscribers, keys, share, groups, warm) in enumerate(sets(quick)):
        print(f"\n{title}: {subscribers} subscribers, {keys:,} keys\n{head}")
        workloads = draws(subscribers, share, groups, seed=1)
        cells: dict[str, list[str]] = {}
        for column, (kind, draw) in enumerate(workloads.items()):
            popular = (share, groups) if kind == "popular" else (0.0, 0)
            for name, make in strategies(subscribers, keys, draw, min(warm, 100_000)):
                strategy = make()
                still = isinstance(strategy, Naive | KeyHierarchy)
                mean = simulate(strategy, draw, 0 if still else warm, 15_000, f"{title} {name}")
                events = draw(15_000)
                started = time.perf_counter()
                strategy.count(events)
                speed = len(events) / (time.perf_counter() - started)
                said = PRINTED[name][2 * place + column] if name in PRINTED else None
                given = formula(name, subscribers, keys, *popular)
                texts = [f"{x:.4g}" if x is not None else "-" for x in (said, given)]
                cells.setdefault(name, []).append(
                    f"{texts[0]:>7}{texts[1]:>8}{mean:>8.2f}{speed:>11,.0f}"
                )
        for name, row in cells.items():
            print(f"{name:<20}" + "".join(f"{cell:>34}" for cell in row))
        print(
            f"bounds for the worst group: {expected.source_bound(subscribers, keys):.1f} (source), "
            f"{expected.counting_bound(subscribers, keys)} (counting sets)"
        )
    print("\n6.7 is 10.07 by the formula; it comes out if a popular group that is cached costs 0.")


def figures_6_to_8(quick: bool) -> dict[str, Line]:
    sizes = (100, 200) if quick else (100, 200, 400, 600, 800, 1000)
    warm = 20_000 if quick else 150_000
    figures: dict[str, Line] = {}
    for number, keys in ((6, 10_000), (7, 20_000)):
        for kind in ("uniform", "popular"):
            line: Line = {}
            for subscribers in sizes:
                draw = draws(subscribers, 0.9, 10_000, seed=number)[kind]
                named = [*strategies(subscribers, keys, draw, min(warm, 100_000))]
                if number == 6:
                    named.append(("build-up", lambda n=subscribers, c=keys: BuildUpCache(n, c)))
                for name, make in named:
                    strategy = make()
                    few = isinstance(strategy, Naive | KeyHierarchy)
                    mean = simulate(
                        strategy, draw, 0 if few else warm, 3_000 if few else 15_000, name
                    )
                    line.setdefault(name, []).append((subscribers, mean))
            figures[f"Figure {number}, {keys:,} keys, {kind}"] = line
    for kind in ("uniform", "popular"):
        line = {}
        for keys in (5_000, 10_000, 20_000) if quick else (5_000, 10_000, 20_000, 50_000, 100_000):
            for name in ("none", "simple", "clustered", "clustered-popular"):
                popular = (0.9, 100_000) if kind == "popular" else (0.0, 0)
                value = formula(name, 1000, keys, *popular)
                if value is not None:
                    line.setdefault(name, []).append((keys, value))
            line.setdefault("hierarchy", []).append((keys, expected.key_hierarchy(1024) / 1.024))
            line.setdefault("bound", []).append((keys, expected.counting_bound(1000, keys)))
        figures[f"Figure 8, 1,000 subscribers, {kind}, by formula"] = line
    return figures


def figure_9(quick: bool) -> Line:
    """Events a second; 8 bytes as in the source, and 64."""
    line: Line = {}
    keys = [AESGCM(os.urandom(32)) for _ in range(1000)]
    nonces = [number.to_bytes(12) for number in range(1000)]
    for size in (8, 64):
        for count in (1, 10, 44, 101, 359, 500, 1000):
            data, events = (
                os.urandom(size),
                max(20 if quick else 300, (2_000 if quick else 50_000) // count),
            )
            started = time.perf_counter()
            for _ in range(events):
                for key, nonce in zip(keys[:count], nonces, strict=False):
                    key.encrypt(nonce, data, None)
            line.setdefault(f"{size} bytes", []).append(
                (count, events / (time.perf_counter() - started))
            )
    return line


def table(title: str, head: str, line: Line) -> None:
    print(f"\n{title}")
    print(f"{head:<12}" + "".join(f"{name:>19}" for name in line))
    for size in sorted({size for cells in line.values() for size, _ in cells}):
        values = [dict(cells).get(size) for cells in line.values()]
        texts = ["-" if value is None else f"{value:,.1f}" for value in values]
        print(f"{size:<12,}" + "".join(f"{text:>19}" for text in texts))


def formulas(title: str, line: Line) -> Line:
    """What the source's formulas say of a panel of Figures 6 and 7."""
    keys = 10_000 if title.startswith("Figure 6") else 20_000
    popular = (0.9, 10_000) if title.endswith("popular") else (0.0, 0)
    found: Line = {}
    for name in ("clustered", "clustered-popular"):
        for subscribers, _ in line[name]:
            value = formula(name, int(subscribers), keys, *popular)
            if value is not None:
                found.setdefault(name, []).append((subscribers, value))
    return found


def plot(figures: dict[str, Line], ninth: Line, folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.0f}")
    folder.mkdir(parents=True, exist_ok=True)
    for number in ("6", "7", "8"):
        panels = {
            title: line for title, line in figures.items() if title.startswith(f"Figure {number}")
        }
        figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
        for place, (title, line) in zip(axes, panels.items(), strict=True):
            for name, cells in line.items():
                style = ":" if name == "bound" else "-"
                place.plot(
                    *zip(*cells, strict=True),
                    style,
                    color=COLORS[name],
                    marker="o",
                    ms=3.5,
                    lw=2.2 if name == "learned" else 1.4,
                    label=name,
                )
            for name, cells in formulas(title, line).items() if number != "8" else ():
                place.plot(
                    *zip(*cells, strict=True),
                    "--",
                    color=COLORS[name],
                    lw=1,
                    alpha=0.7,
                    label=f"{name}, formula",
                )
            place.set(yscale="log", title=title, xlabel="keys" if number == "8" else "subscribers")
            place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            place.yaxis.set_minor_formatter(NullFormatter())
            place.yaxis.set_major_formatter(plain)
            place.xaxis.set_major_formatter(plain)
            place.grid(alpha=0.3, which="both", lw=0.5)
        axes[0].set_ylabel("encryptions of an event")
        handles = {}
        for place in axes:
            for handle, name in zip(*place.get_legend_handles_labels(), strict=True):
                handles.setdefault(name, handle)
        figure.legend(
            handles.values(), handles, loc="outside right center", frameon=False, fontsize=9
        )
        figure.savefig(folder / f"key_caching_{number}.png", dpi=100)
        plt.close(figure)
    figure, place = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    for name, cells in ninth.items():
        place.plot(*zip(*cells, strict=True), marker="o", ms=3.5, label=f"payload of {name}")
    place.set(
        xscale="log", yscale="log", xlabel="encryptions of an event", ylabel="events a second"
    )
    place.xaxis.set_major_formatter(plain)
    place.yaxis.set_major_formatter(plain)
    place.set_title("Figure 9: AES-256-GCM, one core")
    place.grid(alpha=0.3, which="both", lw=0.5)
    place.legend(frameon=False)
    figure.savefig(folder / "key_caching_9.png", dpi=100)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smallest sizes only")
    parser.add_argument("--plot", type=Path, help="folder for plots")
    options = parser.parse_args(arguments)
    print(machine())
    table_1(options.quick)
    figures = figures_6_to_8(options.quick)
    for title, line in figures.items():
        table(
            f"{title}: encryptions of an event", "keys" if "8" in title[:8] else "subscribers", line
        )
    ninth = figure_9(options.quick)
    table("Figure 9: events a second on one core", "encryptions", ninth)
    if options.plot:
        plot(figures, ninth, options.plot)


if __name__ == "__main__":
    one_core()
    main()
