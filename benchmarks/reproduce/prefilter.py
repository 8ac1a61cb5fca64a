"""What does a filter save a broker? [N1] Tables 1 and 2.

- Table 1: memory of a Bloom filter and of three cuckoo filters for 400,000 keys, and seconds to add
  and to look up 50,000: key by key, as in the source, and as a column.
- Table 2: 1 to 20 subscriptions of one topic each wait for an event. The broker matches it with all
  of them, or first asks a filter (Algorithm 2: add the event's topic to one, look it up in the
  other; Bloom for 800 keys at 1 %, cuckoo of 100 buckets of 8). The event's topic is wanted by
  nobody, or by the last subscription. Each way to match is measured:

  - `as printed`: the two algorithms of the source for each pair, two exponentiations;
  - `KeywordMatch`, with subscriptions as they come (an exponentiation a pair) and prepared (a
    product and a hash a pair), an exponentiation an event;
  - `TagMatch`, prepared, and `FormulaMatch`, with one-time messages for each pair;
  - `MaskedTopicMatch`, which shows the broker as much as a filter of tokens does, and is exact.

- Columns: the same in batches of events, as this library is made for.
- Tokens: what it costs that filters hold PRF_K(topic) and not topics, so that the broker cannot ask
  them for topics that it thinks of.

The source's machine is not named, so it is ratios that compare: no filter to filter. Times are of
one core, the least of several rounds; events are fresh in each. Single events take NumPy's kernels,
as they do by default.

    python benchmarks/reproduce/prefilter.py [--quick] [--plot FOLDER]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
import pyarrow as pa
from report import Table, options, picture
from reproduce.encrypted_match import COUNTS, OTHER, SCHEMA, Way, as_printed, one_time, reusable
from reproduce.encrypted_match import PRINTED as NO_FILTER
from timing import KERNELS, machine, one_core, seconds, timed, with_kernels
from tqdm import tqdm

from ccbps.filters import BloomFilter, CuckooFilter, FilterKey, SipHash
from ccbps.matching import FormulaMatch, KeywordMatch, MaskedTopicMatch, TagMatch

Filter = BloomFilter | CuckooFilter
ITEMS = 50_000
TABLE_1: dict[str, tuple[Callable[[], Filter], tuple[float, float, float]]] = {
    "Bloom 10 %": (lambda: BloomFilter(400_000, 0.1), (0.47, 0.504, 0.492)),
    "cuckoo 100,000 x 4": (lambda: CuckooFilter(100_000, 4), (26.43, 0.292, 0.263)),
    "cuckoo 50,000 x 8": (lambda: CuckooFilter(50_000, 8), (13.15, 0.288, 0.259)),
    "cuckoo 25,000 x 16": (lambda: CuckooFilter(25_000, 16), (6.68, 0.290, 0.268)),
}
"""Filters, and what is printed: MiB, seconds of 50,000 insertions and of as many searches."""
FILTERS: dict[str, Callable[[], Filter]] = {
    "Bloom": lambda: BloomFilter(800, 0.01),
    "cuckoo": lambda: CuckooFilter(100, 8, once=True),
}
TABLE_2 = {  # Bloom: other topic, last topic; cuckoo: the same
    1: (0.260, 1.540, 0.136, 2.058),
    5: (0.254, 9.917, 0.115, 9.372),
    10: (0.280, 18.719, 0.138, 20.773),
    15: (0.250, 35.828, 0.196, 33.300),
    20: (0.296, 53.877, 0.137, 51.202),
}
"""Milliseconds."""
COLUMNS = ("no filter", "Bloom, other", "Bloom, last", "cuckoo, other", "cuckoo, last")
PRINTED = {count: (NO_FILTER[count], *TABLE_2[count]) for count in COUNTS}
MOST = max(COUNTS)
PRF = SipHash(FilterKey(bytes(range(16))))
Filters = dict[str, list[tuple[float, ...]]]
"""Of each filter, MiB, and seconds to add and to look up: one by one, as a column."""
Times = dict[str, dict[int, list[float]]]
"""Milliseconds of each way and number of subscriptions, in the order of `COLUMNS`."""


def ways(quick: bool) -> dict[str, Way]:
    """Return the ways to match by name; the source's first."""

    def keyword() -> KeywordMatch:
        return KeywordMatch(SCHEMA, trapdoors="events")

    found = {"as printed, modp2048": as_printed("modp2048")} if not quick else {}
    return found | {
        "as printed, secp256k1": as_printed("secp256k1"),
        "KeywordMatch, as they come": reusable(keyword(), prepared=False),
        "KeywordMatch, prepared": reusable(keyword()),
        "TagMatch, prepared": reusable(TagMatch(SCHEMA, topic=["topic"])),
        "MaskedTopicMatch, prepared": reusable(MaskedTopicMatch(SCHEMA)),
        "FormulaMatch, pairs": one_time(FormulaMatch.box(SCHEMA)),
    }


def tokens(topics: Sequence[int]) -> list[bytes]:
    """Return PRF_K(topic), 16 bytes, as clients send them."""
    halves = [PRF.one(b"%d" % topic) for topic in topics]
    return [first.to_bytes(8) + second.to_bytes(8) for first, second in halves]


# -- Table 1 -------------------------------------------------------------------------------------


def table_1(rounds: int, kernels: str) -> Filters:
    texts = [f"topic/{number}" for number in range(ITEMS)]
    column = pa.array(texts)
    measured: Filters = {}
    for title, (make, _) in tqdm(TABLE_1.items(), desc="Table 1", leave=False):
        held = make()
        held.add_all(column)

        def add(make: Callable[[], Filter] = make) -> None:
            new = make()
            for text in texts:
                new.add(text)

        actions: dict[str, Callable[[], object]] = {
            "add": add,
            "add column": with_kernels(kernels, lambda make=make: make().add_all(column)),
            "find": lambda held=held: [text in held for text in texts],
            "find column": with_kernels(kernels, partial(held.has_all, column)),
        }
        took = seconds(actions, rounds)
        assert held.has_all(column).all()
        size = len(held.to_bytes()) / 2**20
        each = [tuple(took[what + how] for how in ("", " column")) for what in ("add", "find")]
        measured[title] = [(size,), *each]
    return measured


def print_1(measured: Filters) -> None:
    steps, ways_to = ("insertion", "searching"), ("printed", "one by one", "a column")
    heads = {"MiB: printed": ".2f", "MiB: ours": ".3f"}
    both_steps = [f"{step}: {way}" for step in steps for way in ways_to]
    heads |= dict.fromkeys(both_steps, ".4f")
    title_1 = "Table 1: filters for 400,000 keys, seconds of 50,000"
    table = Table(title_1, heads, width=22)
    times = {
        title: [
            one for place, took in enumerate(both, 1) for one in (TABLE_1[title][1][place], *took)
        ]
        for title, (_, *both) in measured.items()
    }
    for title, ((size,), *_) in measured.items():
        table.row(title, TABLE_1[title][1][0], size, *times[title])
    heads = dict.fromkeys(both_steps, ".2f")
    table = Table("Table 1, times of the Bloom filter to those of this filter", heads, width=22)
    for title, took in times.items():
        table.row(title, *(a / b for a, b in zip(times["Bloom 10 %"], took, strict=True)))


# -- Table 2 -------------------------------------------------------------------------------------


def publish(token: bytes, seen: Filter, wanted: Filter, match: Callable[[], Any]) -> Any:
    """Follow [N1] Algorithm 2: return the answers, or None if the filter rules the event out."""
    seen.add(token)
    return match() if token in wanted else None


def table_2(found: dict[str, Way], rounds: int) -> Times:
    measured: Times = {}
    with tqdm(total=len(found) * len(COUNTS), desc="Table 2", leave=False) as bar:
        for name, way in found.items():
            measured[name] = {}
            for count in COUNTS:
                measured[name][count] = measure(way, count, rounds)
                bar.update()
    return measured


def measure(way: Way, count: int, rounds: int) -> list[float]:
    """Return the least milliseconds of processor time, in the order of `COLUMNS`.

    The first round does not count. All messages are made beforehand, so the caches hold what a busy
    broker's caches hold.
    """
    bloom, cuckoo = ((make(), make()) for make in FILTERS.values())
    for _, wanted in (bloom, cuckoo):
        wanted.add_all(tokens(range(count)))
    last = count - 1
    turns = []
    for turn in range(rounds + 1):
        other = OTHER + turn
        cases = ((None, other), (bloom, other), (bloom, last), (cuckoo, other), (cuckoo, last))
        for column, (filters, topic) in enumerate(cases):
            match = partial(way.match, way.events([topic], count), way.prepare(count, 1))
            asked = partial(publish, *tokens([topic]), *filters, match) if filters else match
            answer = None if filters and topic == other else [topic] * (topic == last)
            turns.append((turn, column, asked, answer))
    best = [float("inf")] * len(COLUMNS)
    os.environ["CCBPS_COMPILED"] = "0"
    for turn, column, asked, answer in turns:
        started = time.process_time()
        found = asked()
        took = (time.process_time() - started) * 1e3
        best[column] = min(best[column], took) if turn else best[column]
        assert answer == (None if found is None else np.flatnonzero(found).tolist())
    return best


def print_2(measured: Times) -> None:
    heads = dict.fromkeys(COLUMNS, ".4f") | dict.fromkeys(("ratio, Bloom", "ratio, cuckoo"), ".1f")
    for name, rows in ({"[N1]": PRINTED} | measured).items():
        title = f"Table 2, {name}: milliseconds of an event"
        table = Table(title, heads, head="subscriptions", width=14)
        for count, row in rows.items():
            table.row(count, *row, row[0] / row[1], row[0] / row[3])


def print_most(measured: Times) -> None:
    """Print the ways side by side, for the most subscriptions."""
    heads = dict.fromkeys(COLUMNS, ".4f")
    heads |= {"ratio, Bloom": ".1f", "ratio, cuckoo": ".1f", "pays below": ".2%"}
    table = Table(f"Table 2, {MOST} subscriptions: milliseconds of an event", heads)
    print("A filter pays where fewer events than this share have a topic that somebody wants, or")
    print("that it takes for one.")
    for name, rows in ({"[N1]": PRINTED} | measured).items():
        row = rows[MOST]
        pays = max(0.0, 1 - min(row[1], row[3]) / row[0])
        table.row(name, *row, row[0] / row[1], row[0] / row[3], pays)


def columns(found: dict[str, Way], events: int, rounds: int, kernels: str) -> dict[str, float]:
    """Return microseconds of an event in batches with 20 subscriptions, and of a look-up."""
    topics = [OTHER + number for number in range(events)]
    column = np.frombuffer(b"".join(tokens(topics)), dtype=np.uint8).reshape(events, 16)
    best: dict[str, float] = {}
    for kind, make in FILTERS.items():
        wanted = make()
        wanted.add_all(tokens(range(MOST)))
        assert not wanted.has_all(column).any()
        action = with_kernels(kernels, partial(wanted.has_all, column))
        best[kind] = seconds({"": action}, 3 * rounds)[""] / events * 1e6
    several = {name: way for name, way in found.items() if name.endswith(("prepared", "pairs"))}
    for name, way in tqdm(several.items(), desc="columns", leave=False):
        table = way.prepare(MOST, events)
        took = float("inf")
        for _ in range(rounds):
            sent = way.events(topics, MOST)  # fresh: brokers keep what they have decoded
            action = with_kernels(kernels, partial(way.match, sent, table))
            took = min(took, timed(action, time.process_time))
        best[name] = took / events * 1e6
    return best


def print_columns(measured: dict[str, float], events: int) -> None:
    asked = min(measured[kind] for kind in FILTERS)
    print(f"\n{events:,} events, one look-up each")
    table = Table("In batches, nanoseconds of a look-up", {"nanoseconds": ".1f"})
    for kind in FILTERS:
        table.row(kind, 1e3 * measured[kind])
    heads = {"match": ",.2f", "filter": ".3g", "ratio": ",.1f", "pays below": ".2%"}
    table = Table(f"In batches, {MOST} subscriptions, microseconds of an event", heads)
    for name, took in measured.items():
        if name not in FILTERS:
            table.row(name, took, asked, took / asked, max(0.0, 1 - asked / took))


# -- tokens --------------------------------------------------------------------------------------


def token_costs(rounds: int, kernels: str) -> dict[str, float]:
    """Return microseconds of a topic."""
    texts = [f"topic/{number}" for number in range(2_000)]
    raw = [text.encode() for text in texts]
    sent = tokens(range(len(texts)))
    clear, keyed, held = (BloomFilter(len(texts), 0.1, hashing) for hashing in (None, PRF, None))
    for one, keys in ((clear, texts), (keyed, texts), (held, sent)):
        one.add_all(keys)
    many, column = pa.array(texts * 25), pa.array(sent * 25)
    actions: dict[str, Callable[[], object]] = {
        "client: PRF_K(topic) by SipHash, in Python": lambda: [PRF.one(text) for text in raw],
        "client: the same by BLAKE2b with a key, in C": lambda: [
            blake2b(text, key=bytes(16), digest_size=16).digest() for text in raw
        ],
        "broker: look up a topic": lambda: [text in clear for text in texts],
        "broker: look up a token": lambda: [token in held for token in sent],
        "client: look up a topic in a filter with a key": lambda: [text in keyed for text in texts],
        "broker: look up a column of topics": partial(clear.has_all, many),
        "broker: look up a column of tokens": partial(held.has_all, column),
        "client: a column in a filter with a key": partial(keyed.has_all, many),
    }
    took = seconds({what: with_kernels(kernels, do) for what, do in actions.items()}, rounds)
    return {
        what: second / len(many if "column" in what else texts) * 1e6
        for what, second in took.items()
    }


# -- plots ---------------------------------------------------------------------------------------


def plot_1(measured: Filters, folder: Path) -> None:
    """Draw Table 1 as three panels of bars."""
    titles = ("memory, MiB", "insertion, s", "searching, s")
    labels = ("printed", "ours, one by one", "ours, as a column")
    names = [title.replace(" ", "\n", 1) for title in measured]
    with picture(folder / "prefilter_1.png", (10, 4), 3) as (figure, axes):
        for place, panel in enumerate(axes):
            values = [
                [TABLE_1[title][1][place], *cells[place]] for title, cells in measured.items()
            ]
            for bar, series in enumerate(zip(*values, strict=True)):
                at = np.arange(len(series)) + (bar - 1) * 0.27
                color = ("#999999", "#0072b2", "#e69f00")[bar]
                drawn = panel.bar(at, series, 0.26, color=color, label=labels[bar])
                texts = [f"{value:.2g}" for value in series]
                panel.bar_label(drawn, texts, fontsize=6.5, padding=1)
            panel.set(yscale="log", title=titles[place])
            panel.set_xticks(np.arange(len(names)), names, fontsize=7)
            panel.margins(y=0.12)
            panel.grid(axis="y", alpha=0.3, lw=0.5)
        handles, texts = axes[1].get_legend_handles_labels()
        figure.legend(
            handles, texts, loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
        figure.suptitle(f"Table 1: filters for 400,000 keys, {ITEMS:,} added and looked up")


def plot_2(measured: Times, folder: Path) -> None:
    """Draw Table 2: an event of another topic, and of the last one."""
    from matplotlib.ticker import FuncFormatter

    # Colours of Okabe and Ito, which colour-blind readers can tell apart, and a brown.
    colors = ("#56b4e9", "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#8c510a")
    with picture(folder / "prefilter_2.png", (10, 4.8), 2, sharey=True) as (figure, axes):
        for (name, rows), color in zip(measured.items(), colors, strict=False):
            axes[0].plot(COUNTS, [rows[n][0] for n in COUNTS], "-o", ms=3, color=color, label=name)
            axes[1].plot(COUNTS, [rows[n][4] for n in COUNTS], "-o", ms=3, color=color)
        printed = {"x": "printed, no filter", "+": "printed, Bloom", "1": "printed, cuckoo"}
        for panel, shown in ((0, (0, 1, 3)), (1, (0, 2, 4))):
            for column, (marker, label) in zip(shown, printed.items(), strict=True):
                values = [PRINTED[n][column] for n in COUNTS]
                text = label if panel == 0 else None
                axes[panel].plot(
                    COUNTS, values, ":", marker=marker, color="#333333", ms=9, label=text
                )
        for column, style in ((1, "--"), (3, "-")):
            least = [min(rows[n][column] for rows in measured.values()) for n in COUNTS]
            text = f"ours, {COLUMNS[column].partition(',')[0]}"
            axes[0].plot(COUNTS, least, style, color="#000000", lw=2, label=text)
        titles = ("of a topic that nobody wants", "of the last topic; ours after a cuckoo filter")
        for panel, title in zip(axes, titles, strict=True):
            panel.set(yscale="log", title=title, xlabel="subscriptions")
            panel.set_xticks(COUNTS)
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            panel.grid(alpha=0.3, lw=0.5)
        axes[0].set_ylabel("milliseconds of an event")
        figure.suptitle("Table 2: an event at the broker")
        figure.legend(loc="outside right center", frameon=False, fontsize=9)


def main(arguments: list[str] | None = None) -> None:
    given = options(__doc__, arguments, quick="few rounds, NumPy's kernels", plot=Path)
    rounds, events = (3, 256) if given.quick else (15, 4096)
    kernels = "" if given.quick else KERNELS[-1]
    print(f"{machine()}{kernels}")
    first = table_1(1 if given.quick else 5, kernels)
    print_1(first)
    found = ways(given.quick)
    second = table_2(found, rounds)
    print_2(second)
    print_most(second)
    print_columns(columns(found, events, min(rounds, 3), kernels), events)
    title = "Tokens in place of topics, microseconds of a topic"
    table = Table(title, {"microseconds": ".3f"}, width=48)
    for what, took in token_costs(min(rounds, 5), kernels).items():
        table.row(what, took)
    if given.plot:
        plot_1(first, given.plot)
        plot_2(second, given.plot)


if __name__ == "__main__":
    one_core()
    main()
