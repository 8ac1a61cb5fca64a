"""How many events a second do three brokers match, each a process of its own, over TLS?

A box of 16+16+20 bits, and interests that all differ. First as many events as they can match, some
together. Then events that come at a steady rate: the time from an event's arrival to its answers.
Each event waits until the ones before it are matched; those that wait are matched together. The
bytes that broker 0 hands to the next one are counted beside the formula: a bit for each gate and
one for the answer, for each event and lane, and 258 bits for the check of an event. At last the
same box with MPyC, where it is installed.

All three brokers share the cores of this machine, which three operators would not.

    python benchmarks/bench_trio.py [--most 1000000] [--quick]
"""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from report import Table, options
from timing import machine
from tqdm import tqdm

from ccbps import Schema, UInt
from ccbps.arrays import Bytes
from ccbps.keys import OperatorKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.operators import Operator
from ccbps.trio import Follower, Leader, Trio

SCHEMA = Schema(price=UInt(16), volume=UInt(16), issue=UInt(20))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
TOGETHER = 64
RATE = 200  # events a second
STEP = 50_000  # interests that are encoded at a time


def follow(party: int, trio: Trio, secret: bytes) -> None:
    """Be broker 1 or 2 until the process is ended."""
    with Follower(party, trio, OperatorKey(secret), MATCHER):
        threading.Event().wait()


def free_port() -> int:
    """Return a port that nobody uses, and below which others are likely to be free."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def running() -> Iterator[tuple[Leader, tuple[bytes, ...]]]:
    """Start three brokers; yield broker 0, and the public keys of all."""
    keys = [OperatorKey.generate() for _ in range(3)]
    first = 20_000 + free_port() % 10_000
    a, b, c = (Operator.of(key, f"127.0.0.1:{first + 4 * n}") for n, key in enumerate(keys))
    trio, context = Trio((a, b, c)), multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        for party in (1, 2):
            process = context.Process(
                target=follow, args=(party, trio, keys[party].export_secret())
            )
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
        leader = stack.enter_context(Leader(trio, keys[0], MATCHER))
        yield leader, (a.public, b.public, c.public)


def wanted(count: int) -> list[str]:
    """Return predicates that all differ."""
    rng = np.random.default_rng(count)
    low, width = rng.integers(0, 60_000, count), rng.integers(1, 5_000, count)
    return [
        f"price BETWEEN {a} AND {a + b} AND volume < {60_000 - b} AND issue >= {n}"
        for n, (a, b) in enumerate(zip(low.tolist(), width.tolist(), strict=True))
    ]


def latencies(leader: Leader, table: int, events: Bytes, rate: float) -> np.ndarray:
    """Let events come at a rate; return the seconds from each one's arrival to its answers."""
    out, done, start = np.zeros(len(events)), 0, time.perf_counter()
    arrivals = start + np.arange(len(events)) / rate
    while done < len(events):
        there = int(np.searchsorted(arrivals, time.perf_counter(), side="right"))
        if there == done:
            time.sleep(max(0.0, arrivals[done] - time.perf_counter()))
            continue
        stop = min(there, done + TOGETHER)
        leader.match([table], events[done:stop])
        out[done:stop] = time.perf_counter() - arrivals[done:stop]
        done = stop
    return out


def mpyc_pairs(pairs: int) -> float | None:
    """Return the seconds that MPyC takes a pair, None where it is not installed."""
    program = Path(__file__).with_name("mpyc_box.py")
    done = subprocess.run(
        [sys.executable, program, str(pairs), "-M3"], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith("seconds "):
            return float(line.split()[1]) / pairs
    return None


def main() -> None:
    given = options(__doc__, most=1_000_000, quick="few interests and events")
    counts = [n for n in (10_000, 100_000, 1_000_000) if n <= given.most]
    counts, events = (counts[:1], 64) if given.quick else (counts, 2_000)
    print(machine())
    heads = {
        "1 event": ".2f",
        f"{TOGETHER} together": ".2f",
        "ns a pair": ".1f",
        "bits a pair": ".2f",
        "formula": ".2f",
    }
    speeds = Table("Three processes over TLS, milliseconds an event, by interests", heads)
    heads = {"events a second": ",.0f", "median": ".1f", "99 %": ".1f"}
    steady = Table("Milliseconds from an event's arrival to its answers, by interests", heads)
    pair = 0.0
    with running() as (leader, public):
        feed, client = MATCHER.publisher(public), MATCHER.subscriber(public)
        leader.greet("feed", feed.hellos)
        leader.greet("client", client.hellos)
        rng, held, table = np.random.default_rng(7), 0, leader.new_table()
        records = SCHEMA.encode({name: rng.integers(0, 1 << 16, events) for name in SCHEMA})
        sent = feed.seal(feed.encode(records))
        bar = tqdm(total=counts[-1], unit=" interests", disable=None)
        for count in counts:
            while held < count:
                more = min(STEP, count - held)
                rows = client.seal(client.encode(wanted(more)))
                leader.put(table, np.arange(held, held + more), rows)
                held += more
                bar.update(more)
            rounds = max(1, min(5, 10**6 // count))
            one = several = float("inf")
            for number in range(rounds):
                start = time.perf_counter()
                leader.match([table], sent[number : number + 1])
                one = min(one, time.perf_counter() - start)
                before, start = leader.sent_bytes, time.perf_counter()
                leader.match([table], sent[:TOGETHER])
                several = min(several, time.perf_counter() - start)
                bits = 8 * (leader.sent_bytes - before) / TOGETHER
            lanes = 64 * -(-count // 64)
            # The check of an event: a tag of 128 bits, and twice 64 sums and a mark. Twice a coin.
            formula = lanes * (MATCHER.size + 1) + 128 + 2 * (64 + 1) + 2 * 256 / TOGETHER
            each = several / TOGETHER
            speeds.row(
                f"{count:,}",
                1e3 * one,
                1e3 * each,
                1e9 * each / count,
                bits / count,
                formula / count,
            )
            if count == counts[0]:
                pair = each / count
                seconds = latencies(leader, table, sent, RATE)
                late = 1e3 * np.percentile(seconds, [50, 99])
                steady.row(f"{count:,}", RATE, *late)
        bar.close()
    took = mpyc_pairs(20 if given.quick else 200)
    peer = Table("The same box with MPyC", {"us a pair": ",.0f", "times three brokers": ",.0f"})
    if took is not None:
        peer.row("MPyC, three processes", 1e6 * took, took / pair)


if __name__ == "__main__":
    main()
