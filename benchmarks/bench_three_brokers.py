"""What do three brokers cost for a pair of an event and an interest, beside their limits?

A box of 16+16+20 bits. Each figure is of one broker, without the network: nanoseconds a pair for
everything that it computes, for the lookups alone, for its masks (two streams of AES-256), and for
one pass over the shares that it reads. Beside them FormulaMatch, whose messages are made for each
pair: its broker, and its broker with both encoders. And the bytes of an event and of an interest,
and the bits that a broker sends for a pair, by the bits of a digit.

    python benchmarks/bench_three_brokers.py [--interests 100000] [--quick]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_core, seconds

from ccbps import Schema, SharedSeed, UInt
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.matching import FormulaMatch
from ccbps.shares.answers import add_pads, attempt_names
from ccbps.shares.clients import BrokerKey, Client
from ccbps.shares.masks import MaskStreams
from ccbps.shares.replicated import Evaluation, add_rows
from ccbps.shares.table import BATCH_EVENTS, BLOCK_LANES

SCHEMA = Schema(price=UInt(16), volume=UInt(16), issue=UInt(20))
PAIRS = 100_000  # of FormulaMatch


class Work:
    """A block of random shares, and a batch of events, as one broker has them."""

    def __init__(self, window: int, events: int, interests: int) -> None:
        self.form = form = FormulaDigits(SCHEMA, dict.fromkeys(SCHEMA, window), box_form(SCHEMA))
        rng = np.random.default_rng(1)
        places = sum(1 << width for width in form.digit_bits)
        self.events = tuple(rng.integers(0, 2, (2, events, places), dtype=np.uint8))
        words = -(-interests // 64)
        self.interests = tuple(rng.integers(0, 1 << 64, (2, form.rows, words), dtype=np.uint64))
        self.evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
        self.streams, self.unit = MaskStreams(os.urandom(32), os.urandom(32)), 0
        self.pairs = events * interests

    def masks(self) -> Any:
        """Return the masks of the next unit."""
        self.unit += 1
        return self.streams.unit(self.unit)

    def evaluate(self, keys: Any = None) -> None:
        """Do all that a broker computes; what it sends comes back as what it receives."""
        steps: Any = self.evaluation.steps(
            self.events,  # type: ignore[arg-type]
            self.interests,  # type: ignore[arg-type]
            self.masks(),
            keys=keys,
        )
        sums = next(steps)
        try:
            while True:
                sums = steps.send(sums)
        except StopIteration:
            pass

    def look_up(self) -> None:
        """Look up all tables."""
        form, out = self.form, np.zeros((len(self.events[0]), self.interests[0].shape[1]), "u8")
        starts = np.cumsum([0, *(1 << width for width in form.digit_bits)])
        for table, digit in enumerate(form.tables):
            rows = slice(form.table_rows[table], form.table_rows[table + 1])
            chosen = slice(starts[digit], starts[digit + 1])
            for share, event in zip(self.interests, self.events, strict=True):
                add_rows(share[rows], event[:, chosen], out)

    def mask(self) -> None:
        """Make all masks."""
        masks, (events, words) = self.masks(), (len(self.events[0]), self.interests[0].shape[1])
        for layer in self.form.program.layers:
            masks((len(layer), events, words))

    def read(self) -> None:
        """Read all shares once, which serves all events of the batch."""
        for share in self.interests:
            np.bitwise_xor.reduce(share.reshape(-1))


def for_subscribers(work: Work, clients: int) -> dict[str, Callable[[], object]]:
    """Return what a broker does for answers that no broker learns, with so many subscribers."""
    brokers = [BrokerKey.generate().public for _ in range(3)]
    subscribers = [Client(brokers, bytes(32)) for _ in range(clients)]
    events, lanes = len(work.events[0]), 64 * work.interests[0].shape[1]
    heads = subscribers[0].heads("event", events)
    each = [client.heads("interest", lanes // clients) for client in subscribers]
    interests = np.concatenate(each)
    keys = {client.keys.client: client.keys for client in subscribers}
    shares = np.zeros((events, len(interests), 16), dtype=np.uint8)
    payload = tuple(np.random.default_rng(3).integers(0, 256, (2, events, 16), dtype=np.uint8))
    return {
        "brokers": work.evaluate,
        "times keys": lambda: work.evaluate(payload),
        "sealed": lambda: add_pads(0, keys, heads, interests, attempt_names(b"", events), shares),
    }


def formula_match(pairs: int) -> dict[str, Callable[[], object]]:
    """Return what the roles of FormulaMatch do for some pairs."""
    matcher, seed = FormulaMatch.box(SCHEMA), SharedSeed.generate()
    publisher, subscriber = matcher.publisher(seed), matcher.subscriber(seed)
    rng, broker = np.random.default_rng(2), matcher.broker()
    events = SCHEMA.encode({name: rng.integers(0, 1 << 16, pairs) for name in SCHEMA})
    predicate = SCHEMA.parse("price < 30000 AND volume > 20000")
    used = [0, 0]

    def rounds(side: int) -> Any:
        used[side] += pairs
        return np.arange(used[side] - pairs, used[side], dtype=np.uint64)

    sent = publisher.encode(events, rounds(0)), subscriber.encode(predicate, rounds(1))
    return {
        "publisher": lambda: publisher.encode(events, rounds(0)),
        "subscriber": lambda: subscriber.encode(predicate, rounds(1)),
        "broker": lambda: broker.match(*sent),
    }


def main() -> None:
    given = options(__doc__, interests=100_000, quick="few interests, one round")
    interests = 6_400 if given.quick else given.interests
    rounds = 1 if given.quick else 7
    block = min(BLOCK_LANES, interests)
    print(machine())
    heads = {"event bytes": ",d", "interest bytes": ",d", "bits a pair": ",d", "layers": ",d"}
    table = Table("Three brokers: sizes by the bits of a digit", heads)
    for window in (2, 3, 4, 5, 6):
        form = FormulaDigits(SCHEMA, dict.fromkeys(SCHEMA, window), box_form(SCHEMA))
        sizes = -(-form.event_bits // 8), -(-form.rows // 8)
        table.row(window, *sizes, form.program.gates, len(form.program.layers))

    heads = {
        "broker": ".1f",
        "lookups": ".1f",
        "masks": ".1f",
        "reading": ".2f",
        "broker : lookups + masks": ".2f",
    }
    table = Table("One broker, nanoseconds a pair, by the bits of a digit", heads)
    least: dict[int, float] = {}
    for window in (2, 4, 6):
        work = Work(window, BATCH_EVENTS, block)
        took = seconds(
            {
                "broker": work.evaluate,
                "lookups": work.look_up,
                "masks": work.mask,
                "reading": work.read,
            },
            rounds,
        )
        each = {name: 1e9 * second / work.pairs for name, second in took.items()}
        least[window] = each["broker"]
        table.row(window, *each.values(), each["broker"] / (each["lookups"] + each["masks"]))

    heads = {"for brokers": ".1f", "times keys": ".1f", "sealed": ".1f", "times as long": ".2f"}
    table = Table("Answers for subscribers, nanoseconds a pair", heads, head="subscribers")
    for clients in (1, 100) if given.quick else (1, 100, 4_096):
        work = Work(4, BATCH_EVENTS, block)
        took = seconds(for_subscribers(work, clients), rounds)
        brokers, keys, sealed = (1e9 * second / work.pairs for second in took.values())
        table.row(clients, brokers, keys, sealed, (keys + sealed) / brokers)

    pairs = 6_400 if given.quick else PAIRS
    took = seconds(formula_match(pairs), rounds)
    each = {name: 1e9 * second / pairs for name, second in took.items()}
    heads = {"ns a pair": ".1f", "times a broker of three": ".1f"}
    table = Table("FormulaMatch for the same box", heads)
    table.row("broker", each["broker"], each["broker"] / least[4])
    whole = sum(each.values())
    table.row("broker and both encoders", whole, whole / least[4])


if __name__ == "__main__":
    one_core()
    main()
