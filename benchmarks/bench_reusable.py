"""What do the reusable matchers cost, beside what a user would take today? Microseconds, one core.

First every matcher over the same workload: encryption of an event and of an interest, what the
broker computes once per interest and once per event, and what each further pair takes. Then, each
in one run, the primitives beside their peers (PyPI packages of the `bench` extra; a missing one is
skipped with a word), and the experiment of [N1] Table 2: one event against 1, 5, 10, 15 and 20
subscriptions, without filters.

    python benchmarks/bench_reusable.py [--quick]
"""

from __future__ import annotations

import importlib.util
import math
import operator
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from report import Table, options
from reproduce.encrypted_match import PRINTED, encrypted_match
from timing import machine, one_core
from workloads import roles_of

from ccbps import BrokenSchemeWarning, Category, Schema, SharedSeed, UInt, matching
from ccbps.ciphers.paillier import PaillierEncryptor, PaillierSecretKey
from ccbps.ciphers.prefix_preserving import CryptoPAn
from ccbps.matching import Matcher

ISSUES = ["AAPL", "FB", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(12), day=UInt(8))
TOPIC = Schema(issue=Category(ISSUES), day=UInt(8))


def boxes(count: int) -> list[str]:
    """Return conjunctions of an equality and two intervals."""
    rng = np.random.default_rng(1)
    return [
        f"issue = '{rng.choice(ISSUES)}' AND price < {rng.integers(100, 4096)} AND day >= {d}"
        for d in rng.integers(0, 256, count)
    ]


def topics(count: int) -> list[str]:
    """Return equalities on every attribute; the first 256 differ in the day."""
    rng = np.random.default_rng(2)
    days = np.resize(rng.permutation(256), count)
    return [f"issue = '{rng.choice(ISSUES)}' AND day = {d}" for d in days]


@dataclass
class Case:
    """Matcher and its workload.

    Attributes:
        make: function that makes the matcher.
        events: number of events of a batch.
        interests: number of different interests.
        between: two numbers of interests, whose times give the time of a further pair. If there are
            fewer different interests, they are repeated. The larger number is such that the time of
            its pairs stands out from the broker's time per event.
        predicates: function that makes predicates.
    """

    make: Callable[[], Matcher]
    events: int = 1000
    interests: int = 1000
    between: tuple[int, int] = (1, 1000)
    predicates: Callable[[int], list[str]] = boxes


CASES: dict[str, Case] = {
    "TagMatch": Case(lambda: matching.TagMatch(SCHEMA, topic=["issue"])),
    "PrefixMatch": Case(lambda: matching.broken.PrefixMatch(SCHEMA)),
    "AspeMatch": Case(lambda: matching.broken.AspeMatch(SCHEMA)),
    "AspeMatch, exact": Case(lambda: matching.broken.AspeMatch(SCHEMA, exact=True)),
    "PaillierRangeMatch": Case(
        lambda: matching.broken.PaillierRangeMatch(SCHEMA), 100, 500, (1, 5000)
    ),
    "AdditiveMaskMatch": Case(lambda: matching.broken.AdditiveMaskMatch(SCHEMA)),
    # 20 interests name all bits: with fewer, the broker would read fewer of an event.
    "AccessTreeMatch": Case(lambda: matching.broken.AccessTreeMatch(SCHEMA), 50, 500, (20, 500)),
    "KeywordMatch": Case(lambda: matching.KeywordMatch(TOPIC), 50, 256, (1, 256), topics),
    "KeywordMatch, modp2048": Case(
        lambda: matching.KeywordMatch(TOPIC, group="modp2048"), 4, 256, (1, 256), topics
    ),
    "CommutativeMatch": Case(
        lambda: matching.CommutativeMatch(TOPIC), 10, 100, (1, 200_000), topics
    ),
    "KeywordFilterMatch": Case(lambda: matching.KeywordFilterMatch(TOPIC), predicates=topics),
    "KeywordDictionaryMatch": Case(
        lambda: matching.KeywordDictionaryMatch(TOPIC), predicates=topics
    ),
    "MaskedTopicMatch": Case(lambda: matching.MaskedTopicMatch(TOPIC), predicates=topics),
}


ONE_TIME: dict[str, Callable[[], Matcher]] = {
    "FormulaMatch.box": lambda: matching.FormulaMatch.box(SCHEMA),
    "BranchingMatch.box": lambda: matching.BranchingMatch.box(SCHEMA),
    "OFSGPMatch": lambda: matching.OFSGPMatch(SCHEMA, 4),
}
"""One-time matchers for comparison: an event and an interest message for every pair."""


def records(schema: Schema, count: int) -> dict[str, Any]:
    """Return random events as columns."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {}
    for name in schema:
        if name == "issue":
            columns[name] = rng.choice(ISSUES, count).tolist()
        else:
            columns[name] = rng.integers(0, 1 << schema[name].bits, count)
    return columns


ROUNDS = 7


def spent(best: dict[Any, float], what: Any, action: Callable[[], Any]) -> Any:
    """Do an action, keep its least processor time in seconds, and return its result.

    Other benchmarks take time by the clock. The time of a pair is a difference of two times, which
    suffers most if other processes use the core. All measured work is done by one thread.
    """
    started = time.process_time()
    result = action()
    best[what] = min(best.get(what, float("inf")), time.process_time() - started)
    return result


def measure(name: str, case: Case) -> dict[str, Any]:
    """Return bytes and microseconds of the clients and of the broker.

    The broker's times are per interest, per event, and per further pair. All messages are fresh in
    every round, because some brokers keep what they have decoded.
    """
    matcher = case.make()
    publisher, subscriber, broker = roles_of(matcher)
    events = matcher.schema.encode(records(matcher.schema, case.events))
    parsed = [matcher.schema.parse(text) for text in case.predicates(case.interests)]
    repeated = {count: np.arange(count) % case.interests for count in case.between}
    kept = subscriber.encode(parsed)
    tables = {count: broker.prepare(kept[rows]) for count, rows in repeated.items()}
    few, many = case.between
    answers = broker.match_all(publisher.encode(events), tables[many])
    wanted = np.array([predicate.evaluate(events) for predicate in parsed]).T[:, repeated[many]]
    took: dict[Any, float] = {}
    for _ in range(ROUNDS):
        fresh = spent(took, "interest", lambda: subscriber.encode(parsed))
        spent(took, "prepare", partial(broker.prepare, fresh))
        for count, table in tables.items():
            sent = spent(took, "event", lambda: publisher.encode(events))
            spent(took, count, partial(broker.match_all, sent, table))
    pair = (took[many] - took[few]) / (many - few)
    return {
        "matcher": name,
        "events": case.events,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        "event": took["event"] / case.events * 1e6,
        "interest": took["interest"] / case.interests * 1e6,
        "prepare": took["prepare"] / case.interests * 1e6,
        "once": (took[few] - few * pair) / case.events * 1e6,
        "pair": pair / case.events * 1e6,
        "different": float((answers != wanted).mean()),
    }


def measure_one_time(name: str, matcher: Matcher, count: int = 20_000) -> dict[str, Any]:
    """Return the figures of `measure`, all of them per pair."""
    if matcher.event_bytes > 1000:
        count = 2000
    seed = SharedSeed.generate()
    events = matcher.schema.encode(records(matcher.schema, count))
    predicate = matcher.schema.parse("price < 2048")
    rounds = np.arange(count)
    publisher, subscriber = matcher.publisher, matcher.subscriber
    broker = matcher.broker()
    took: dict[Any, float] = {}
    for _ in range(ROUNDS):
        sent = spent(took, "event", lambda: publisher(seed).encode(events, rounds))
        kept = spent(took, "interest", lambda: subscriber(seed).encode(predicate, rounds))
        answers = spent(took, "pair", partial(broker.match, sent, kept))
    return {
        "matcher": name,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        **{what: least / count * 1e6 for what, least in took.items()},
        "different": float((answers != predicate.evaluate(events)).mean()),
    }


def workload() -> None:
    """Print the figures of all matchers over one kind of workload."""
    columns = {
        "events": ",",
        "event bytes": ",",
        "interest bytes": ",",
        "event": ".2f",
        "interest": ".2f",
        "prepare": ".2f",
        "once": ".2f",
        "pair": ".5f",
        "different": ".2%",
    }
    title = "Matchers: bytes, and microseconds of clients and broker"
    table = Table(title, columns, head="matcher", width=25, least=11)
    for name in (*CASES, *ONE_TIME):
        one_time = name in ONE_TIME
        row = measure_one_time(name, ONE_TIME[name]()) if one_time else measure(name, CASES[name])
        table.row(name, *(row.get(column) for column in columns))


Row = tuple[str, float, float | None, float | None]
"""What, microseconds, the goal or limit, and how many times ours it is."""


def ours_and_peer(title: str, rows: list[Row]) -> None:
    """Print a section, without the peers that are not installed."""
    heads = {"microseconds": ",.3f", "goal": "", "times ours": ",.2f"}
    table = Table(title, heads, width=48)
    for row in rows:
        if math.isfinite(row[1]):
            table.row(*row)


def each(action: Callable[[], object], count: int, rounds: int = 3) -> float:
    """Return microseconds of one of the `count` things that an action does."""
    action()
    took: dict[str, float] = {}
    for _ in range(rounds):
        spent(took, "it", action)
    return took["it"] / count * 1e6


def paillier() -> list[Row]:
    """Measure keys of 2048 bits beside phe and the faster sf-heu."""
    secret = PaillierSecretKey.generate(2048, subgroup_bits=256)
    public, encryptor = secret.public, PaillierEncryptor(secret.public)
    values = list(range(1000, 1200))
    sent = encryptor.encrypt_many(values)
    rows: list[Row] = [
        ("encrypt, from cold", each(lambda: encryptor.encrypt_many(values), 200), 200, None),
    ]
    encryptor.fill(1000)
    pooled: dict[str, float] = {}
    spent(pooled, "it", lambda: encryptor.encrypt_many(values))
    rows.append(("encrypt, from a pool", pooled["it"] / 200 * 1e6, 10, None))
    rows += [
        ("decrypt, subgroup key", each(lambda: secret.decrypt_many(sent), 200), 1100, None),
        ("add", each(lambda: [public.add(c, sent[0]) for c in sent], 200), 5.5, None),
    ]
    few = values[:50]
    for name, theirs in (("phe", phe), ("sf-heu", heu)):
        try:
            encrypt, decrypt, add = theirs()
        except ModuleNotFoundError:
            rows.append((f"{name} is not installed", math.nan, None, None))
            continue
        others = [encrypt(v) for v in few]
        ours = {row[0].split(",")[0]: row[1] for row in reversed(rows) if ":" not in row[0]}
        for what, action in (
            ("encrypt", lambda f=encrypt: [f(v) for v in few]),
            ("decrypt", lambda f=decrypt, c=others: [f(v) for v in c]),
            ("add", lambda f=add, c=others: [f(v, c[0]) for v in c]),
        ):
            took = each(action, len(few))
            rows.append((f"{name}: {what}", took, None, took / ours[what]))
    return rows


Calls = tuple[Callable[[int], Any], Callable[[Any], int], Callable[[Any, Any], Any]]


def phe() -> Calls:
    """Return the encryption, decryption and addition of phe."""
    from phe.paillier import generate_paillier_keypair

    public, secret = generate_paillier_keypair(n_length=2048)
    return public.encrypt, secret.decrypt, operator.add


def heu() -> Calls:
    """Return the encryption, decryption and addition of sf-heu's zpaillier, single calls."""
    from heu.phe import SchemaType, setup

    kit = setup(SchemaType.ZPaillier, 2048)
    return kit.encryptor().encrypt_raw, kit.decryptor().decrypt_raw, kit.evaluator().add


def prefixes() -> list[Row]:
    """Measure Crypto-PAn on IPv4 addresses in bulk beside yacryptopan."""
    key = bytes(range(32))
    codes = np.random.default_rng(5).integers(0, 1 << 32, (1, 400_000), dtype=np.uint64)
    cipher = CryptoPAn(key)
    rows: list[Row] = [
        (
            "Crypto-PAn, per address in bulk",
            each(lambda: cipher.encrypt(codes), 400_000),
            0.2,
            None,
        )
    ]
    try:
        from yacryptopan import CryptoPAn as Peer
    except ModuleNotFoundError:
        return [*rows, ("yacryptopan is not installed", math.nan, None, None)]
    peer = Peer(key)
    few = [f"10.{i}.{3 * i}.{7 * i}" for i in range(30)]
    took = each(lambda: [peer.anonymize(address) for address in few], 30)
    return [*rows, ("yacryptopan, per address", took, None, took / rows[0][1])]


KEYWORD_GOALS = {
    ("secp256k1", "uncached"): 60,
    ("secp256k1", "cached"): 5,
    ("modp2048", "cached"): 5,
}


def keywords() -> list[Row]:
    """Measure KeywordMatch in both groups: one event, and the time of a further pair with it.

    The broker has not seen the event. Uncached, it has not seen the interests either, each of a
    user of its own, and re-encrypts them. Cached, it has prepared them.
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

        for word, many in (("uncached", 40), ("cached", 400)):
            best: dict[int, float] = {}
            tables = {count: broker.prepare(interests(count)) for count in (1, many)}
            for _ in range(9):
                for count in tables:
                    event = publisher.encode({"topic": [65535]})
                    wanted = tables[count] if word == "cached" else interests(count)
                    spent(best, count, partial(broker.match_all, event, wanted))
            rows += [
                (f"{group}: one event, one interest, {word}", 1e6 * best[1], None, None),
                (
                    f"{group}: per further pair, {word}",
                    1e6 * (best[many] - best[1]) / (many - 1),
                    KEYWORD_GOALS.get((group, word)),
                    None,
                ),
            ]
    return rows


def scalar_products() -> list[Row]:
    """Measure AspeMatch on all pairs beside the matrix product of the same shapes."""
    rng = np.random.default_rng(6)
    matcher = matching.broken.AspeMatch(Schema(**{f"x{i}": UInt(12) for i in range(8)}))
    publisher, subscriber, broker = roles_of(matcher)
    events = matcher.schema.encode({n: rng.integers(0, 4096, 4000) for n in matcher.schema})
    sent = publisher.encode(events)
    kept = subscriber.encode([f"x0 < {v} AND x3 >= {v // 2}" for v in range(100, 4096, 20)])
    table, constraints = broker.prepare(kept), 2 * len(matcher.schema)
    left, right = rng.normal(size=(4000, 9)), rng.normal(size=(9, constraints * len(kept)))
    out = np.empty((512, right.shape[1]))

    def product() -> None:
        for start in range(0, 4000, 512):
            part = left[start : start + 512]
            np.matmul(part, right, out=out[: len(part)])

    pairs = 4000 * len(kept)
    took: dict[str, float] = {}
    for _ in range(15):
        spent(took, "ours", partial(broker.match_all, sent, table))
        spent(took, "plain", product)
    ours, plain = (took[what] / pairs * 1e6 for what in ("ours", "plain"))
    return [
        ("per pair of 8 attributes, 16 constraints", ours, None, None),
        ("numpy: the matrix product of dimension 9", plain, None, plain / ours),
    ]


def repeated_subscriptions() -> list[Row]:
    """Measure TagMatch with 100,000 subscriptions, of which 500 are different, event by event.

    Beside it are the same comparisons on plaintext, which also end with 100,000 answers per event.
    """
    matcher = CASES["TagMatch"].make()
    publisher, subscriber, broker = roles_of(matcher)
    texts = boxes(500)
    kept = subscriber.encode(texts)
    repeated = np.random.default_rng(7).permutation(np.arange(100_000) % 500)
    tables = broker.prepare(kept), broker.prepare(kept[repeated])
    columns = matcher.schema.encode(records(matcher.schema, 100))
    sent = publisher.encode(columns)
    bounds = [matcher.schema.parse(text).box().ranges for text in texts]
    low, high = (
        {name: np.array([box[name][end] for box in bounds], np.uint64) for name in matcher.schema}
        for end in (0, 1)
    )

    def plain() -> list[Any]:
        answers = []
        for row in range(100):
            holds = np.ones(500, dtype=np.bool_)
            for name in matcher.schema:
                code = columns.codes[name][0, row]
                holds &= (low[name] <= code) & (code <= high[name])
            answers.append(holds.take(repeated))
        return answers

    if not np.array_equal(np.stack(plain()), broker.match_all(sent, tables[1])):
        raise AssertionError("TagMatch answers otherwise than the plaintext")
    few, many = (
        each(lambda t=table: [broker.match_all(one, t) for one in sent[:, None]], 100)
        for table in tables
    )
    peer = each(plain, 100)
    return [
        ("per event, 500 subscriptions, all different", few, None, None),
        ("per event, 100,000 of 500 different ones", many, 2000, None),
        ("the latter on plaintext, in NumPy", peer, None, peer / many),
    ]


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "Paillier, 2048 bits": paillier,
    "Prefix-preserving encryption": prefixes,
    "KeywordMatch": keywords,
    "AspeMatch": scalar_products,
    "TagMatch, subscriptions that repeat": repeated_subscriptions,
}
"""Primitives beside their peers."""


def samples() -> dict[str, Matcher]:
    """Return the measured matchers by name."""
    made: dict[str, Matcher] = {n: case.make() for n, case in CASES.items()}
    return made | {name: make() for name, make in ONE_TIME.items()}


def main() -> None:
    global ROUNDS
    if options(__doc__, quick="one round of every matcher").quick:
        ROUNDS = 1
    # From the first message on, or it would depend on the work before which kernels run.
    os.environ["CCBPS_COMPILED"] = "1" if importlib.util.find_spec("numba") else "0"
    warnings.simplefilter("ignore", BrokenSchemeWarning)
    print(machine())
    workload()
    for title, section in SECTIONS.items():
        ours_and_peer(title, section())
    heads = {"as they come": ".3f", "prepared": ".3f", "printed": ".3f"}
    title = "One event with some subscriptions, milliseconds"
    table = Table(title, heads, head="subscriptions", width=14)
    for count, (fresh, prepared) in encrypted_match().items():
        table.row(count, fresh, prepared, PRINTED[count])


if __name__ == "__main__":
    one_core()
    main()
