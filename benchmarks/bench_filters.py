"""What do filters cost a key? Nanoseconds on one core, in columns and one by one.

In one run: an Arrow column of 400,000 topics is hashed, added and looked up, and half of it taken
out again; beside a Python set of strings, mmh3 called for each key, and one pass over the column's
bytes. Single keys are looked up in a loop.

Then peers (PyPI packages of the `bench` extra; those that are missing are left out): filters for as
many keys, filled with them. Peers take lists of strings, so ours are measured with them, too. Of
each:

- *lost*: keys that it took and does not find;
- *wrong*: how many absent keys it finds, of a million;
- *portable*: whether it answers alike in two processes, false positives included, so that it can be
  sent to another one; measured, with different seeds of Python's own hash;
- *keyed*: whether only holders of a key can ask it.

    python benchmarks/bench_filters.py [--quick]

CCBPS_COMPILED=0 measures NumPy's kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import mmh3
import numpy as np
import pyarrow as pa
from filter_peers import KEYS, everything, missing, portable, texts
from report import Table, options
from timing import machine, one_core, seconds

from ccbps.filters import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    FilterKey,
    Murmur3,
    SipHash,
)
from ccbps.filters.hashing import as_key_bytes

SINGLE = 10_000
GOALS = {"Bloom, 1 %, look up": 40.0, "cuckoo, 4 slots, look up": 80.0}


def beside_peers(rounds: int) -> None:
    """Print the table of peers, in nanoseconds a key."""
    alike = portable()
    heads = {"add": ".1f", "look up": ".1f", "lost": ",", "wrong": ",.0f"}
    heads |= {"portable": "", "keyed": ""}
    table = Table("Filters of packages, nanoseconds a key", heads, width=34)
    for title, kind in everything().items():
        keys, others = texts(kind.keys), texts(kind.keys, "orders")
        sent = [pa.array(some) if kind.column else some for some in (keys, others)]
        held = kind.make(kind.keys)
        taken = kind.add(held, sent[0])
        actions: dict[str, Callable[[], object]] = {
            "add": lambda kind=kind, some=sent[0]: kind.add(kind.make(kind.keys), some),
            "find": lambda kind=kind, held=held, some=sent[0]: kind.find(held, some),
        }
        took = seconds(actions, rounds)
        lost = taken - int(np.sum(kind.find(held, sent[0])))
        wrong = float(np.mean(kind.find(held, sent[1]))) * 1e6
        flags = ["yes" if yes else "no" for yes in (alike[title], kind.keyed)]
        times = [took[what] / kind.keys * 1e9 for what in ("add", "find")]
        table.row(title, *times, max(0, lost), wrong, *flags)
    if missing():
        print("not installed: " + ", ".join(missing()))


def main() -> None:
    rounds = 3 if options(__doc__, quick="fewer rounds").quick else 11
    print(machine())

    keys = texts(KEYS)
    column, packed = pa.array(keys), as_key_bytes(pa.array(keys))
    others = pa.array(texts(KEYS, "orders"))
    known, few = set(keys), keys[:SINGLE]
    sip = SipHash(FilterKey(bytes(range(16))))
    bloom, keyed = BloomFilter(KEYS, 0.01), BloomFilter(KEYS, 0.01, sip)
    counting = CountingBloomFilter(2 * KEYS, 0.01)
    cuckoo = CuckooFilter(105_264, 4)
    large = CuckooFilter(26_316, 16)
    for held in (bloom, keyed, counting, cuckoo, large):
        held.add_all(column)

    def add(make: Callable[[], BloomFilter | CuckooFilter]) -> Callable[[], None]:
        return lambda: make().add_all(column)

    def turn_over() -> None:
        cuckoo.remove_all(column)
        cuckoo.add_all(column)

    actions: dict[str, Callable[[], object]] = {
        "one pass over the bytes": lambda: int(packed.data.sum()),
        "MurmurHash3": lambda: Murmur3().many(packed),
        "SipHash-2-4-128": lambda: sip.many(packed),
        "Bloom, 1 %, add": add(lambda: BloomFilter(KEYS, 0.01)),
        "Bloom, 1 %, look up": lambda: bloom.has_all(column),
        "Bloom, 1 %, look up what is absent": lambda: bloom.has_all(others),
        "Bloom, 1 %, look up under a key": lambda: keyed.has_all(column),
        "counting Bloom, 1 %, look up": lambda: counting.has_all(column),
        "cuckoo, 4 slots, add to 95 %": add(lambda: CuckooFilter(105_264, 4)),
        "cuckoo, 4 slots, look up": lambda: cuckoo.has_all(column),
        "cuckoo, 4 slots, look up what is absent": lambda: cuckoo.has_all(others),
        "cuckoo, 16 slots, look up": lambda: large.has_all(column),
        "cuckoo, 4 slots, take out and add": turn_over,
        "peer: a set of strings, look up": lambda: [text in known for text in keys],
        "peer: mmh3, a call for each key": lambda: [mmh3.hash64(text) for text in keys],
        "one by one: Bloom": lambda: [text in bloom for text in few],
        "one by one: Bloom under a key": lambda: [text in keyed for text in few],
        "one by one: cuckoo": lambda: [text in cuckoo for text in few],
    }
    took = seconds(actions, rounds)
    heads = {"ns a key": ",.1f", "goal": ".0f", "of goal": ".2f"}
    table = Table("Filters of this library", heads, width=44)
    for title, second in took.items():
        figure = second / (SINGLE if title.startswith("one by one") else KEYS) * 1e9
        goal = GOALS.get(title)
        table.row(title, figure, goal, figure / goal if goal else None)
    print("\nbytes a key")
    for held in (bloom, counting, cuckoo, large):
        print(f"{held!r:<100}{len(held.to_bytes()) / KEYS:>6.2f}")
    missing = sum(int((~held.has_all(column)).sum()) for held in (bloom, keyed, cuckoo, large))
    wrong = [held.has_all(others).mean() for held in (bloom, cuckoo, large)]
    print(f"keys that were lost: {np.int64(missing)}")
    print("false positives: " + ", ".join(f"{rate:.5f}" for rate in wrong))
    beside_peers(min(rounds, 5))


if __name__ == "__main__":
    one_core()
    main()
