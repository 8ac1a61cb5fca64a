"""Filters of this library and of PyPI packages (the extra `bench`), all filled and asked alike.

    python benchmarks/filter_peers.py

prints, as JSON, a digest of each one's answers for keys that are absent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import mmh3
import numpy as np
import pyarrow as pa

from ccbps.filters import BloomFilter, CuckooFilter, FilterKey, SipHash, cuckoo_buckets

__all__ = ["KEYS", "Held", "everything", "missing", "portable", "texts"]

KEYS = 400_000
PACKAGES = ("rbloom", "abloom", "fastbloom_rs", "zpds", "scf", "cuckoopy")
"""By the names they are imported under; scf is cjrh-scalable-cuckoo-filter."""
FEW = 40_000
"""Keys for peers in pure Python."""


class Held(NamedTuple):
    """Filter of this library or of a peer, with the functions that fill and ask it.

    Attributes:
        make: function that makes a filter for a number of keys.
        add: function that adds keys, and returns the number that the filter took.
        find: function that looks keys up.
        keyed: True if only holders of a key can ask the filter.
        column: True if it takes an Arrow column; otherwise it takes a list of strings.
        keys: number of keys with which it is measured.
    """

    make: Callable[[int], Any]
    add: Callable[[Any, Any], int]
    find: Callable[[Any, Any], Any]
    keyed: bool = False
    column: bool = False
    keys: int = KEYS


def ours(make: Callable[[int], Any], column: bool, keyed: bool = False) -> Held:
    def add(held: Any, keys: Any) -> int:
        held.add_all(keys)
        return len(keys)

    return Held(make, add, lambda held, keys: held.has_all(keys), keyed, column)


def held_by_ours() -> Iterator[tuple[str, Held]]:
    sip = SipHash(FilterKey(bytes(range(16))))
    for column in (True, False):
        what = "ours, a column" if column else "ours, a list"
        yield f"Bloom: {what}", ours(lambda n: BloomFilter(n, 0.01), column)
        yield f"Bloom: {what}, keyed", ours(lambda n: BloomFilter(n, 0.01, sip), column, True)
        yield f"cuckoo: {what}", ours(CuckooFilter.for_capacity, column)
        keyed = ours(lambda n: CuckooFilter.for_capacity(n, hashing=sip), column, True)
        yield f"cuckoo: {what}, keyed", keyed


def blooms() -> Iterator[tuple[str, Held]]:
    """Yield peers that cannot become full."""

    def updated(held: Any, keys: Sequence[str]) -> int:
        held.update(keys)
        return len(keys)

    def each(held: Any, keys: Sequence[str]) -> list[bool]:
        return [key in held for key in keys]

    def keyed(text: str) -> int:
        digest = blake2b(text.encode(), key=bytes(16), digest_size=16).digest()
        return int.from_bytes(digest, signed=True)

    if rbloom := found("rbloom"):
        own, portable = rbloom.Bloom, (lambda text: mmh3.hash128(text, signed=True))
        yield "Bloom: rbloom", Held(lambda n: own(n, 0.01), updated, each)
        yield "Bloom: rbloom, mmh3", Held(lambda n: own(n, 0.01, portable), updated, each)
        yield "Bloom: rbloom, BLAKE2b", Held(lambda n: own(n, 0.01, keyed), updated, each, True)
    if abloom := found("abloom"):
        sent = {"serializable": True}
        yield "Bloom: abloom", Held(lambda n: abloom.BloomFilter(n, 0.01), updated, each)
        made = Held(lambda n: abloom.BloomFilter(n, 0.01, **sent), updated, each)
        yield "Bloom: abloom, serializable", made
    if fastbloom := found("fastbloom_rs"):

        def batch(held: Any, keys: Sequence[str]) -> int:
            held.add_str_batch(keys)
            return len(keys)

        yield (
            "Bloom: fastbloom-rs",
            Held(
                lambda n: fastbloom.FilterBuilder(n, 0.01).build_bloom_filter(),
                batch,
                lambda held, keys: held.contains_str_batch(keys),
            ),
        )
    if zpds := found("zpds"):

        def many(held: Any, keys: Sequence[str]) -> int:
            held.add_many(keys)
            return len(keys)

        yield (
            "Bloom: zpds",
            Held(
                lambda n: zpds.BloomFilter(n, 0.01),
                many,
                lambda held, keys: held.contains_many(keys),
            ),
        )


def cuckoos() -> Iterator[tuple[str, Held]]:
    """Yield peers with 95 % of their slots taken, where the number of slots can be chosen."""

    def inserted(held: Any, keys: Sequence[str]) -> int:
        for key in keys:
            held.insert(key)
        return len(keys)

    def tried(held: Any, keys: Sequence[str]) -> int:
        taken = 0
        for key in keys:
            try:
                taken += held.insert(key)
            except Exception:  # full, for this key
                continue
        return taken

    if zpds := found("zpds"):
        yield (
            "cuckoo: zpds",
            Held(
                zpds.CuckooFilter,
                lambda held, keys: held.add_many(keys),
                lambda held, keys: held.contains_many(keys),
            ),
        )
    if scf := found("scf"):
        yield (
            "cuckoo: scalable-cuckoo-filter",
            Held(
                lambda n: scf.PyScalableCuckooFilter(n, 0.0001),
                inserted,
                lambda held, keys: [held.might_contain(key) for key in keys],
            ),
        )
    if cuckoopy := found("cuckoopy"):
        yield (
            "cuckoo: cuckoopy, in Python",
            Held(
                lambda n: cuckoopy.CuckooFilter(cuckoo_buckets(n, 4), 4, 2),
                tried,
                lambda held, keys: [held.contains(key) for key in keys],
                keys=FEW,
            ),
        )


def found(name: str) -> Any:
    """Return a package; None if it is not installed."""
    return None if name in missing() else importlib.import_module(name)


def missing() -> list[str]:
    """List the packages that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def everything() -> dict[str, Held]:
    return dict([*held_by_ours(), *blooms(), *cuckoos()])


def answers() -> dict[str, str]:
    """Return a digest of each filter's answers for absent keys."""
    keys, others = texts(FEW), texts(4 * FEW, "orders")
    out = {}
    for title, kind in everything().items():
        held = kind.make(FEW)
        kind.add(held, pa.array(keys) if kind.column else keys)
        said = kind.find(held, pa.array(others) if kind.column else others)
        out[title] = blake2b(np.asarray(said, dtype=np.bool_)).hexdigest()
    return out


def portable() -> dict[str, bool]:
    """Tell for each filter whether it answers alike in two processes."""
    both = []
    for seed in ("1", "2"):
        command = [sys.executable, __file__, "--answers"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
        both.append(json.loads(run.stdout))
    return {title: digest == both[1][title] for title, digest in both[0].items()}


def texts(count: int, kind: str = "quotes") -> list[str]:
    return [f"{kind}/{number % 5000:04d}/{number}" for number in range(count)]


if __name__ == "__main__":
    print(json.dumps(answers()))
