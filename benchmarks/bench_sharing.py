"""What does it cost to split and join a secret of 256 bits? Microseconds a secret, one core.

For 3 of 5 and 5 of 10 shares, in one run: single secrets as bytes, modulo a prime, with checks, and
as a seed; batches of secrets; the peers, as far as they are installed (PyPI packages of the `bench`
extra); and two limits: drawing the random bytes that a split needs, and one XOR pass over what it
writes or a join reads. A goal is the most time that it should take.

    python benchmarks/bench_sharing.py [--batch 20000] [--rounds 15] [--quick]
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import numpy as np
from report import Table, options
from timing import machine, one_core, repeated, seconds, timed

from ccbps import SharedSeed
from ccbps.arrays import Bytes
from ccbps.sharing import CheckedShamir, PrimeShamir, Shamir

SIZE = 32
ROUND = 2e-3
"""Seconds for which one secret after another is split or joined in a round."""
GOALS = {(3, 5): (7.0, 4.0, 1.2, 0.3), (5, 10): (14.0, 7.0, 3.7, 0.4)}
"""Microseconds to split and join a single secret, then a secret of a batch."""

Action = Callable[[], object]
Pair = tuple[str, Action, Action]
"""Title, and the actions that split a secret and join k shares."""


def filled(action: Action) -> tuple[Action, int]:
    """Return an action that is repeated until it fills a round, and the number of repetitions."""
    action()
    count = max(1, int(ROUND / timed(action)))
    return repeated(action, count), count


def ours(k: int, n: int) -> Iterator[Pair]:
    """Yield each way of splitting a secret."""
    secret = os.urandom(SIZE)
    plain, checked = Shamir(k, n), CheckedShamir(k, n)
    shares, with_checks = plain.split(secret)[-k:], checked.split(secret)[-k:]
    yield "bytes", lambda: plain.split(secret), lambda: plain.join(shares)
    modulo, number = PrimeShamir(k, n), int.from_bytes(secret)
    values = dict([*modulo.split(number).items()][-k:])
    yield "modulo a prime", lambda: modulo.split(number), lambda: modulo.join(values)
    yield "with checks", lambda: checked.split(secret), lambda: checked.join(with_checks)
    seed = SharedSeed(secret)
    sent = seed.to_shares(k, n)[-k:]
    yield "a seed", lambda: seed.to_shares(k, n), lambda: SharedSeed.from_shares(sent)


def pyquorum(k: int, n: int) -> Pair:
    """Return pyquorum: Rust, modulo 2^127 - 1, shares as hexadecimal text."""
    from pyquorum.pyquorum_core import shamir_combine, shamir_split

    secret = os.urandom(SIZE)
    shares = shamir_split(secret, k, n)[-k:]
    assert shamir_combine(shares, k) == secret
    return "pyquorum", lambda: shamir_split(secret, k, n), lambda: shamir_combine(shares, k)


def mnemonic(k: int, n: int) -> Pair:
    """Return the core of SLIP-0039, without words and key stretching: bytes, and a check."""
    from shamir_mnemonic.shamir import _recover_secret, _split_secret

    secret = os.urandom(SIZE)
    shares = _split_secret(k, n, secret)[-k:]
    assert _recover_secret(k, shares) == secret
    return (
        "shamir-mnemonic",
        lambda: _split_secret(k, n, secret),
        lambda: _recover_secret(k, shares),
    )


def nillion(k: int, n: int) -> Pair:
    """Return shamirs: modulo a prime, in Python."""
    from shamirs import interpolate, shares

    prime, number = PrimeShamir(k, n).p, secrets.randbits(8 * SIZE)
    made = shares(number, n, modulus=prime, threshold=k)[-k:]
    assert interpolate(made) == number
    return (
        "shamirs",
        lambda: shares(number, n, modulus=prime, threshold=k),
        lambda: interpolate(made),
    )


def pycryptodome(k: int, n: int) -> Pair:
    """Return pycryptodomex: 2^128 field elements, so a secret is split in two halves."""
    from Cryptodome.Protocol.SecretSharing import Shamir as Peer

    halves = os.urandom(16), os.urandom(16)
    shares = [Peer.split(k, n, half)[-k:] for half in halves]
    assert [Peer.combine(half) for half in shares] == [*halves]
    return (
        "pycryptodomex",
        lambda: [Peer.split(k, n, half) for half in halves],
        lambda: [Peer.combine(half) for half in shares],
    )


PEERS = (pyquorum, mnemonic, nillion, pycryptodome)


def xor_pass(rows: int, batch: int) -> Action:
    """Return an XOR of every row of a batch into the first, in blocks that stay in the cache."""
    block = 1 << 12
    data = np.zeros((rows + 1, block), dtype=np.uint64)

    def run() -> None:
        for _ in range(-(-batch * SIZE // (8 * block))):
            for row in data[1:]:
                np.bitwise_xor(data[0], row, out=data[0])

    return run


def draws(count: int) -> Action:
    """Return an action that draws random bytes, as many at a time as a split."""

    def run() -> None:
        left = count
        while left > 0:
            os.urandom(min(left, 1 << 16))
            left -= 1 << 16

    return run


def measure(k: int, n: int, batch: int, rounds: int) -> None:
    """Print the figures for k of n."""
    pairs, missing = [*ours(k, n)], []
    for peer in PEERS:
        try:
            pairs.append(peer(k, n))
        except ModuleNotFoundError as error:
            missing.append(str(error.name))
    random = 8 + (k - 1) * SIZE
    singles: dict[tuple[str, str], Action] = {
        ("its random bytes", "split"): lambda: os.urandom(random)
    }
    for name, split, join in pairs:
        singles |= {(name, "split"): split, (name, "join"): join}
    runs = {key: filled(action) for key, action in singles.items()}
    took = seconds({key: run for key, (run, _) in runs.items()}, rounds)
    figures = {key: took[key] / runs[key][1] * 1e6 for key in runs}

    scheme, rows = Shamir(k, n), np.random.default_rng(0).integers(0, 256, (batch, SIZE), np.uint8)
    made: Bytes = scheme.split_rows(rows)[-k:]
    points = [*range(n - k + 1, n + 1)]
    assert np.array_equal(scheme.join_rows(made, points), rows)
    batches: dict[tuple[str, str], Action] = {
        ("bytes, in a batch", "split"): lambda: scheme.split_rows(rows),
        ("bytes, in a batch", "join"): lambda: scheme.join_rows(made, points),
        ("its random bytes, in a batch", "split"): draws((k - 1) * rows.size),
        ("one XOR pass", "split"): xor_pass(n, batch),
        ("one XOR pass", "join"): xor_pass(k, batch),
    }
    figures |= {key: least / batch * 1e6 for key, least in seconds(batches, rounds).items()}

    goals = dict(zip(("single split", "single join", "split", "join"), GOALS[k, n], strict=True))
    heads = {}
    for what in ("split", "join"):
        heads |= {what: ".3f", f"{what}: times ours": ".2f", f"{what}: of goal": ".2f"}
    table = Table(f"{k} of {n} shares, microseconds a secret", heads)
    for name in dict.fromkeys(name for name, _ in figures):
        batched = name in ("bytes, in a batch", "its random bytes, in a batch", "one XOR pass")
        cells: list[float | None] = []
        for what in ("split", "join"):
            if (name, what) in figures:
                least = figures[name, what]
                own = figures["bytes, in a batch" if batched else "bytes", what]
                goal = goals[what if batched else f"single {what}"]
                cells += [least, least / own, least / goal if name.startswith("bytes") else None]
        table.row(name, *cells)
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install 'ccbps[bench]'")


def main() -> None:
    given = options(__doc__, batch=20_000, rounds=15, quick="few secrets and rounds")
    if given.quick:
        given.batch, given.rounds = 500, 1
    print(machine())
    for k, n in GOALS:
        measure(k, n, given.batch, given.rounds)


if __name__ == "__main__":
    one_core()
    main()
