"""What does k-anonymity cost? Seconds of a million records, and what the ranges lose.

One identifying attribute, by the dynamic programme and by Mondrian; then two and four by Mondrian,
without and with a rule on a sensitive attribute of 16 values. Loss is the mean width of a range as
a part of its domain.

    python benchmarks/bench_anonymity.py [--quick]
"""

from __future__ import annotations

import numpy as np
from report import Table, options
from timing import one_core, timed

from ccbps import Schema, UInt
from ccbps.anonymity import Anonymizer, Distinct, Diversity, Entropy, Recursive


def main() -> None:
    given = options(__doc__, quick="few records")
    count = 20_000 if given.quick else 1_000_000
    rng = np.random.default_rng(1)
    table = Table("Releases for k = 10", {"seconds": ".2f", "loss": ".2e", "over": ".1%"}, width=34)
    rules: list[Diversity | None] = [None, Distinct(3), Entropy(3), Recursive(2, 3)]
    for method, attributes, some in (
        ("optimal", 1, rules[:1]),
        ("mondrian", 1, rules[:1]),
        ("mondrian", 2, rules),
        ("mondrian", 4, rules[:1]),
    ):
        names = [f"a{n}" for n in range(attributes)]
        schema = Schema(**{name: UInt(20) for name in names}, ill=UInt(4))
        records = {name: rng.integers(0, 1 << 20, count) for name in names}
        events = schema.encode({**records, "ill": rng.integers(0, 16, count)})
        for rule in some:
            anonymizer = Anonymizer(schema, 10, sensitive=["ill"], diversity=rule, method=method)
            took = timed(lambda made=anonymizer, own=events: made.classes(own))
            report = anonymizer.release(events).report
            title = f"{method}, {attributes}{f', {rule!r}' if rule else ''}"
            table.row(title, took, report.loss, report.over / report.records)


if __name__ == "__main__":
    one_core()
    main()
