"""Writes leakage.md: what each matcher costs and leaks, from its card and the measured figures.

python benchmarks/bench_reusable.py --json docs/reusable.json
python docs/leakage_table.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))

from bench_reusable import TOPIC, samples

from ccbps.matching import ObliviousTopicMatch

HEAD = """# What leaks, and what it costs

Every matcher, from what it says of itself (`matcher.leakage`, `matcher.operators`) and what
`python benchmarks/bench_reusable.py` measured. One-time matchers take a message of each side for
every pair of an event and a subscription; reusable ones encrypt each event and each subscription
once, and the broker learns more. Where a card says *broken*, somebody with little knowledge reads
everything: such matchers are here to be compared with, and because systems use them. The attacks
are tests, in `tests/security`.

"""
NOTE = """One-time figures are for a pair. Pairs of reusable matchers are counted with all events of
a batch against all interests; what the broker computes once for an interest is not counted.
Measured on one core: """


def page() -> str:
    """The whole page as Markdown."""
    measured = json.loads((DOCS / "reusable.json").read_text(encoding="utf-8"))
    figures = {row["matcher"]: row for row in measured["rows"]}
    lines = [
        "| matcher | security | operators | bytes, event and interest "
        "| us an event | us an interest | us a pair |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    details = []
    oblivious = ObliviousTopicMatch(TOPIC, ["issue", "day"])
    for name, matcher in [*samples().items(), ("ObliviousTopicMatch", oblivious)]:
        card, row = matcher.leakage, figures.get(name)
        kind = f"{card.security}, {card.reuse}" + (", covering" if matcher.covering else "")
        operators = ", ".join(matcher.operators)
        cells = ["no broker: see its page", "-", "-", "-"]
        if row is not None:
            cells = [f"{row['event bytes']:,} and {row['interest bytes']:,}"]
            cells += [figure(row[what]) for what in ("event", "interest", "pair")]
        lines.append("| " + " | ".join([name, kind, operators, *cells]) + " |")
        details += ["", f"## {name}", "", f"{card.assumption[0].upper()}{card.assumption[1:]}."]
        for title, points in (
            ("The broker learns", card.learns),
            ("It does not learn", card.hides),
            ("Void if", card.hazards),
            ("Known attacks", card.attacks),
        ):
            if points:
                details += ["", f"{title}:", "", *(f"- {point}" for point in points)]
    notes = ["", f"{NOTE}{measured['machine']}."]
    return HEAD + "\n".join([*lines, *notes, *details]) + "\n"


def figure(value: Any) -> str:
    """Microseconds with two or three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    (DOCS / "leakage.md").write_text(page(), encoding="utf-8")
