"""How far is every step of every matcher from the operations that it cannot do without?

A scheme counts its operations (`Matcher.costs`): AES blocks, modular products, exponentiations,
pairings. The floor of a step is this count times the price of one operation, measured in the same
run with the library that does it (OpenSSL, GMP, libsecp256k1, mcl) on large batches, without
anything around it. One-time matchers have another floor: clients need the key stream of their
randomness, and the broker has to read both messages, as an XOR of them does. Their other
encryptions, hashes and products are added. Time above the floor goes to parsing, headers,
authentication, arranging and Python.

    python benchmarks/bench_floors.py [--quick] [--check]

With --check nothing is recorded. Each ratio is compared with the one in docs/figures.json, and the
exit status is 1 if one is more than half again as large: a regression, unless the machine was busy.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gmpy2
import numpy as np
from bench_reusable import CASES, TOPIC, Case, measure, spent, topics
from report import Table, options
from timing import key_stream, machine, one_core
from workloads import boxes, numbers, random_events

from ccbps import BrokenSchemeWarning, Schema, SharedSeed, UInt, matching
from ccbps.matching import Matcher, Operation
from ccbps.matching.contract.scheme import Keying

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures.json"
TITLE = "Steps of matchers over their floors"
WORSE = 1.5
"""Ratio of ratios from which on `--check` fails."""
LEAST = 0.02
"""Microseconds of a floor below which a ratio says nothing: a call takes longer than the work."""

SEED = SharedSeed.generate()
BOX = numbers(16, 16, 20)
ONE_TIME: dict[str, Callable[[], Matcher]] = {
    "FormulaMatch": lambda: matching.FormulaMatch.box(BOX),
    "BroadcastMatch": lambda: matching.BroadcastMatch.box(BOX),
    "BranchingMatch": lambda: matching.BranchingMatch.box(BOX),
    "EqualityMatch": lambda: matching.EqualityMatch(BOX),
    "GarbledMatch": lambda: matching.GarbledMatch(Schema(x=UInt(32)), "hamming(x, :y) <= 8"),
    "OFSGPMatch": lambda: matching.OFSGPMatch(Schema(x=UInt(8)), 4),
}
REUSABLE: dict[str, Case] = {
    **CASES,
    "InnerProductMatch": Case(lambda: matching.InnerProductMatch(TOPIC), 10, 20, (1, 20), topics),
}
COUNTED = {Operation.AES_BLOCK, Operation.HASH_BLOCK, Operation.GROUP_PRODUCT}
"""Operations of one-time matchers that come on top of the key stream and of the XOR."""
STEPS = {
    "event": ("publisher", "event"),
    "interest": ("subscriber", "interest"),
    "prepare": ("broker", "interest"),
    "once": ("broker", "event"),
    "pair": ("broker", "pair"),
}
"""Columns of `bench_reusable.measure`, and the role and unit whose operations they are."""


class Prices:
    """Prices of operations in microseconds, each measured when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[Operation, str], float] = {}

    def of(self, operation: Operation, of: str) -> float:
        """Return the price of an operation in a group or of a size."""
        known = self._known.get((operation, of))
        if known is None:
            known = self._known[operation, of] = self._measure(operation, of)
        return known

    def _measure(self, operation: Operation, of: str) -> float:
        if operation is Operation.AES_BLOCK:
            return fastest(key_stream(1 << 16, 16), 1 << 16)
        if operation is Operation.HASH_BLOCK:
            data = bytes(64 << 14)
            return fastest(lambda: hashlib.sha256(data).digest(), 1 << 14)
        if operation in (Operation.WORD, Operation.COMPARISON, Operation.BIT):
            a, b = np.random.default_rng(1).integers(0, 1 << 62, (2, 1 << 12))
            out = np.empty_like(a)
            word = fastest(lambda: [np.bitwise_xor(a, b, out=out) for _ in range(64)], 64 << 12)
            return word / 64 if operation is Operation.BIT else word
        if operation is Operation.MULTIPLICATION:
            x = np.random.default_rng(1).random((256, 256))
            return fastest(lambda: x @ x, 256**3)
        if operation is Operation.GROUP_PRODUCT:
            table, places = np.zeros(128 * 128, np.uint8), np.arange(1 << 14) % (128 * 128)
            return fastest(lambda: table.take(places), 1 << 14)
        if operation is Operation.PAIRING or "bls12-381" in of:
            return pairing(operation, of)
        if "secp256k1" in of:
            return curve(operation)
        return modular(operation, of)


def fastest(action: Callable[[], object], count: int) -> float:
    """Return microseconds of one of the `count` operations of an action, of the best of 7 runs."""
    took: dict[str, float] = {}
    for _ in range(7):
        spent(took, "it", action)
    return took["it"] / count * 1e6


def modular(operation: Operation, of: str) -> float:
    """Return the price of a product or power in a group of integers."""
    bits = int(of.split()[0]) if of.endswith("bits") and of[0].isdigit() else 2048
    state = gmpy2.random_state(1)
    modulus = gmpy2.mpz_urandomb(state, bits) | 1 | gmpy2.mpz(1) << bits - 1
    a, b = (gmpy2.mpz_urandomb(state, bits - 1) for _ in range(2))
    if operation is Operation.MODULAR_PRODUCT:
        return fastest(lambda: [a * b % modulus for _ in range(1000)], 1000)
    exponent = gmpy2.mpz_urandomb(state, 256 if "256-bit" in of or of == "modp2048" else bits)
    if "exponent" not in of and operation is Operation.EXPONENTIATION:
        exponent = gmpy2.mpz_urandomb(state, bits)
    return fastest(lambda: [gmpy2.powmod(a, exponent, modulus) for _ in range(20)], 20)


def curve(operation: Operation) -> float:
    """Return the price of an operation on secp256k1, by libsecp256k1."""
    from coincurve import PrivateKey, PublicKey

    point, other, secret = PrivateKey().public_key, PrivateKey().public_key, PrivateKey().secret
    actions: dict[Operation, Callable[[], object]] = {
        Operation.MODULAR_PRODUCT: lambda: PublicKey.combine_keys([point, other]),
        Operation.FIXED_BASE: lambda: PublicKey.from_secret(secret),
        Operation.EXPONENTIATION: lambda: point.multiply(b"\x55" * 32),
    }
    action = actions[operation]
    return fastest(lambda: [action() for _ in range(50)], 50)


def pairing(operation: Operation, of: str) -> float:
    """Return the price of a pairing, or of a power in its groups, by mcl."""
    import pymcl

    g1, g2 = pymcl.g1 * pymcl.Fr("3"), pymcl.g2 * pymcl.Fr("5")
    power = pymcl.Fr(str(int.from_bytes(b"\x35" * 31, "big")))
    actions: dict[str, Callable[[], object]] = {
        "G1": lambda: g1 * power,
        "G2": lambda: g2 * power,
        "": lambda: pymcl.pairing(g1, g2),
    }
    if operation is Operation.MODULAR_PRODUCT:
        return modular(operation, "255 bits")
    group = "" if operation is Operation.PAIRING else of.rpartition(" ")[2]
    action = actions[group]
    return fastest(lambda: [action() for _ in range(20)], 20)


def floor(matcher: Matcher, role: str, per: str, prices: Prices) -> float:
    """Return the floor of a step in microseconds, by the operations that the scheme counts."""
    return sum(
        cost.count * prices.of(cost.operation, cost.of)
        for cost in matcher.costs
        if (cost.role, cost.per) == (role, per)
    )


def reusable(table: Table, prices: Prices, quick: bool) -> None:
    """Print the steps of reusable matchers."""
    for name, case in REUSABLE.items():
        if quick and name not in ("TagMatch", "MaskedTopicMatch"):
            continue
        matcher, found = case.make(), measure(name, case)
        for step, (role, per) in STEPS.items():
            least = floor(matcher, role, per, prices)
            if least:
                shown = found[step] / least if least >= LEAST or step == "pair" else None
                table.row(f"{name}, {step}", found[step], least, shown)


def encoded(role: Any, plain: Any, rounds: Any) -> Any:
    """Return the messages of a new role: one that uses a round twice would refuse."""
    return role(SEED).encode(plain, rounds)


def one_time(table: Table, prices: Prices, batch: int) -> None:
    """Print the steps of one-time matchers."""
    for name, make in ONE_TIME.items():
        matcher: Any = make()
        assert matcher.keying is Keying.ROUNDS
        count = max(200, min(batch, 20_000_000 // matcher.event_bytes))
        rounds = np.arange(count)
        events = random_events(matcher.schema, count)
        names = matcher.private_names
        interest: Any = dict.fromkeys(names, 5) if names else boxes(matcher.schema, 1)[0]
        if name in ("EqualityMatch", "OFSGPMatch"):
            interest = " AND ".join(f"{each} = 7" for each in matcher.schema)
        broker, took = matcher.broker(), dict[str, float]()
        sides = {
            "event": partial(encoded, matcher.publisher, events, rounds),
            "interest": partial(encoded, matcher.subscriber, interest, rounds),
        }
        sent = {side: action() for side, action in sides.items()}
        width = matcher.sizes.randomness * matcher.sizes.pieces + 7
        stream = key_stream(count, width)
        a, b = (np.ascontiguousarray(rows) for rows in sent.values())
        least = min(a.shape[1], b.shape[1])
        both = [np.ascontiguousarray(rows[:, :least]) for rows in (a, b)]
        into = np.empty_like(both[0])
        for _ in range(7):
            for side, action in sides.items():
                spent(took, side, action)
            spent(took, "pair", lambda m=broker.match, s=sent: m(*s.values()))
            spent(took, "stream", stream)
            spent(took, "xor", lambda both=both, out=into: np.bitwise_xor(*both, out=out))
        roles = {"event": "publisher", "interest": "subscriber", "pair": "broker"}
        for step, limit in (("event", "stream"), ("interest", "stream"), ("pair", "xor")):
            here, bound = (took[each] / count * 1e6 for each in (step, limit))
            bound += sum(
                cost.count * prices.of(cost.operation, cost.of)
                for cost in matcher.costs
                if cost.role == roles[step] and cost.operation in COUNTED
                if cost.note != "key stream"
            )
            table.row(f"{name}, {step}", here, bound, here / bound)


def check(rows: dict[str, float]) -> int:
    """Compare ratios with those of the file; return the number of those that are worse."""
    tables = json.loads(FIGURES.read_text(encoding="utf-8"))["bench_floors"]["tables"]
    known = tables[TITLE]["rows"]
    column = tables[TITLE]["columns"].index("ratio")
    worse = {
        name: (ratio, known[name][column])
        for name, ratio in rows.items()
        if known.get(name) and known[name][column] and ratio > WORSE * known[name][column]
    }
    for name, (now, before) in worse.items():
        print(f"{name}: {now:,.2f} times its floor, {before:,.2f} before")
    return len(worse)


class Recorded(Table):
    """A table that also keeps its ratios."""

    ratios: dict[str, float]

    def row(self, name: object, *figures: Any) -> None:
        super().row(name, *figures)
        self.ratios = {**getattr(self, "ratios", {}), str(name): figures[2] or 0.0}


def main() -> int:
    settings = options(__doc__, quick="small batches, few matchers", check="compare with the file")
    one_core()
    warnings.simplefilter("ignore", BrokenSchemeWarning)
    print(machine())
    heads = {"microseconds": ",.4f", "floor": ",.4f", "ratio": ",.2f"}
    table = Recorded(TITLE, heads, width=36, least=13)
    prices = Prices()
    one_time(table, prices, 2_000 if settings.quick else 50_000)
    reusable(table, prices, settings.quick)
    return check(table.ratios) if settings.check else 0


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
