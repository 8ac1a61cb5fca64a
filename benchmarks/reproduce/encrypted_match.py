"""How long does a broker match one event against 1 to 20 subscriptions? [N1] Table 2, column 2.

The experiment: subscriptions of one topic each wait, an event of another topic arrives, and no
filter spares the broker the encrypted comparison with all of them. Prints, for each group, the
milliseconds of

- *as they come*: subscriptions are read, checked and turned into the common form together with the
  event, every time, as the report's implementation does;
- *prepared*: the subscriptions were turned into the common form when they arrived, so that a pair
  takes one product and one hash (`KeywordMatch`'s `prepare`).

Messages are fresh in every round: the broker has seen none of them before. Times are of one core.

    python benchmarks/reproduce/encrypted_match.py [--groups secp256k1 modp2048] [--rounds 5]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from timing import machine, one_core

from ccbps import Schema, UInt
from ccbps.algebra.named_groups import prime_order_group
from ccbps.ciphers.proxy_search import ProxySearch
from ccbps.matching import KeywordMatch

COUNTS = (1, 5, 10, 15, 20)
PRINTED = {1: 1.567, 5: 7.294, 10: 23.685, 15: 34.918, 20: 57.497}
"""Milliseconds of [N1] Table 2, column 2: Charm on an unnamed machine."""


def encrypted_match(
    group: str = "secp256k1",
    counts: Sequence[int] = COUNTS,
    trapdoors: Literal["interests", "events"] = "interests",
    rounds: int = 5,
) -> dict[int, tuple[float, float]]:
    """Least milliseconds over `rounds`, (as they come, prepared), for each number of interests."""
    matcher = KeywordMatch(Schema(topic=UInt(32)), group=group, trapdoors=trapdoors)
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    subscribers = [
        matcher.subscriber(server.subscriber_key(str(number))) for number in range(max(counts))
    ]
    broker = matcher.broker(server.broker_key())
    best = {count: (float("inf"), float("inf")) for count in counts}
    for turn in range(rounds + 1):  # the first does not count
        for count in counts:
            interests = np.concatenate(
                [one.encode(f"topic = {number}") for number, one in enumerate(subscribers[:count])]
            )
            first, second = (
                publisher.encode({"topic": [2**31]}),
                publisher.encode({"topic": [2**31]}),
            )
            whole = _milliseconds(lambda e=first, i=interests: broker.match_all(e, i))
            table = broker.prepare(interests)
            prepared = _milliseconds(lambda e=second, t=table: broker.match_all(e, t))
            if turn:
                best[count] = min(best[count][0], whole), min(best[count][1], prepared)
    return best


def _milliseconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def parts(group: str = "secp256k1", count: int = 200) -> dict[str, float]:
    """Microseconds of each step: a message into the common form, and then a pair of `count`^2."""
    scheme = ProxySearch(prime_order_group(group))
    user, half = scheme.key_gen(scheme.init())
    words = [b"%d" % number for number in range(count)]
    sent, wanted = scheme.encrypt(user, words), scheme.trapdoors(user, words)
    form, tokens = scheme.re_encrypt(half, sent), scheme.tokens(half, wanted)
    return {
        "encrypt": _milliseconds(lambda: scheme.encrypt(user, words)) / count * 1e3,
        "common form": _milliseconds(lambda: ProxySearch(scheme.group).re_encrypt(half, sent))
        / count
        * 1e3,
        "pair": min(_milliseconds(lambda: scheme.search(form, tokens)) for _ in range(3))
        / count**2
        * 1e3,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="+", default=["secp256k1", "modp2048"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    measured = {group: encrypted_match(group, rounds=options.rounds) for group in options.groups}
    titles = "".join(f"{group + ', as they come':>26}{'prepared':>10}" for group in measured)
    print(f"{'interests':>9}{'[N1]':>9}{titles}   (ms)")
    for count in COUNTS:
        cells = "".join(
            f"{rows[count][0]:>26.3f}{rows[count][1]:>10.3f}" for rows in measured.values()
        )
        print(f"{count:>9}{PRINTED[count]:>9.3f}{cells}")
    for group in measured:
        found = parts(group, 200 if group == "secp256k1" else 40)
        print(f"{group}: " + ", ".join(f"{what} {time:.2f} us" for what, time in found.items()))


if __name__ == "__main__":
    one_core()
    main()
