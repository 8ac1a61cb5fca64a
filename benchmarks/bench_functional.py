"""What does functional encryption cost? Milliseconds and bytes, one core, beside single pairings.

In one run: powers, pairings, products of pairings, hashes and decoding by each library alone and by
both; pairings of peers, as far as they are installed; keys, messages and openings of all schemes;
openings of CP-ABE beside those of its first scheme, two pairings and one power in GT for each leaf;
the steps of an opening; and batches that two workers share. Hashes of the words of a policy are
kept, so both are measured: known words, and new ones. Peers are pairings only: no attribute-based
encryption that is published for Python installs from the package index here.

    python benchmarks/bench_functional.py [--rounds 15] [--quick]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from report import Table, options
from timing import machine, one_core, repeated, seconds

from ccbps import Bool, Schema, UInt
from ccbps.algebra.pairing import Pairing
from ccbps.algebra.pairing.curve import ArkworksCurve, BothCurve, MclCurve
from ccbps.functional import Authority, CpAbe, HiddenVectors, Ibe, KpAbe, UserKey, scheme
from ccbps.functional.trees import predicate_tree

GOALS = {"seal": 5.0, "open": 8.0}
"""Milliseconds to seal under an AND of 10, and to open it."""
GOAL = 1.3
"""An opening of CP-ABE over two pairings and a power in GT for each leaf."""
MANY = 21
"""Pairs of a product, those of an AND of 10; and operations of a kind in a round."""
BATCHES = (32, 512)
"""Messages of a batch: of one that is too short for processes, and of a longer one."""
BY = "CCBPS_BENCH_LIBRARY"
"""Variable that tells the processes of a batch which library to take."""

Action = Callable[[], object]

FLAGS = Schema(**{f"a{i}": Bool() for i in range(50)})
NUMBER = Schema(n=UInt(16))
BOX = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
ALL = dict.fromkeys(FLAGS.names, True)
RECORD = {"a": 30_000, "b": 1_000, "c": 500_000}
QUOTED = "a = 30000 AND b = 1000 AND c = 500000"
BOXED = "a BETWEEN 16384 AND 40959 AND b < 12288"


def conjunction(size: int) -> str:
    """Return an AND of attributes."""
    return " AND ".join(f"a{i}" for i in range(size))


FIVE = "at_least(5, " + ", ".join(f"a{i}" for i in range(10)) + ")"
POLICIES = {
    "AND of 1": (FLAGS, conjunction(1), ALL),
    "AND of 10": (FLAGS, conjunction(10), ALL),
    "AND of 50": (FLAGS, conjunction(50), ALL),
    "5 of 10": (FLAGS, FIVE, ALL),
    "n < 30000, 16 bits": (NUMBER, "n < 30000", {"n": 1_000}),
}
"""Schema, policy and a record that satisfies it."""


class Case:
    """A scheme with an authority, the holdings of keys, and a message that they open."""

    def __init__(self, made: Any, holds: Any, target: Any) -> None:
        self.scheme, self.holds, self.target = made, holds, target
        self.authority = Authority.generate(made)
        self.public, self.user = self.authority.public, self.key()
        self.message = self.seal()
        assert self.open() == b""

    def key(self) -> UserKey:
        """Make a key."""
        return self.authority.key(self.holds)

    def seal(self) -> bytes:
        """Seal no payload, so that the length of a message is what the encryption adds."""
        return self.public.seal(b"", self.target, pad_to=1)

    def open(self) -> bytes:
        """Open the message."""
        return self.user.open(self.message)

    def new(self, action: Action) -> Action:
        """Return the action with words that are not hashed yet."""

        def run() -> None:
            self.scheme.group._remembered.cache_clear()
            action()

        return run

    def point_bytes(self) -> int:
        """Return the bytes of a key's points."""
        group, holdings = self.scheme.group, self.scheme.holdings(self.holds, None)
        ones, twos = self.scheme.key_shape(holdings)
        return int(ones * group.g1_bytes + twos * group.g2_bytes)


@cache
def curves() -> dict[str, Pairing]:
    """Return the pairings of each library by itself, and of both together."""
    return {
        "both": BothCurve(),
        "pymcl alone": MclCurve(),
        "py-arkworks alone": ArkworksCurve(),
    }


@contextmanager
def library(group: Pairing) -> Iterator[None]:
    """Make schemes take a pairing of this library."""
    with patch("ccbps.functional.scheme._group", lambda _: group):
        yield


def cases() -> dict[str, Case]:
    """Return all schemes."""
    with library(curves()["both"]):
        out = {"IBE": Case(Ibe(), "bob", "bob")}
        for name in ("AND of 10", "n < 30000, 16 bits"):
            schema, policy, record = POLICIES[name]
            out[f"KP-ABE, {name}"] = Case(KpAbe(schema), policy, record)
        for name, (schema, policy, record) in POLICIES.items():
            out[f"CP-ABE, {name}"] = Case(CpAbe(schema), record, policy)
        out["hidden vectors, 52 bits exactly"] = Case(HiddenVectors(BOX), QUOTED, RECORD)
        out["hidden vectors, a box"] = Case(HiddenVectors(BOX), BOXED, RECORD)
    return out


def operations(name: str) -> dict[str, tuple[Action, int]]:
    """Return the operations of a library, and how many each action does."""
    group = curves()[name]
    a, b = group.exponents(2)
    p, q = group.power(group.g1, a), group.power(group.g2, b)
    target, pairs = group.product([(p, q)]), [(p, q)] * MANY
    ones, twos = group.encode(p), group.encode(q)
    return {
        "power in G1": (lambda: group.power(p, b), 1),
        "power in G2": (lambda: group.power(q, a), 1),
        "power of g1, by table": (lambda: group.power(group.g1, b), 1),
        "power of g2, by table": (lambda: group.power(group.g2, a), 1),
        "power in GT": (lambda: group.target_power(target, a), 1),
        "hash to G1": (lambda: group._hash_to_g1(os.urandom(16), b"a domain"), 1),
        "decode and check, G1": (lambda: group.decode_g1(ones), 1),
        "decode and check, G2": (lambda: group.decode_g2(twos), 1),
        "single pairing": (lambda: group.product(pairs[:1]), 1),
        f"product of {MANY} pairings, a pair": (lambda: group.product(pairs), MANY),
    }


def blspy() -> tuple[Action, int]:
    """Return pairings of blspy, BLS12-381 by blst, and their number."""
    from blspy import G1Element, G2Element

    one, two = G1Element.generator(), G2Element.generator()
    return repeated(lambda: one.pair(two), MANY), MANY


def py_ecc() -> tuple[Action, int]:
    """Return a pairing of py_ecc, BLS12-381 in Python, and the number 1."""
    from py_ecc.optimized_bls12_381 import G1, G2, pairing

    return lambda: pairing(G2, G1), 1


PEERS = {"blspy": blspy, "py_ecc": py_ecc}


def floor(rounds: int) -> dict[str, float]:
    """Print what the operations take, and return the seconds of those by both libraries."""
    runs = {(what, name): run for name in curves() for what, run in operations(name).items()}
    least = seconds({key: repeated(action, MANY // n) for key, (action, n) in runs.items()}, rounds)
    took = {key: second / MANY for key, second in least.items()}
    table = Table("Operations, milliseconds", dict.fromkeys(curves(), ".3f"), width=36, least=11)
    for what in dict.fromkeys(what for what, _ in runs):
        table.row(what, *(1e3 * took[what, name] for name in curves()))

    heads = {"ms": ".3f", "pairings a second": ",.1f", "times pymcl": ",.1f"}
    table = Table("One pairing", heads)
    single = {name: took["single pairing", name] for name in ("pymcl alone", "py-arkworks alone")}
    missing = []
    for name, peer in PEERS.items():
        try:
            action, count = peer()
        except ModuleNotFoundError:
            missing.append(name)
        else:
            single[name] = seconds({name: action}, min(rounds, 3))[name] / count
    for name, second in single.items():
        table.row(name, 1e3 * second, 1 / second, second / single["pymcl alone"])
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install 'ccbps[bench]'")
    return {what: second for (what, name), second in took.items() if name == "both"}


def schemes(made: dict[str, Case], single: dict[str, float], rounds: int) -> None:
    """Print times and bytes of all schemes, and openings of CP-ABE beside the first scheme's."""
    actions: dict[tuple[str, str], Action] = {}
    for name, case in made.items():
        actions[name, "make a key"] = case.key
        actions[name, "seal"], actions[name, "open"] = case.seal, case.open
    box = made["hidden vectors, a box"]
    other = box.public.seal(b"", {**RECORD, "a": 0}, pad_to=1)
    assert box.user.examine([other], workers=1)[0] == [None]
    actions["hidden vectors, a box", "refuse"] = lambda: box.user.examine([other], workers=1)
    took = seconds(actions, rounds)
    took |= seconds(
        {
            (name, f"{what}, new words"): case.new(actions[name, what])
            for name, case in made.items()
            for what in ("seal", "open")
            if not isinstance(case.scheme, HiddenVectors)
        },
        rounds,
    )

    times = ("make a key", "seal", "seal, new words", "open", "open, new words", "refuse")
    heads = {**dict.fromkeys(times, ".2f"), "bytes of a key": ",", "bytes of a message": ","}
    table = Table("Schemes, milliseconds and bytes", heads, width=34)
    for name, case in made.items():
        cells = [1e3 * took[name, what] if (name, what) in took else None for what in times]
        table.row(name, *cells, case.point_bytes(), len(case.message))
    print(
        f"the box has {len(box.scheme.holdings(BOXED, None))} patterns; refuse: none of them fits"
    )

    a_leaf = 2 * single["single pairing"] + single["power in GT"]
    heads = {"leaves": ",", "open": ".2f", "limit": ".2f", "over limit": ".2f", "of goal": ".2f"}
    table = Table("CP-ABE, milliseconds of an opening and two pairings and a power a leaf", heads)
    for name, (schema, policy, record) in POLICIES.items():
        case = made[f"CP-ABE, {name}"]
        tree = predicate_tree(schema, schema.parse(policy))
        words = case.scheme.holdings(record, None)
        used = len(tree.weights(words, curves()["both"].order) or {})
        opening, limit = took[f"CP-ABE, {name}", "open"], used * a_leaf
        over = opening / limit
        table.row(name, used, 1e3 * opening, 1e3 * limit, over, over / GOAL)
    table = Table("CP-ABE, AND of 10, milliseconds", {"ms": ".2f", "goal": ".0f", "of goal": ".2f"})
    for what, goal in GOALS.items():
        spent = 1e3 * took["CP-ABE, AND of 10", what]
        table.row(what, spent, goal, spent / goal)


class Clock:
    """Seconds that each of some functions takes, without those inside another of them."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inside = False

    def timed(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts the seconds of another one."""

        def run(*given: Any) -> Any:
            if self._inside:
                return action(*given)
            self._inside, started = True, time.perf_counter()
            try:
                return action(*given)
            finally:
                self.spent[name] = self.spent.get(name, 0) + time.perf_counter() - started
                self._inside = False

        return run


STEPS = ("decode and check", "product of pairings", "make the message again")


def steps(made: dict[str, Case], rounds: int) -> None:
    """Print the shares of an opening."""
    table = Table("Steps of an opening, percent", dict.fromkeys((*STEPS, "rest"), ".0f"), width=34)
    for name, case in made.items():
        case.open()  # its words are hashed
        best: dict[str, float] = {"all": float("inf")}
        for _ in range(rounds):
            clock, group, public = Clock(), case.scheme.group, type(case.public)
            with (
                patch.object(group, "decode_g1", clock.timed(STEPS[0], group.decode_g1)),
                patch.object(group, "decode_g2", clock.timed(STEPS[0], group.decode_g2)),
                patch.object(group, "product", clock.timed(STEPS[1], group.product)),
                patch.object(public, "_follows", clock.timed(STEPS[2], public._follows)),
            ):
                started = time.perf_counter()
                case.open()
                spent = {**clock.spent, "all": time.perf_counter() - started}
            best = min(best, spent, key=lambda one: one["all"])
        shares = [100 * best.get(step, 0) / best["all"] for step in STEPS]
        table.row(name, *shares, 100 - sum(shares))


def libraries(rounds: int) -> None:
    """Print what schemes take with each library alone."""
    chosen = {"IBE": (Ibe, "bob", "bob"), "CP-ABE, AND of 10": (CpAbe, ALL, conjunction(10))}
    actions: dict[tuple[str, str], Action] = {}
    for name, group in curves().items():
        with library(group):
            for title, (kind, holds, target) in chosen.items():
                case = Case(kind() if kind is Ibe else kind(FLAGS), holds, target)
                actions[f"{title}: make a key", name] = case.key
                actions[f"{title}: seal", name] = case.seal
                actions[f"{title}: open", name] = case.open
    took = seconds(actions, rounds)
    heads = dict.fromkeys(curves(), ".2f")
    table = Table("Schemes by library, milliseconds", heads, width=34, least=11)
    for what in dict.fromkeys(what for what, _ in actions):
        table.row(what, *(1e3 * took[what, name] for name in curves()))


def workers(rounds: int) -> None:
    """Print what batches take with one worker and with two, on all cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    heads = {"1 worker, ms": ".2f", "2 workers, ms": ".2f", "1 to 2": ".2f"}
    table = Table("Batches, milliseconds a message", heads, width=34)

    def row(title: str, size: int, action: Callable[..., object]) -> None:
        took = seconds({n: partial(action, workers=n) for n in (1, 2)}, rounds)
        table.row(title, *(1e3 / size * took[n] for n in (1, 2)), took[1] / took[2])

    for name, group in curves().items():
        with library(group), patch.dict(os.environ, {BY: name}):
            case, record = Case(CpAbe(FLAGS), ALL, conjunction(10)), [RECORD]
            for size in BATCHES:
                messages = [case.message] * size
                row(f"open {size}, {name}", size, partial(case.user.examine, messages))
            public = Authority.generate(HiddenVectors(BOX)).public
            size = BATCHES[-1]
            row(
                f"seal {size}, {name}", size, partial(public.seal_many, [b""] * size, record * size)
            )


def main() -> None:
    given = options(__doc__, rounds=15, quick="one round")
    rounds = 1 if given.quick else given.rounds
    print(machine())
    single = floor(rounds)
    made = cases()
    schemes(made, single, rounds)
    steps(made, rounds)
    libraries(rounds)
    workers(min(rounds, 3))


if BY in os.environ:  # in a process of a batch
    scheme._group = lambda _: curves()[os.environ[BY]]
if __name__ == "__main__":
    one_core()
    main()
