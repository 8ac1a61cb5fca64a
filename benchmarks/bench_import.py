"""How long do imports take? Seconds, and in times of NumPy's own import.

Each import runs in an interpreter of its own, in turn, and the least time of several rounds counts.
Modules are compiled once, into a temporary folder, whatever the environment says about that.

    python benchmarks/bench_import.py [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from report import Table, options
from timing import machine, one_core

STATEMENTS = {
    "numpy": "import numpy",
    "ccbps, matching, delivery": "import ccbps, ccbps.matching, ccbps.delivery",
    "with Schema, SharedSeed, FormulaMatch": (
        "from ccbps import Schema, SharedSeed; from ccbps.matching import FormulaMatch"
    ),
}
PROGRAM = (
    "import time; start = time.perf_counter(); {}; took = time.perf_counter() - start; print(took)"
)


def measure(rounds: int) -> dict[str, float]:
    """Return the least seconds of each import, after a round that does not count."""
    best = dict.fromkeys(STATEMENTS, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for turn in range(rounds + 1):
            for name, statement in STATEMENTS.items():
                command = [sys.executable, "-c", PROGRAM.format(statement)]
                done = subprocess.run(command, env=environment, check=True, capture_output=True)
                if turn:
                    best[name] = min(best[name], float(done.stdout))
    return best


def main() -> None:
    rounds = 2 if options(__doc__, quick="few rounds").quick else 15
    print(machine())
    best = measure(rounds)
    table = Table("Imports", {"seconds": ".3f", "times numpy": ".2f"}, width=40)
    for name, took in best.items():
        table.row(name, took, took / best["numpy"])


if __name__ == "__main__":
    one_core()
    main()
