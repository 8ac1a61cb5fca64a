"""What does a product of group elements cost, bit-sliced in A5 and by table look-up in S5?

Units: nanoseconds per element, one core. Limits and peers in the same run: the word operations a
product takes (52 for 64 elements), each timed alone on planes in the cache; one table look-up by
`numpy.take` per element, with the usual index 120 a + b; `sympy.combinatorics`, if installed; and
the AES-256-CTR key stream of the bytes that blinding uses.

    python benchmarks/bench_group_products.py [--log-length 25] [--rounds 5] [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import mul

import numpy as np
from report import Table, options
from timing import key_stream, machine, one_core, seconds

from ccbps.algebra import A5, S5, Group

SEGMENT = 1 << 19
"""Elements blinded at a time: they and their blinders stay in the cache."""


def words(length: int) -> Callable[[], None]:
    """Return 52 word operations on planes of `length` bits, 4096 words at a time."""
    a, b, c = np.zeros((3, 4096 + 8), dtype=np.uint64)[:, :4096]

    def run() -> None:
        for _ in range(length // (64 * 4096)):
            for _ in range(24):
                np.bitwise_and(a, b, out=c)
            for _ in range(28):
                np.bitwise_xor(a, b, out=c)

    return run


def plain_tree(ranks: np.ndarray) -> int:
    """Compute the product by numpy.take with the index 120 a + b, in blocks that fit the cache."""
    table = S5.multiplication.reshape(-1)
    level = ranks
    while len(level) > 1:
        half = np.empty(len(level) // 2, dtype=np.uint8)
        for start in range(0, len(half), 1 << 14):
            part = level[2 * start : 2 * (start + (1 << 14))]
            index = np.multiply(part[0::2], 120, dtype=np.uint16)
            index += part[1::2]
            half[start : start + (1 << 14)] = table.take(index)
        level = half
    return int(level[0])


def sympy_product(group: Group, ranks: np.ndarray) -> int | None:
    """Compute the product by sympy; None if it is not installed."""
    try:
        from sympy.combinatorics import Permutation
    except ModuleNotFoundError:
        return None
    elements = [Permutation([i - 1 for i in group.one_line(rank)]) for rank in range(group.order)]
    result = reduce(mul, (elements[rank] for rank in ranks.tolist()))
    return elements.index(result)


def measure(group: Group, length: int, rounds: int) -> dict[str, float]:
    """Return nanoseconds per element of each operation."""
    rng = np.random.default_rng(7)
    draws = rng.integers(0, 256, (2, 1, group.random_bytes(length)), dtype=np.uint8)
    x, y = group.uniform(draws[0]), group.uniform(draws[1])
    width = group.element_bytes(length)
    messages = np.empty((2, 1, width), dtype=np.uint8)
    for bulk, message in zip((x, y), messages, strict=True):
        group.store(bulk, message)
    product = group.product(group.multiply(x, y))
    assert np.array_equal(group.product_of(*messages)[0], product), "broker and bulk differ"
    out = group.multiply(x, y)
    plain = group.from_ranks(rng.integers(0, group.order, (1, SEGMENT), dtype=np.uint8))
    short = draws[:, :, : group.random_bytes(SEGMENT)].copy()
    sent = np.empty((1, group.element_bytes(SEGMENT)), dtype=np.uint8)
    first = np.zeros(1, dtype=np.uint8)

    def blind() -> None:
        for _ in range(length // SEGMENT):
            left, right = group.uniform(short[0]), group.uniform(short[1])
            left = group.delay(left, first, out=left)
            group.store(group.blind(left, plain, right, out=left), sent)

    def step_by_step() -> None:
        left, valid = group.load(messages[0])
        right, also_valid = group.load(messages[1])
        assert valid.all() and also_valid.all()
        group.product(group.multiply(left, right, out=left))

    actions: dict[str, Callable[[], object]] = {
        "product of one sequence": lambda: group.product(x),
        "x * y, elementwise": lambda: group.multiply(x, y, out=out),
        "uniform elements": lambda: group.uniform(draws[0]),
        "load from the wire": lambda: group.load(messages[0]),
        "store to the wire": lambda: group.store(x, messages[0]),
        "blind: draw 2, R^-1 s R', store": blind,
        "  key stream of the 2 draws": key_stream(1, 2 * group.random_bytes(length)),
        "broker, 2 messages, step by step": step_by_step,
        "broker, 2 messages, one pass": lambda: group.product_of(*messages),
    }
    if group is A5:
        actions["  52 word operations"] = words(length)
    else:
        ranks = group.to_ranks(x)[0]
        assert plain_tree(ranks) == group.product(x)[0]
        actions["  numpy.take, index 120 a + b"] = lambda: plain_tree(ranks)
    return {name: 1e9 * s / length for name, s in seconds(actions, rounds).items()}


def main() -> None:
    given = options(__doc__, log_length=25, rounds=5, quick="short sequences")
    length = 1 << (20 if given.quick else given.log_length)
    print(machine())
    results = {group.name: measure(group, length, given.rounds) for group in (A5, S5)}

    print(f"{length:,} elements; broker: an element of both messages")
    table = Table("Nanoseconds per element", {"A5": ".2f", "S5": ".2f", "S5 : A5": ".1f"}, width=36)
    for name in dict.fromkeys([*results["A5"], *results["S5"]]):
        a, s = (results[group].get(name) for group in ("A5", "S5"))
        table.row(name.strip(), a, s, s / a if a and s else None)
    few = np.random.default_rng(1).integers(0, S5.order, 3000, dtype=np.uint8)
    if sympy_product(S5, few) is None:
        print("sympy is not installed: pip install 'ccbps[bench]'")
    else:
        assert sympy_product(S5, few) == S5.product(few[None])[0]
        time = seconds({"": lambda: sympy_product(S5, few)}, 3)[""] * 1e9 / len(few)
        table.row("sympy.combinatorics, product", None, time)

    heads = {"bits sent": ".0f", "random bytes": ".2f"}
    table = Table("An element", heads)
    for group in (A5, S5):
        bits, used = 8 * group.element_bytes(length) / length, group.random_bytes(length) / length
        table.row(group.name, bits, used)


if __name__ == "__main__":
    one_core()
    main()
