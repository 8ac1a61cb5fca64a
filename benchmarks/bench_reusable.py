"""What do the reusable matchers cost, beside what a user would take today? Microseconds, one core.

First every matcher over the same workload: encryption of an event and of an interest, what the
broker computes once for an interest, and a pair. Then, each in one run, the primitives beside
their peers (PyPI packages of the `bench` extra; a missing one is skipped with a word), and the
experiment of [N1] Table 2: one event against 1, 5, 10, 15 and 20 subscriptions, without filters.

    python benchmarks/bench_reusable.py [--json docs/reusable.json]
"""

from __future__ import annotations

import argparse
import json
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import machine, one_core, seconds

one_core()

import numpy as np
from reproduce.encrypted_match import PRINTED, encrypted_match

from ccbps import Category, Schema, SharedSeed, UInt, matching
from ccbps.ciphers.paillier import PaillierEncryptor
from ccbps.ciphers.paillier_keys import PaillierSecretKey
from ccbps.ciphers.prefix_preserving import CryptoPAn
from ccbps.matching import Matcher
from ccbps.matching.reusable import ReusableMatcher

ISSUES = ["AAPL", "FB", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(12), day=UInt(8))
TOPIC = Schema(issue=Category(ISSUES), day=UInt(8))


def boxes(count: int) -> list[str]:
    """Conjunctions of an equality and two intervals."""
    rng = np.random.default_rng(1)
    return [
        f"issue = '{rng.choice(ISSUES)}' AND price < {rng.integers(100, 4096)} AND day >= {d}"
        for d in rng.integers(0, 256, count)
    ]


def topics(count: int) -> list[str]:
    """An equality on every attribute."""
    rng = np.random.default_rng(2)
    return [f"issue = '{rng.choice(ISSUES)}' AND day = {d}" for d in rng.integers(0, 256, count)]


@dataclass
class Case:
    """A matcher, how many events and interests it is measured with, and what they are."""

    make: Callable[[], ReusableMatcher]
    events: int
    interests: int
    predicates: Callable[[int], list[str]] = boxes


CASES: dict[str, Case] = {
    "TagMatch": Case(lambda: matching.TagMatch(SCHEMA, topic=["issue"]), 2000, 300),
    "PrefixMatch": Case(lambda: matching.PrefixMatch(SCHEMA), 5000, 500),
    "AspeMatch": Case(lambda: matching.AspeMatch(SCHEMA), 5000, 500),
    "AspeMatch, exact": Case(lambda: matching.AspeMatch(SCHEMA, exact=True), 5000, 500),
    "PaillierRangeMatch": Case(lambda: matching.PaillierRangeMatch(SCHEMA), 200, 50),
    "AdditiveMaskMatch": Case(lambda: matching.AdditiveMaskMatch(SCHEMA), 5000, 500),
    "AccessTreeMatch": Case(lambda: matching.AccessTreeMatch(SCHEMA), 20, 5),
    "KeywordMatch": Case(lambda: matching.KeywordMatch(TOPIC), 50, 50, topics),
    "KeywordMatch, modp2048": Case(
        lambda: matching.KeywordMatch(TOPIC, group="modp2048"), 50, 50, topics
    ),
    "CommutativeMatch": Case(lambda: matching.CommutativeMatch(TOPIC), 50, 50, topics),
    "KeywordFilterMatch": Case(lambda: matching.KeywordFilterMatch(TOPIC), 2000, 300, topics),
    "KeywordDictionaryMatch": Case(
        lambda: matching.KeywordDictionaryMatch(TOPIC), 2000, 300, topics
    ),
    "MaskedTopicMatch": Case(lambda: matching.MaskedTopicMatch(TOPIC), 5000, 500, topics),
}


ONE_TIME: dict[str, Callable[[], Matcher]] = {
    "BranchingMatch.box": lambda: matching.BranchingMatch.box(SCHEMA),
    "OFSGPMatch": lambda: matching.OFSGPMatch(SCHEMA, 4),
}
"""One-time matchers for comparison: an event and an interest message for every pair."""


def records(schema: Schema, count: int) -> dict[str, Any]:
    """Random events as columns."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {}
    for name in schema:
        if name == "issue":
            columns[name] = rng.choice(ISSUES, count).tolist()
        else:
            columns[name] = rng.integers(0, 1 << schema[name].bits, count)
    return columns


def measure(name: str, case: Case) -> dict[str, Any]:
    """One row: bytes, and microseconds for an event, an interest and a pair."""
    matcher = case.make()
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    broker = matcher.broker(server.broker_key())
    events = matcher.schema.encode(records(matcher.schema, case.events))
    texts = case.predicates(case.interests)
    parsed = [matcher.schema.parse(text) for text in texts]
    sent, kept = publisher.encode(events), subscriber.encode(parsed)
    table = broker.prepare(kept)
    answers = broker.match_all(sent, table)
    wanted = np.array([predicate.evaluate(events) for predicate in parsed]).T
    wrong = int((answers != wanted).sum())
    took = seconds(
        {
            "event": lambda: publisher.encode(events),
            "interest": lambda: subscriber.encode(parsed),
            "prepare": lambda: broker.prepare(kept),
            "pair": lambda: broker.match_all(sent, table),
        },
        rounds=3,
    )
    return {
        "matcher": name,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        "event": took["event"] / case.events * 1e6,
        "interest": took["interest"] / case.interests * 1e6,
        "prepare": took["prepare"] / case.interests * 1e6,
        "pair": took["pair"] / (case.events * case.interests) * 1e6,
        "different": wrong / answers.size,
    }


def measure_one_time(name: str, matcher: Matcher, count: int = 20_000) -> dict[str, Any]:
    """As `measure`; all figures are for a pair, since messages are."""
    if matcher.event_bytes > 1000:
        count = 2000
    seed = SharedSeed.generate()
    events = matcher.schema.encode(records(matcher.schema, count))
    predicate = matcher.schema.parse("price < 2048")
    rounds = np.arange(count)
    sent = matcher.publisher(seed).encode(events, rounds)
    kept = matcher.subscriber(seed).encode(predicate, rounds)
    broker = matcher.broker()
    wrong = int((broker.match(sent, kept) != predicate.evaluate(events)).sum())
    took = seconds(
        {
            "event": lambda: matcher.publisher(seed).encode(events, rounds),
            "interest": lambda: matcher.subscriber(seed).encode(predicate, rounds),
            "pair": lambda: broker.match(sent, kept),
        },
        rounds=3,
    )
    return {
        "matcher": name,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        **{what: spent / count * 1e6 for what, spent in took.items()},
        "prepare": 0.0,
        "different": wrong / count,
    }


def workload() -> list[dict[str, Any]]:
    """All matchers over the same kind of workload."""
    print(f"{'':<25}{'bytes':>14}{'us an':>12}{'us an':>12}{'us once an':>12}{'us a':>11}")
    print(
        f"{'matcher':<25}{'event':>7}{'inter.':>7}{'event':>12}{'interest':>12}"
        f"{'interest':>12}{'pair':>11}  differs"
    )
    rows = []
    for name in (*CASES, *ONE_TIME):
        one_time = name in ONE_TIME
        row = measure_one_time(name, ONE_TIME[name]()) if one_time else measure(name, CASES[name])
        rows.append(row)
        print(
            f"{name:<25}{row['event bytes']:>7}{row['interest bytes']:>7}{row['event']:>12.2f}"
            f"{row['interest']:>12.2f}{row['prepare']:>12.2f}{row['pair']:>11.4f}"
            f"{row['different']:>9.2%}"
        )
    return rows


Row = tuple[str, float, str]
"""What, microseconds, and what to compare it with."""


def ours_and_peer(title: str, rows: list[Row]) -> None:
    """Print a section."""
    print(f"\n{title}")
    for what, took, remark in rows:
        print(f"  {what:<46}{took:>12.3f} us  {remark}")


def each(action: Callable[[], object], count: int, rounds: int = 3) -> float:
    """Microseconds of one of the `count` things that an action does."""
    return seconds({"it": action}, rounds=rounds)["it"] / count * 1e6


def paillier() -> list[Row]:
    """Keys of 2048 bits; the peers are phe and the faster sf-heu."""
    secret = PaillierSecretKey.generate(2048, subgroup_bits=256)
    public, encryptor = secret.public, PaillierEncryptor(secret.public)
    values = list(range(1000, 1200))
    sent = encryptor.encrypt_many(values)
    rows: list[Row] = [
        ("encrypt, from cold", each(lambda: encryptor.encrypt_many(values), 200), "goal 200"),
    ]
    encryptor.fill(1000)
    started = time.perf_counter()
    encryptor.encrypt_many(values)
    rows.append(("encrypt, from a pool", (time.perf_counter() - started) / 200 * 1e6, "goal 10"))
    rows += [
        ("decrypt, subgroup key", each(lambda: secret.decrypt_many(sent), 200), "goal 1100"),
        ("add", each(lambda: [public.add(c, sent[0]) for c in sent], 200), "goal 5.5"),
    ]
    few = values[:50]
    for name, theirs in (("phe", phe), ("sf-heu", heu)):
        try:
            encrypt, decrypt, add = theirs()
        except ModuleNotFoundError:
            rows.append((f"{name} is not installed", float("nan"), ""))
            continue
        others = [encrypt(v) for v in few]
        ours = {row[0].split(",")[0]: row[1] for row in reversed(rows) if ":" not in row[0]}
        for what, action in (
            ("encrypt", lambda f=encrypt: [f(v) for v in few]),
            ("decrypt", lambda f=decrypt, c=others: [f(v) for v in c]),
            ("add", lambda f=add, c=others: [f(v, c[0]) for v in c]),
        ):
            took = each(action, len(few))
            rows.append((f"{name}: {what}", took, f"{took / ours[what]:.1f} times ours"))
    return rows


Calls = tuple[Callable[[int], Any], Callable[[Any], int], Callable[[Any, Any], Any]]


def phe() -> Calls:
    """Encrypt, decrypt and add of phe."""
    from phe.paillier import generate_paillier_keypair

    public, secret = generate_paillier_keypair(n_length=2048)
    return public.encrypt, secret.decrypt, operator.add


def heu() -> Calls:
    """Encrypt, decrypt and add of sf-heu's zpaillier, single calls."""
    from heu.phe import SchemaType, setup

    kit = setup(SchemaType.ZPaillier, 2048)
    return kit.encryptor().encrypt_raw, kit.decryptor().decrypt_raw, kit.evaluator().add


def prefixes() -> list[Row]:
    """Crypto-PAn on IPv4 addresses in bulk; the peer is yacryptopan."""
    key = bytes(range(32))
    codes = np.random.default_rng(5).integers(0, 1 << 32, (1, 400_000), dtype=np.uint64)
    cipher = CryptoPAn(key)
    rows: list[Row] = [
        ("Crypto-PAn, an address in bulk", each(lambda: cipher.encrypt(codes), 400_000), "goal 0.2")
    ]
    try:
        from yacryptopan import CryptoPAn as Peer
    except ModuleNotFoundError:
        return [*rows, ("yacryptopan is not installed", float("nan"), "")]
    peer = Peer(key)
    few = [f"10.{i}.{3 * i}.{7 * i}" for i in range(30)]
    took = each(lambda: [peer.anonymize(address) for address in few], 30)
    return [*rows, ("yacryptopan: an address", took, f"{took / rows[0][1]:,.0f} times")]


def keywords() -> list[Row]:
    """KeywordMatch in both groups: one event, and what a pair more takes with it.

    The broker has not seen the event. Uncached, it has not seen the interests either, each of a
    user of its own, and re-encrypts them; cached, it has prepared them.
    """
    rows: list[Row] = []
    for group in ("secp256k1", "modp2048"):
        matcher = matching.KeywordMatch(Schema(topic=UInt(16)), group=group)
        server = matcher.key_server()
        publisher = matcher.publisher(server.publisher_key())
        subscribers = [matcher.subscriber(server.subscriber_key(str(i))) for i in range(400)]
        broker = matcher.broker(server.broker_key())

        def interests(count: int, of: list[Any] = subscribers) -> Any:
            return np.concatenate([one.encode(f"topic = {i}") for i, one in enumerate(of[:count])])

        for word, goal, many in (("uncached", 60, 40), ("cached", 5, 400)):
            best = {1: float("inf"), many: float("inf")}
            tables = {count: broker.prepare(interests(count)) for count in best}
            for _ in range(9):
                for count in best:
                    event = publisher.encode({"topic": [65535]})
                    wanted = tables[count] if word == "cached" else interests(count)
                    started = time.perf_counter()
                    broker.match_all(event, wanted)
                    best[count] = min(best[count], 1e6 * (time.perf_counter() - started))
            rows += [
                (f"{group}: one event, one interest, {word}", best[1], ""),
                (
                    f"{group}: a pair more, {word}",
                    (best[many] - best[1]) / (many - 1),
                    f"goal {goal}",
                ),
            ]
    return rows


def scalar_products() -> list[Row]:
    """AspeMatch: all pairs beside the matrix product of the same shapes, nothing else."""
    rng = np.random.default_rng(6)
    matcher = matching.AspeMatch(Schema(**{f"x{i}": UInt(12) for i in range(8)}))
    server = matcher.key_server()
    events = matcher.schema.encode({n: rng.integers(0, 4096, 4000) for n in matcher.schema})
    sent = matcher.publisher(server.publisher_key()).encode(events)
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    kept = subscriber.encode([f"x0 < {v} AND x3 >= {v // 2}" for v in range(100, 4096, 20)])
    broker = matcher.broker(server.broker_key())
    table, constraints = broker.prepare(kept), 2 * len(matcher.schema)
    left, right = rng.normal(size=(4000, 9)), rng.normal(size=(9, constraints * len(kept)))
    out = np.empty((512, right.shape[1]))

    def product() -> None:
        for start in range(0, 4000, 512):
            part = left[start : start + 512]
            np.matmul(part, right, out=out[: len(part)])

    pairs = 4000 * len(kept)
    ours, plain = each(lambda: broker.match_all(sent, table), pairs), each(product, pairs)
    return [
        ("a pair of 8 attributes, 16 constraints", ours, f"{ours / plain:.2f} times the product"),
        ("numpy: the matrix product of dimension 9", plain, ""),
    ]


def samples() -> dict[str, Matcher | ReusableMatcher]:
    """The matchers that are measured, by name."""
    made: dict[str, Matcher | ReusableMatcher] = {n: case.make() for n, case in CASES.items()}
    return made | {name: make() for name, make in ONE_TIME.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="where to write the figures, for the documentation")
    options = parser.parse_args()
    print(machine())
    rows = workload()
    ours_and_peer("Paillier, 2048 bits", paillier())
    ours_and_peer("Prefix-preserving encryption", prefixes())
    ours_and_peer("KeywordMatch", keywords())
    ours_and_peer("AspeMatch", scalar_products())
    print("\nOne event against some subscriptions, milliseconds; [N1] Table 2 beside it")
    print(f"{'interests':>11}{'as they come':>15}{'prepared':>11}{'printed':>11}")
    for count, (fresh, prepared) in encrypted_match().items():
        print(f"{count:>11}{fresh:>15.3f}{prepared:>11.3f}{PRINTED[count]:>11}")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
