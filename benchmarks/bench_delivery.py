"""What does an encryption cost when an event is delivered to a group? Microseconds, one core.

In one run: AES-256-GCM over 64 bytes with a cached key, which is the limit; AES-KW (RFC 3394) and
Fernet over as many; and the sealer over what it really wraps, an event's key of 32 bytes, or 80
where another key and its name travel with it, with a plan at hand and with planning.

    python benchmarks/bench_delivery.py [--quick]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_wrap
from timing import machine, one_core, seconds

from ccbps.arrays import Bytes, Index
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_protocol import SealedEvent, group_key
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.plans import Plan, Strategy, Wrap, group_name, personal
from ccbps.delivery.strategies import Naive, SimpleCache

GOAL = 1.6
REPEATS = 1000
SUBSCRIBERS = 1000


class Fixed(Strategy):
    """One plan for every event."""

    def __init__(self, subscribers: int, plan: Plan) -> None:
        super().__init__(subscribers)
        self._fixed = plan

    def _plan(self, group: Bytes) -> Plan:
        return self._fixed

    def _count(self, groups: Bytes) -> Index:
        return np.full(len(groups), len(self._fixed))


def joined(strategy: Strategy) -> GroupSealer:
    sealer = GroupSealer(strategy, pad_to=64)
    for one in range(strategy.subscribers):
        sealer.join(one)
    return sealer


NUMBERS = count()
PAYLOAD = os.urandom(63)
"""Padded to 64 bytes."""


def seal_next(sealer: GroupSealer, group: Bytes) -> SealedEvent:
    return sealer.seal(PAYLOAD, next(NUMBERS), group)


def repeated(action: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(REPEATS):
            action()

    return run


def ciphers() -> dict[str, Callable[[], None]]:
    """Ciphers with a cached key, 64 bytes."""
    key, content, nonce, bound = (os.urandom(size) for size in (32, 64, 12, 66))
    gcm, fernet = AESGCM(key), Fernet(Fernet.generate_key())
    return {
        "AES-256-GCM, cached key: the limit": repeated(lambda: gcm.encrypt(nonce, content, bound)),
        "AES-256-GCM, key scheduled each time": repeated(
            lambda: AESGCM(key).encrypt(nonce, content, bound)
        ),
        "AES-KW, RFC 3394 (no bound data)": repeated(lambda: aes_key_wrap(key, content)),
        "Fernet, cached key": repeated(lambda: fernet.encrypt(content)),
        "deriving a key of a group": repeated(lambda: group_key(key, 7, content)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 15
    print(machine())

    everybody = pack_groups(np.ones(SUBSCRIBERS, dtype=np.bool_))
    half = pack_groups(np.arange(SUBSCRIBERS) % 2 == 0)
    own = tuple(Wrap(personal(one)) for one in range(SUBSCRIBERS))
    name = group_name(everybody)
    carrying = tuple(Wrap(wrap.under, (name,)) for wrap in own)
    fixed = joined(Fixed(SUBSCRIBERS, own))
    carries = joined(Fixed(SUBSCRIBERS, carrying))
    naive, hit = joined(Naive(SUBSCRIBERS)), joined(SimpleCache(SUBSCRIBERS, 10))
    hit.leave(0)
    key = hit.join(0)
    hit_event = seal_next(hit, everybody)
    actions: dict[str, Callable[[], object]] = dict(ciphers())
    per = dict.fromkeys(actions, REPEATS)
    for title, sealer, group in (
        ("sealer, plan at hand, 1,000 wraps of 32 bytes", fixed, everybody),
        ("sealer, plan at hand, 1,000 wraps of 80 bytes", carries, everybody),
        ("sealer and Naive, 500 wraps of 32 bytes", naive, half),
    ):
        actions[title] = partial(seal_next, sealer, group)
        actions[title]()
        before = sealer.encryptions
        actions[title]()
        per[title] = sealer.encryptions - before
    one = "an event whose group is cached: 1 wrap and its payload"
    actions[one] = repeated(lambda: seal_next(hit, everybody))
    per[one] = REPEATS
    opener = GroupOpener(key, capacity=10)
    opener.open(hit_event.to_bytes())
    sealed = [seal_next(hit, everybody) for _ in range((rounds + 1) * REPEATS)]
    messages = iter([event.for_subscriber(0) for event in sealed])
    actions["opening an event with a cached key"] = repeated(lambda: opener.open(next(messages)))
    per["opening an event with a cached key"] = REPEATS

    took = seconds(actions, rounds)
    figures = {title: took[title] / per[title] * 1e6 for title in actions}
    limit = figures["AES-256-GCM, cached key: the limit"]
    print(f"{'microseconds':<56}{'':>8}{'times limit':>13}{'of goal':>9}")
    for title, figure in figures.items():
        goal = f"{figure / GOAL:>9.2f}" if title.startswith("sealer") else ""
        print(f"{title:<56}{figure:>8.2f}{figure / limit:>13.2f}{goal}")


if __name__ == "__main__":
    one_core()
    main()
