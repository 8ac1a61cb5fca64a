"""How many messages does a first secret take through brokers? [Survey] Figures 2.5 and 9.1 to 9.5.

- Figure 2.5: SSPS and ISSPS by hops.
- Figures 9.1 and 9.2: HyShare on a line of 1 to 10 brokers, with a number of enclaves or a greatest
  ratio of enclaves to other brokers, at the places where they save most.
- Figures 9.3 and 9.4: the same on trees of five levels by fan-out, one subscriber at each leaf.
- Figure 9.5: how long a split takes, and an enclave (a process) for all fragments of a secret.

Every number of messages is the formula's. Networks of up to --brokers brokers are simulated, too:
with a secret's real fragments up to --held messages, and with messages that are only counted beyond
that. Beside the figures stand the numbers that the source states. Times are medians of one core.

    python benchmarks/reproduce/hyshare.py [--quick] [--brokers 1000] [--held 10000] [--plot FOLDER]
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from report import Table, options, picture
from timing import machine, one_core, timed
from tqdm import tqdm

from ccbps.keys.plain_key import SigningKey
from ccbps.overlay import (
    ISSPS,
    SSPS,
    Agreed,
    Fragment,
    HyShare,
    Simulation,
    Topology,
    fewest_messages,
    most_enclaves,
)
from ccbps.overlay.enclave.attestation import ENCLAVE, Member, Policy
from ccbps.overlay.enclave.enclave import SimulatedPlatform
from ccbps.overlay.enclave.sessions import Session
from ccbps.overlay.splits.fragments import join_fragments
from ccbps.sharing import Shamir

SECRETS, LEVELS = 400, 5
KS = (3, 5, 7)
ENCLAVES = (0, 1, 2, 3, 4)
RATIOS = ((0, 1), (1, 5), (1, 3), (1, 2), (1, 1), (2, 1), (1, 0))
ALL, DIRECT = "all", "all, direct"


@dataclass
class Counts:
    """Counter of messages, by formula and by simulation.

    Attributes:
        held: messages of a secret up to which a simulation holds fragments.
        brokers: brokers of a network up to which it is simulated.
        cells: number of simulated networks.
        real: number of them with fragments.
        differences: number of differences between simulation and formula.
    """

    held: int
    brokers: int
    cells: int = 0
    real: int = 0
    differences: int = 0
    bar: tqdm = field(default_factory=lambda: tqdm(desc="simulated", unit=" networks", leave=False))

    def __call__(self, topology: Topology, protocol: SSPS | ISSPS) -> int:
        """Return the messages of all secrets."""
        formula = protocol.messages(topology, SECRETS)
        if len(topology.links) > self.brokers:
            return formula
        simulation = Simulation(topology, protocol)
        found = simulation.count(SECRETS).messages
        self.differences += found != formula
        self.cells += 1
        if formula <= SECRETS * self.held:
            outcome = simulation.share(np.full((1, 32), 7, dtype=np.uint8))
            self.real += 1
            self.differences += SECRETS * outcome.messages != formula
            self.differences += not all(intact.all() for intact in outcome.intact.values())
        self.bar.update()
        return formula


Series = dict[str, list[tuple[int, int]]]
Times = dict[str, list[tuple[int, float]]]


def figure_2_5(counts: Counts, most: int) -> Series:
    return {
        f"{make.__name__}, k = n = {k}": [
            (hops, counts(Topology.line(hops), make(k))) for hops in range(1, most + 1)
        ]
        for make in (SSPS, ISSPS)
        for k in KS
    }


def by_number(
    counts: Counts, networks: list[tuple[int, Topology]], k: int, *, direct: bool
) -> Series:
    """Return Figures 9.1 and 9.3: by number of enclaves, and all by the rule of the text."""
    series: Series = {}
    for number in ENCLAVES:
        series[f"{number}"] = [
            (size, counts(topology, hybrid(topology, k, number)))
            for size, topology in networks
            if number <= len(topology.route)
        ]
    series[ALL] = [(size, counts(t, HyShare(k, enclaves=t.links))) for size, t in networks]
    if direct:
        series[DIRECT] = [
            (size, counts(t, HyShare(k, enclaves=t.links, direct=True))) for size, t in networks
        ]
    return series


def by_ratio(counts: Counts, networks: list[tuple[int, Topology]], k: int) -> Series:
    """Return Figures 9.2 and 9.4."""
    return {
        f"{a}:{b}": [
            (size, counts(t, hybrid(t, k, most_enclaves(len(t.route), a, b))))
            for size, t in networks
        ]
        for a, b in RATIOS
    }


def hybrid(topology: Topology, k: int, enclaves: int) -> HyShare:
    return HyShare(k, enclaves=fewest_messages(topology, ISSPS(k), enclaves))


# -- Figure 9.5 -----------------------------------------------------------------------------------


def latencies(ks: list[int], repeats: int) -> Times:
    """Return medians in microseconds."""
    names = ("broker, split 256 bits", "enclave, 128 bits", "enclave, 256 bits")
    inside = "of it join and split, 256 bits"
    series: Times = {name: [] for name in (*names, inside)}
    for k in tqdm(ks, desc="enclaves", leave=False):
        fragment = Fragment.of(os.urandom(32), k)
        series[names[0]].append((k, median(lambda f=fragment, n=k: f.split(n), repeats)))
        parts = fragment.split(k)
        shamir = Shamir(k, k)

        def both(parts: list[Fragment] = parts, shamir: Shamir = shamir) -> None:
            shamir.split(join_fragments(parts, Agreed(len(parts), len(parts), 1)))

        series[inside].append((k, median(both, repeats)))
        for name, size in zip(names[1:], (16, 32), strict=True):
            series[name].append((k, enclave(k, size, repeats)))
    return series


def median(action: Callable[[], object], repeats: int) -> float:
    return 1e6 * statistics.median(timed(action) for _ in range(repeats))


def enclave(k: int, size: int, repeats: int) -> float:
    """Measure an enclave between k senders and k receivers, from ciphertexts to ciphertexts."""
    platform, keys = SimulatedPlatform(), [SigningKey.generate() for _ in range(2 * k)]
    names = [f"broker {number}" for number in range(2 * k)]
    members = dict(zip(names, (key.identity for key in keys), strict=True))
    policy = Policy(
        platform.identity,
        platform.measurement,
        k=k,
        n=k,
        members={**members, "enclave": ENCLAVE},
        routes={"enclave": (*names[k:],)},
        sources={"enclave": (*names[:k],)},
        splits={"enclave": 1},
    )
    with ExitStack() as stack:
        box = stack.enter_context(platform.launch("enclave", policy))
        sessions: list[Session] = []
        for name, key in zip(names, keys, strict=True):
            member = Member(name, key, policy)
            session, opening = member.accept("enclave", box.attest(member.challenge("enclave")))
            box.open(opening)
            sessions.append(session)
        times = []
        for _ in range(repeats):
            parts = Fragment.of(os.urandom(size), k).split(k)
            sealed = [one.seal(part) for one, part in zip(sessions, parts, strict=False)]
            times.append(timed(partial(box.regenerate, sealed)))
    return 1e6 * statistics.median(times)


# -- what is printed ------------------------------------------------------------------------------


def table(title: str, head: str, series: Series | Times) -> None:
    sizes = sorted({size for cells in series.values() for size, _ in cells})
    printed = Table(title, dict.fromkeys(series, ",.0f"), head=head, width=8, least=17)
    for size in sizes:
        printed.row(size, *(dict(cells).get(size) for cells in series.values()))


def stated(counts: Counts) -> Iterator[tuple[str, str, str]]:
    """Yield statements of the source, and the numbers found here."""
    three, ten = Topology.line(3), Topology.line(10)
    for name, enclaves, formula, value in (
        ("three brokers, no enclave", [], "2k^3 + k^2 + k", lambda k: 2 * k**3 + k**2 + k),
        ("three brokers, B1 or B3", ["B1"], "2k^2 + 2k", lambda k: 2 * k**2 + 2 * k),
        ("three brokers, B2", ["B2"], "4k", lambda k: 4 * k),
    ):
        found = [counts(three, HyShare(k, enclaves=enclaves)) // SECRETS for k in KS]
        wanted = [value(k) for k in KS]
        counts.differences += found != wanted
        right = "exactly" if found == wanted else f"not {wanted}"
        yield name, formula, f"{', '.join(map(str, found))} for k = 3, 5, 7: {right}"
    said = {3: "over two orders of magnitude", 7: "approaches four orders of magnitude"}
    for k, text in said.items():
        ratio = counts(ten, ISSPS(k)) / counts(ten, hybrid(ten, k, 1))
        yield f"ten hops, one enclave, k = {k}", text, f"divided by {ratio:,.0f}"
    linear = [counts(Topology.line(h), hybrid(Topology.line(h), 3, h // 2)) for h in (4, 6, 8, 10)]
    steps = {after - before for before, after in pairwise(linear)}
    yield "ratio 1:1", "linear growth", f"{steps.pop() // SECRETS} messages for two hops more"
    yield (
        "fragments of ISSPS, section 2.3.3",
        "n^h",
        "n^h reach the subscriber; n + ... + n^h + n^h messages are sent",
    )
    direct = HyShare(3, enclaves=["B1"], direct=True).messages(three)
    yield (
        "what is sent to an enclave, section 8.4",
        "need not be split",
        f"then {direct} and not 24 messages for B1 and k = 3: figures use the other rule",
    )


ALONG = {"9.3": "fan-out", "9.4": "fan-out"}
SERIES = {
    "9.1": "enclaves",
    "9.2": "enclaves : others",
    "9.3": "enclaves",
    "9.4": "enclaves : others",
}


def plot(figures: dict[str, dict[str, Series]], times: Times, folder: Path) -> None:
    from matplotlib import colormaps

    for name, panels in figures.items():
        path = folder / f"hyshare_{name.replace('.', '_')}.png"
        size = 4.6 * len(panels), 4.2
        with picture(path, size, len(panels), squeeze=False) as (_, axes):
            for place, (title, series) in zip(axes[0], panels.items(), strict=True):
                shades = np.linspace(0, 0.92, len(series))
                for shade, (label, cells) in zip(shades, series.items(), strict=True):
                    style = "--" if label in (ALL, DIRECT) else "-"
                    line = place.plot(*zip(*cells, strict=True), marker="o", ms=3, ls=style)[0]
                    line.set(color=colormaps["viridis"](shade), label=label)
                place.set(yscale="log", title=title, xlabel=ALONG.get(name, "hops"))
                place.grid(alpha=0.3)
            axes[0][0].set_ylabel(f"messages of {SECRETS} secrets")
            axes[0][-1].legend(frameon=False, fontsize=8, title=SERIES.get(name))
    with picture(folder / "hyshare_9_5.png", (5.5, 4)) as (_, place):
        for label, cells in times.items():
            place.plot(*zip(*cells, strict=True), marker="o", ms=3, label=label)
        place.set(xlabel="k = n", ylabel="microseconds", yscale="log", title="Figure 9.5")
        place.grid(alpha=0.3)
        place.legend(frameon=False, fontsize=8)


def main(arguments: list[str] | None = None) -> int:
    """Print everything, and return the number of differences between simulation and formula."""
    given = options(
        __doc__, arguments, brokers=1000, held=10_000, quick="smallest sizes only", plot=Path
    )
    most = 4 if given.quick else 10
    counts = Counts(given.held, given.brokers)
    lines = [(hops, Topology.line(hops)) for hops in range(1, most + 1)]
    trees = [(fanout, Topology.tree(LEVELS, fanout)) for fanout in range(1, most + 1)]
    figures = {
        "2.5": {"Figure 2.5": figure_2_5(counts, most)},
        "9.1": {f"Figure 9.1, k = {k}": by_number(counts, lines, k, direct=True) for k in KS},
        "9.2": {f"Figure 9.2, k = {k}": by_ratio(counts, lines, k) for k in KS},
        "9.3": {f"Figure 9.3, k = {k}": by_number(counts, trees, k, direct=False) for k in KS},
        "9.4": {f"Figure 9.4, k = {k}": by_ratio(counts, trees, k) for k in KS},
    }
    statements = [*stated(counts)]
    counts.bar.close()
    times = latencies([3, 4] if given.quick else [*range(3, 11)], 20 if given.quick else 300)
    print(machine())
    for name, panels in figures.items():
        for title, series in panels.items():
            suffix = f", by {SERIES[name]}" if name in SERIES else ""
            title_ = f"{title}: messages of {SECRETS} secrets{suffix}"
            table(title_, ALONG.get(name, "hops"), series)
    table("Figure 9.5: microseconds, medians", "k = n", times)
    print("\nWhat the source states, and what is found")
    for name, said, found in statements:
        print(f"  {name:<42}{said:<40}{found}")
    print(
        f"\n{counts.cells} networks: simulation and formula differ in {counts.differences}; "
        f"{counts.real} with real fragments"
    )
    if given.plot:
        plot(figures, times, given.plot)
    return counts.differences


if __name__ == "__main__":
    one_core()
    raise SystemExit(1 if main() else 0)
