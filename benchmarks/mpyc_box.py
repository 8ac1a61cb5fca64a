"""Boxes of 16+16+20 bits with MPyC, whose three parties share every value (Shamir, 3 of which 1).

Prints the seconds for all pairs. `bench_trio` runs it:

    python benchmarks/mpyc_box.py 200 -M3
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

BITS = (16, 16, 20)


async def main(mpc: Any) -> None:
    pairs = int(sys.argv[1])
    number = mpc.SecInt(32)
    await mpc.start()
    rng = np.random.default_rng(1)

    def given() -> list[object]:
        return [
            mpc.input(number.array(rng.integers(0, 1 << bits, pairs)), senders=0) for bits in BITS
        ]

    events, lower, upper = given(), given(), given()
    await mpc.output(events[0][:1])  # type: ignore[index]
    start = time.perf_counter()
    matched = None
    for event, low, high in zip(events, lower, upper, strict=True):
        inside = (event >= low) * (event <= high)  # type: ignore[operator]
        matched = inside if matched is None else matched * inside
    await mpc.output(matched)
    took = time.perf_counter() - start
    if mpc.pid == 0:
        print(f"seconds {took}", flush=True)
    await mpc.shutdown()


if __name__ == "__main__":
    from mpyc.runtime import mpc  # type: ignore[import-untyped]  # it reads the arguments

    mpc.run(main(mpc))
