"""What does an encryption cost when an event is delivered to a group? Microseconds, one core.

In one run: AES-256-GCM over 64 bytes with a cached key, which is the limit; AES-KW (RFC 3394) and
Fernet over as many; and the sealer over an event's key of 32 bytes, or 80 bytes where another key
and its name travel with it, with a plan at hand and with planning. Then events of one wrap, signed
alone and in batches of 16 and 256, sealed and opened, against unsigned ones.

    python benchmarks/bench_delivery.py [--quick]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_wrap
from report import Table, options
from timing import machine, one_core, repeated, seconds

from ccbps.arrays import Bytes, Index
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_protocol import SealedEvent, group_key
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.plans import Plan, Strategy, Wrap, group_name, personal
from ccbps.delivery.strategies import Naive, SimpleCache
from ccbps.keys import SigningKey

GOAL = 1.6
REPEATS = 1000
SUBSCRIBERS = 1000


class Fixed(Strategy):
    """Strategy of one plan for every event."""

    def __init__(self, subscribers: int, plan: Plan) -> None:
        super().__init__(subscribers)
        self._fixed = plan

    def _plan(self, group: Bytes) -> Plan:
        return self._fixed

    def _count(self, groups: Bytes) -> Index:
        return np.full(len(groups), len(self._fixed))


def joined(strategy: Strategy, **options: Any) -> GroupSealer:
    sealer = GroupSealer(strategy, pad_to=64, **options)
    for one in range(strategy.subscribers):
        sealer.join(one)
    return sealer


NUMBERS = count()
PAYLOAD = os.urandom(63)
"""Padded to 64 bytes."""


def seal_next(sealer: GroupSealer, group: Bytes) -> SealedEvent:
    return sealer.seal(PAYLOAD, next(NUMBERS), group)


def ciphers() -> dict[str, Callable[[], None]]:
    """Return ciphers of 64 bytes; each action is done `REPEATS` times."""
    key, content, nonce, bound = (os.urandom(size) for size in (32, 64, 12, 66))
    gcm, fernet = AESGCM(key), Fernet(Fernet.generate_key())
    actions: dict[str, Callable[[], object]] = {
        "AES-256-GCM, cached key: the limit": lambda: gcm.encrypt(nonce, content, bound),
        "AES-256-GCM, key scheduled each time": lambda: AESGCM(key).encrypt(nonce, content, bound),
        "AES-KW, RFC 3394 (no bound data)": lambda: aes_key_wrap(key, content),
        "Fernet, cached key": lambda: fernet.encrypt(content),
        "deriving a key of a group": lambda: group_key(key, 7, content),
    }
    return {title: repeated(action, REPEATS) for title, action in actions.items()}


def signatures(rounds: int) -> None:
    """Print what signing and verifying add to events of one wrap, by the size of a batch."""
    everybody = pack_groups(np.ones(SUBSCRIBERS, dtype=np.bool_))
    sender = SigningKey.generate()
    actions: dict[str, Callable[[], object]] = {}
    for together in (0, 1, 16, 256):
        sealer = joined(SimpleCache(SUBSCRIBERS, 10), sign=sender if together else None)
        sealer.leave(0)
        key = sealer.join(0)
        groups = np.repeat(everybody[None], together or 256, axis=0)

        def seal(sealer: GroupSealer = sealer, groups: Bytes = groups) -> list[bytes]:
            numbers = list(islice(NUMBERS, len(groups)))
            events = sealer.seal_batch([PAYLOAD] * len(groups), numbers, groups)
            return [event.to_bytes() for event in events]

        batches = 256 // len(groups)
        opener = GroupOpener(key, capacity=10, verify=sender.identity if together else None)
        for message in seal():
            opener.open(message)
        ready = iter([seal() for _ in range((rounds + 1) * batches)])

        def read(opener: GroupOpener = opener, ready: Iterator[list[bytes]] = ready) -> None:
            for message in next(ready):
                opener.open(message)

        title = f"signed, {together} together" if together else "not signed"
        actions[f"seal: {title}"] = repeated(seal, batches)
        actions[f"open: {title}"] = repeated(read, batches)
    took = seconds(actions, rounds)
    heads = {"microseconds": ".1f", "times unsigned": ".2f", "events/s": ",.0f"}
    table = Table("An event of one wrap, whose group is cached", heads, width=56)
    for title, time in took.items():
        unsigned = took[f"{title.partition(':')[0]}: not signed"]
        table.row(title, time / 256 * 1e6, time / unsigned, 256 / time)


def main() -> None:
    rounds = 3 if options(__doc__, quick="fewer rounds").quick else 15
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
    actions[one] = repeated(lambda: seal_next(hit, everybody), REPEATS)
    per[one] = REPEATS
    opener = GroupOpener(key, capacity=10)
    opener.open(hit_event.to_bytes())
    sealed = [seal_next(hit, everybody) for _ in range((rounds + 1) * REPEATS)]
    messages = iter([event.for_subscriber(0) for event in sealed])
    opening = "opening an event with a cached key"
    actions[opening] = repeated(lambda: opener.open(next(messages)), REPEATS)
    per[opening] = REPEATS

    took = seconds(actions, rounds)
    figures = {title: took[title] / per[title] * 1e6 for title in actions}
    limit = figures["AES-256-GCM, cached key: the limit"]
    heads = {"microseconds": ".2f", "times limit": ".2f", "of goal": ".2f"}
    table = Table("An encryption", heads, width=56)
    for title, figure in figures.items():
        goal = figure / GOAL if title.startswith("sealer") else None
        table.row(title, figure, figure / limit, goal)
    signatures(rounds)


if __name__ == "__main__":
    one_core()
    main()
