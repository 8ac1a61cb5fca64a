"""What do sessions of ObliviousTopicMatch cost? Microseconds of each step, one core.

Requests for one topic each, sessions with a publisher of some topics, and events of one topic each.
Signatures are included: a request takes one and its check, and so does a session. Beside them: 64
bytes by AES-256-GCM under a cached key, which is what a subscriber costs if events are encrypted
for each.

    python benchmarks/bench_sessions.py [--quick]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from report import Table, options
from timing import machine, one_core, repeated, seconds, timed

from ccbps import Category, Schema, UInt
from ccbps.keys import SigningKey
from ccbps.matching import ObliviousTopicMatch

PAYLOAD = 64
CASES = {"secp256k1": (10, 20, 4000), "modp2048": (2, 5, 4000)}
"""Numbers of topics, requests and events, by group."""
STEPS = (
    "per request",
    "per session, for each topic",
    "accepting it, for each topic",
    "per event, for each request",
    "opening an event, for each interest",
)


def measure(group: str, rounds: int, most: int) -> dict[str, float]:
    """Return the least microseconds of each step."""
    topics, requests, events = CASES[group]
    events = min(events, most)
    schema = Schema(issue=Category([f"S{n}" for n in range(topics)]), price=UInt(16))
    matcher = ObliviousTopicMatch(schema, ["issue"], group=group, payload_bytes=PAYLOAD)
    texts = [f"issue = 'S{n}'" for n in range(topics)]
    wanted = [texts[n % topics] for n in range(requests)]
    rng = np.random.default_rng(1)
    records = {
        "issue": [f"S{n}" for n in rng.integers(0, topics, events)],
        "price": rng.integers(0, 1 << 16, events),
    }
    payloads = [os.urandom(PAYLOAD) for _ in range(events)]
    best = dict.fromkeys(STEPS, float("inf"))
    for _ in range(rounds):
        took = steps(matcher, texts, wanted, records, payloads)
        best = {step: min(least, took[step]) for step, least in best.items()}
    return best


def steps(
    matcher: ObliviousTopicMatch,
    texts: list[str],
    wanted: list[str],
    records: dict[str, Any],
    payloads: list[bytes],
) -> dict[str, float]:
    """Return microseconds of each step, once, with new clients."""
    subscriber, publisher = matcher.new_subscriber(), matcher.new_publisher(texts)
    publisher.admit(subscriber.identity, requests=len(wanted))
    subscriber.trust(publisher.identity)
    kept: list[Any] = []
    each, all_events = len(wanted) * len(texts), len(wanted) * len(payloads)
    actions: list[tuple[int, Callable[[], object]]] = [
        (len(wanted), lambda: subscriber.encode(wanted)),
        (each, lambda: publisher.answer(kept[0])),
        (each, lambda: subscriber.accept(kept[1])),
        (all_events, lambda: publisher.encode(records, payloads=payloads)),
        (all_events, lambda: subscriber.open(kept[3])),
    ]
    took = [timed(lambda do=do: kept.append(do())) / count for count, do in actions]
    return {step: 1e6 * second for step, second in zip(STEPS, took, strict=True)}


def alone(rounds: int) -> dict[str, float]:
    """Return microseconds of a signature, its check, and an encryption."""
    key, text = SigningKey.generate(), os.urandom(200)
    gcm, nonce, payload = AESGCM(os.urandom(32)), os.urandom(12), os.urandom(PAYLOAD)
    signed, public = key.sign(text), Ed25519PublicKey.from_public_bytes(key.identity)
    actions: dict[str, Callable[[], object]] = {
        "a signature": lambda: key.sign(text),
        "its check": lambda: public.verify(signed, text),
        "AES-256-GCM, 64 bytes, cached key": lambda: gcm.encrypt(nonce, payload, None),
    }
    took = seconds({name: repeated(do, 100) for name, do in actions.items()}, rounds)
    return {name: 1e4 * second for name, second in took.items()}


def main() -> None:
    quick = options(__doc__, quick="one round, few events").quick
    print(machine())
    rounds = 1 if quick else 5
    found = {group: measure(group, rounds, 100 if quick else 4000) for group in CASES}
    table = Table("Steps, microseconds", dict.fromkeys(CASES, ",.2f"), width=40)
    for step in STEPS:
        table.row(step, *(found[group][step] for group in CASES))
    table = Table("Beside them, microseconds", {"microseconds": ".2f"}, width=40)
    for name, took in alone(rounds).items():
        table.row(name, took)


if __name__ == "__main__":
    one_core()
    main()
