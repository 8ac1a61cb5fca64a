"""Writes leakage.md, and the tables of benchmarks.md about reusable matchers: what each matcher
leaks, from its card, and what it costs, from the figures in reusable.json.

    python docs/leakage_table.py

A card that changes needs no new figures; new ones come from

    python benchmarks/bench_reusable.py --json docs/reusable.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))

from bench_reusable import TOPIC, samples

from ccbps.matching import ObliviousTopicMatch

BEGIN = "<!-- from reusable.json, by python docs/leakage_table.py -->"
END = "<!-- end of what docs/leakage_table.py writes -->"

HEAD = """# What leaks, and what it costs

This page lists every matcher with what it says about itself (`matcher.leakage`,
`matcher.operators`) and what `python benchmarks/bench_reusable.py` measured. One-time matchers take
a message from each side for every pair of an event and a subscription. Reusable ones encrypt each
event and each subscription once, and the broker learns more. Where a card says *broken*, somebody
with little knowledge can read everything: such matchers are here for comparison, and because
systems use them. The attacks are tests, in `tests/security`.

The table gives only the first words of what is learned and of the attacks; each scheme's name
links to the full text. Bytes are those of an event's message and of an interest's.

"""
MORE = """The next table has all steps of the same matchers. A publisher encrypts an event, a
subscriber an interest. The broker works once per interest, when it arrives, once per event, and
once per pair.
"""
NOTE = """The time per pair is what one more interest adds for each event of a batch of {least} to
{most} events, once the interest has arrived: the slope between few and many interests.
KeywordMatch and AccessTreeMatch test equal words once, for all interests together. Bits are often
equal, so the time per pair of AccessTreeMatch is small beside that per event. All figures of
one-time matchers are per pair, since each message belongs to one pair. ObliviousTopicMatch is not
measured here, since its broker does nothing but relay: see
[its page](matchers/oblivious_topic.md).

Microseconds on one core: {machine}.
"""
STEPS = {
    "event": "per event: encrypt",
    "interest": "per interest: encrypt",
    "prepare": "per interest: broker",
    "once": "per event: broker",
    "pair": "per pair: broker",
}
"""Figures of a row, and their titles."""


def leakage(measured: dict[str, Any]) -> str:
    """All of leakage.md."""
    figures = {row["matcher"]: row for row in measured["rows"]}
    rows, costs, details = [], [], []
    oblivious = ObliviousTopicMatch(TOPIC, ["issue", "day"])
    for name, matcher in [*samples().items(), ("ObliviousTopicMatch", oblivious)]:
        card, row = matcher.leakage, figures.get(name)
        kind = f"{card.security}, {card.reuse}" + (", covering" if matcher.covering else "")
        link = f"[{name}](#{anchor(name)})"
        cells = [f"{link}: {kind}", ", ".join(matcher.operators)]
        cells += [short(card.learns, words=2), short(card.attacks)]
        if row is None:
            rows.append([*cells, "-", "-", "-"])
        else:
            size = f"{row['event bytes']:,} + {row['interest bytes']:,}"
            rows.append([*cells, size, figure(row.get("once")), figure(row["pair"])])
            costs.append([link, *(figure(row.get(what)) for what in STEPS)])
        details += ["", f"## {name}", "", f"{card.assumption[0].upper()}{card.assumption[1:]}."]
        for title, points in (
            ("The broker learns", card.learns),
            ("It does not learn", card.hides),
            ("Void if", card.hazards),
            ("Known attacks", card.attacks),
        ):
            if points:
                details += ["", f"{title}:", "", *(f"- {point}" for point in points)]
    head = ["scheme", "operators", "the broker learns", "attacks", "bytes"]
    head += ["broker: µs per event", "µs per pair"]
    batches = [row["events"] for row in measured["rows"] if "events" in row]
    note = NOTE.format(least=min(batches), most=f"{max(batches):,}", machine=measured["machine"])
    tables = [table(head, rows), MORE, table(["µs", *STEPS.values()], costs), note]
    return HEAD + "\n".join([*tables, *details[1:]]) + "\n"


def peers(measured: dict[str, Any]) -> str:
    """The tables of benchmarks.md."""
    parts = []
    for section in measured["peers"]:
        rows = [[what, figure(took), remark] for what, took, remark in section["rows"]]
        parts.append(table([section["title"], "µs", "in comparison"], rows))
    rows = [
        [f"{count}", f"{fresh:.2f}", f"{prepared:.2f}", f"{printed}"]
        for count, fresh, prepared, printed in measured["table 2"]
    ]
    head = ["subscriptions", "ms as they come", "ms, prepared", "ms that [N1] prints"]
    parts.append(table(head, rows))
    return "\n".join([*parts, f"Measured on one core: {measured['machine']}.\n"])


def pages() -> dict[str, str]:
    """Files of the documentation, and what they must contain."""
    measured = json.loads((DOCS / "reusable.json").read_text(encoding="utf-8"))
    written = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    before, rest = written.split(BEGIN)
    after = rest.split(END)[1]
    block = f"{BEGIN}\n\n{peers(measured)}\n{END}"
    return {"leakage.md": leakage(measured), "benchmarks.md": before + block + after}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head)]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def short(points: Sequence[str], words: int = 1) -> str:
    """What each point says before its first colon or semicolon, each once; all of it where that
    is fewer than so many words."""
    heads = [re.split("[:;]", point)[0] for point in points]
    found = [
        head if len(head.split()) >= words else point
        for head, point in zip(heads, points, strict=True)
    ]
    return "; ".join(dict.fromkeys(found)) or "none known"


def anchor(title: str) -> str:
    """Of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def figure(value: float | None) -> str:
    """A number with three digits or more; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
