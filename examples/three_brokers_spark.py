"""Real stock quotes, matched on Spark by three brokers that learn nothing but who matched.

The job of ``stock_quotes.py``, with three brokers in place of one. Each is an application of Spark
in a process of its own. It makes its own key, and is given its own column of messages and a hello
from each client. Three organisations would run them, as two that work together read everything.
Here they share a machine.

1. The publisher encodes every quote once, and subscribers every predicate once, in three columns.
   Publisher and subscribers have no key in common.
2. Tasks of equal number of the three applications meet over TLS, and match all quotes with all
   predicates. All three brokers learn the answers.
3. Broker 0 tells the publisher which subscribers each quote is for. The publisher encrypts each
   quote once, and its key for that group. Subscribers open what they were sent.

The first twelfth of the quotes meets cold sessions, the others warm ones. At the end every answer
of each broker, and every delivery, is compared with the plaintext filter.

    python examples/three_brokers_spark.py --events 12154 --subscribers 120
    make quickstart ARGS="--three-brokers"
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import stock_quotes
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from stock_quotes import BAR, KEYS, SCHEMA, here, key_file, wait, write
from tqdm import tqdm

from ccbps import spark as cs
from ccbps.delivery import BuildUpCache, GroupSealer, Naive, SubscriberRing
from ccbps.keys import ClientKey, OperatorKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES

MATCHER = ThreeBrokerMatch.box(SCHEMA)
PARTIES = range(3)
TASKS = 2  # of each operator, which must run at once
FILES = ("clients", *(f"broker-{party}" for party in PARTIES), "groups", "delivered", "checkpoint")
STEPS = 20  # that the progress bar counts


def main(arguments: list[str] | None = None) -> int:
    """Run all parties, and return the number of answers that differ from the plaintext filter."""
    return run(stock_quotes.parse(arguments))


def run(options: argparse.Namespace) -> int:
    """Run all parties with the options of stock_quotes.py."""
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.rmtree(output / name, ignore_errors=True)
    quotes = stock_quotes.read_quotes(options.events)
    quotes = quotes.append_column("round", quotes["event"])  # by which groups name quotes
    subscriptions = stock_quotes.make_subscriptions(options.subscribers)
    names = subscriptions["subscription"].to_pylist()
    print(f"{quotes.num_rows:,} quotes, {len(names)} private subscriptions, three brokers")
    print(MATCHER.explain(), "\n")
    # Spark runs a stage again, up to four times, if a worker dies.
    master = options.master.replace("local[2]", "local[2,4]")

    with ExitStack() as stack:
        (clients, *brokers), started = zip(
            *(
                stack.enter_context(stock_quotes.process(output / f"{name}.log", master))
                for name in FILES[:4]
            ),
            strict=True,
        )
        bar = stack.enter_context(tqdm(total=STEPS, disable=None, bar_format=BAR))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # which only we may read
        wait(bar, "start Spark, four times", *started)

        def together(label: str, function: object, *arguments: object) -> list:
            """Let all three operators do something at once."""
            asked = [broker.submit(function, n, *arguments) for n, broker in enumerate(brokers)]
            return wait(bar, label, *asked)

        operators = together("operators: make keys", make_operator, folder, free_ports())
        # Clients know the public side of the operators, and nothing of one another.
        public = [operator.public for operator in operators]
        keys = {role: ClientKey.generate(public) for role in ("publisher", "subscribers")}
        sources = {role: key_file(folder / role, key) for role, key in keys.items()}
        roles = MATCHER.publisher(keys["publisher"]), MATCHER.subscriber(keys["subscribers"])
        hellos = list(zip(*(role.hellos for role in roles), strict=True))

        asked = clients.submit(subscribe, subscriptions, sources["subscribers"], output)
        (asked_seconds,) = wait(bar, "subscribers: encode predicates", asked)
        first = -(-quotes.num_rows // 12)
        sent_times, match_times = [], []
        for part, (start, stop) in enumerate(((0, first), (first, quotes.num_rows))):
            some = quotes.slice(start, stop - start)
            sent = clients.submit(publish, some, part, sources["publisher"], output)
            sent_times.append((some.num_rows, *wait(bar, "publisher: encode quotes", sent)))
            took = together("brokers: match", match, part, operators, hellos, folder, output)
            match_times.append((some.num_rows * len(names), max(took)))

        wait(bar, "broker 0: groups", brokers[0].submit(group, output))
        sealer = GroupSealer(Naive(len(names)))
        own = key_file(folder / "own", SubscriberRing.of([*map(sealer.join, range(len(names)))]))
        state = key_file(folder / "state", sealer.state)
        strategy = BuildUpCache(len(names), KEYS)
        sealed = clients.submit(stock_quotes.deliver, quotes, strategy, state, output)
        wait(bar, "publisher: seal for groups", sealed)
        received = clients.submit(stock_quotes.receive, own, output)
        ((opened, _),) = wait(bar, "subscribers: open", received)

    differences, wrong, matches = audit(quotes, subscriptions, opened, output)
    pairs = quotes.num_rows * len(names)
    print(f"\n{'pairs tested':<24}{pairs:>14,}   by all three together")
    print(f"{'matches':<24}{matches:>14,}")
    text = " + ".join(f"{count:,}" for count in differences)
    print(f"{'differences':<24}{sum(differences):>14,}   against the plaintext filter: ", end="")
    print(f"{text} at brokers 0, 1 and 2")
    print(f"{'deliveries':<24}{opened.num_rows:>14,}   of which wrong or missing: {wrong:,}")
    for side, size in (("event", MATCHER.event_bytes), ("interest", MATCHER.interest_bytes)):
        print(f"{'bytes per ' + side:<24}{HEAD_BYTES + 2 * size:>14,}   once:", end="")
        print(f" {HEAD_BYTES} for broker 0, and {size} each for brokers 1 and 2")
    print(f"\n{'a second':<24}{'cold':>24}{'warm':>24}")
    for label, runs in (("encode quotes", sent_times), ("match pairs", match_times)):
        print(f"{label:<24}", end="")
        print("".join(f"{n / took:>15,.0f} ({took:4.1f} s)" for n, took in runs))
    print(f"{'encode predicates':<24}{len(names) / asked_seconds:>15,.0f} ({asked_seconds:4.1f} s)")
    show_views(quotes, names, opened, output)
    return sum(differences) + wrong


# -- operators ------------------------------------------------------------------------------------


def make_operator(party: int, folder: Path, port: int) -> cs.Operator:
    """Make an operator's key, and return its public side."""
    key = OperatorKey.generate()
    key_file(folder / f"operator-{party}", key)
    return cs.Operator.of(key, f"127.0.0.1:{port + TASKS * party}")


def match(
    party: int,
    part: int,
    operators: Sequence[cs.Operator],
    hellos: Sequence[Sequence[bytes]],
    folder: Path,
    output: Path,
) -> float:
    """Match a part of the quotes with all predicates, together with the other two operators."""
    started, place = time.perf_counter(), output / f"broker-{party}"
    matches = cs.match_shares(
        here().read.parquet(str(place / f"events-{part}")),
        here().read.parquet(str(place / "interests")),
        MATCHER,
        cs.FileKey(folder / f"operator-{party}"),
        party=party,
        operators=operators,
        hellos=hellos[party],
        job=f"part {part}",
        partitions=TASKS,
        seconds=120,
    )
    write(matches, place / f"matches-{part}")
    return time.perf_counter() - started


def group(output: Path) -> None:
    """Name the subscribers of each quote, for the publisher."""
    matches = here().read.parquet(str(output / "broker-0" / "matches-*"))
    number = F.split("subscription", "-")[1].cast("int")  # of the subscriber
    groups = matches.groupBy(F.col("event").alias("round"))
    write(groups.agg(F.collect_list(number).alias("members")).coalesce(1), output / "groups")


# -- clients --------------------------------------------------------------------------------------


def publish(quotes: pa.Table, part: int, key: cs.KeySource, output: Path) -> float:
    """Encode quotes once, and hand each operator its column."""
    started = time.perf_counter()
    encoded = cs.encode_events(here().createDataFrame(quotes), MATCHER, key, keep=["event"])
    hand_out(encoded, f"events-{part}", output)
    return time.perf_counter() - started


def subscribe(subscriptions: pa.Table, key: cs.KeySource, output: Path) -> float:
    """Encode predicates once, and hand each operator its column."""
    started = time.perf_counter()
    hand_out(
        cs.encode_interests(here().createDataFrame(subscriptions), MATCHER, key),
        "interests",
        output,
    )
    return time.perf_counter() - started


def hand_out(encoded: DataFrame, name: str, output: Path) -> None:
    """Write messages once, as they would be others if computed again; then a column for each."""
    write(encoded, output / "clients" / name)
    messages = here().read.parquet(str(output / "clients" / name))
    for party in PARTIES:
        own = messages.select(messages.columns[0], f"broker_{party}")
        write(own, output / f"broker-{party}" / name)


# -- what came of it ------------------------------------------------------------------------------


def audit(
    quotes: pa.Table, subscriptions: pa.Table, opened: pa.Table, output: Path
) -> tuple[list[int], int, int]:
    """Compare answers and deliveries with the plaintext filter.

    Returns:
        Differences at each broker, wrong deliveries, and the number of matches.
    """
    place = {name: i for i, name in enumerate(subscriptions["subscription"].to_pylist())}
    events = SCHEMA.encode(quotes)
    wanted = np.stack(
        [SCHEMA.parse(text).evaluate(events) for text in subscriptions["predicate"].to_pylist()]
    )
    differences = []
    for party in PARTIES:
        got = np.zeros(wanted.shape, dtype=np.int64)
        for part in range(2):
            rows = pq.read_table(output / f"broker-{party}" / f"matches-{part}")
            owners = [place[name] for name in rows["subscription"].to_pylist()]
            np.add.at(got, (owners, rows["event"].to_numpy()), 1)
        differences.append(int((got != wanted).sum()))
    wrong = stock_quotes.count_misdelivered(quotes, opened, wanted, place)
    return differences, wrong, int(wanted.sum())


def show_views(quotes: pa.Table, names: list[str], opened: pa.Table, output: Path) -> None:
    """Print quotes of one subscriber: what each broker was given, and what was delivered."""
    name, chosen = stock_quotes.choose_rounds(quotes, names, opened)
    got = {row["event"]: row for row in opened.to_pylist() if row["subscription"] == name}
    given: list[dict[int, bytes]] = []
    for party in PARTIES:
        place, rows = output / f"broker-{party}", []
        for part in range(2):
            rows += pq.read_table(place / f"events-{part}").to_pylist()
        given.append({row["event"]: row[f"broker_{party}"] for row in rows})
    print(f"\nWhat the brokers were given of some quotes, in hex, and what {name} read:\n")
    print(f"{'event':>6}  {'broker 0: a nonce':<20}{'1 and 2: a share':<20}{'answer':<10}| read")
    for event in chosen.values():
        nonce, share = given[0][event][24:32].hex(), given[1][event][HEAD_BYTES:][:8].hex()
        assert given[1][event] == given[2][event]
        read, answer = "nothing", "no match"
        if event in got:
            row, answer = got[event], "match"
            read = f"{row['day']}  {row['issue']:<5}{row['close']:>8.2f} {row['volume']:>12,}"
        print(f"{event:>6}  {nonce:<20}{share:<20}{answer:<10}| {read}")


def free_ports() -> int:
    """Return the first of some ports that follow one another, and that nobody uses now."""
    for first in range(7400, 30_000, 100):
        with ExitStack() as taken, suppress(OSError):
            for port in range(first, first + TASKS * len(PARTIES)):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    sys.exit("no ports are free")


if __name__ == "__main__":
    try:
        raise SystemExit(1 if main() else 0)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
