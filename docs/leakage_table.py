"""Make leakage.md: what each matcher leaks, from its card, and what it costs, from figures.json.

`make docs` writes the page, which is not part of the repository. New figures come from

    python benchmarks/figures.py --only bench_reusable
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

from ccbps import Schema, UInt
from ccbps.leakage import Protects
from ccbps.matching import SCHEMES, Matcher

FIGURES = "Matchers: bytes, and microseconds of clients and broker"
"""Title of the table of bench_reusable."""

HEAD = """# Leakage and cost of every matcher

This page lists every matcher with its own statements (`matcher.leakage`, `matcher.operators`) and
with the measurements of `python benchmarks/bench_reusable.py`. One-time matchers take a message
from each side for every pair of an event and a subscription. Reusable matchers encrypt each event
and each subscription once, and the broker learns more. If a card says *broken*, an attacker with
little knowledge can read everything: such matchers are here for comparison, and because systems use
them. The attacks are tests, in `tests/security`.

The table gives only the first words of what the broker learns and of the attacks. The name of each
scheme links to the full text. Bytes are those of an event's message and of an interest's message.

"""
PROTECTED = """A dot marks a property that stays hidden (`card.protects`), except for what answers
say about it. The broker has messages, answers and public parameters, and works with nobody.
Matchers that are not listed protect none of these properties completely: their cards say which
parts they hide.

"""
MORE = """The next table has all steps of the same matchers. A publisher encrypts an event, a
subscriber an interest. The broker works once per interest, when it arrives, once per event, and
once per pair.
"""
NOTE = """The time per pair is what one more interest adds for each event of a batch of {least} to
{most} events, once the interest has arrived: the slope between few and many interests.
KeywordMatch and AccessTreeMatch test equal words once, for all interests together. Bits are often
equal, so the time per pair of AccessTreeMatch is small beside that per event. All figures of
one-time matchers are per pair, since each message belongs to one pair. A dash stands where there is
nothing to measure, or nothing measured here. The broker of ObliviousTopicMatch does nothing but
relay: see [its page](matchers/oblivious_topic.md).

Microseconds on one core: {machine}.
"""
WANTED = (
    (TOPIC, "issue = 'IBM' AND day = 5"),
    (Schema(x=UInt(8)), "hamming(x, :y) <= 2"),
    (Schema(x=UInt(1)), "x = 1"),
)
"""Predicates that schemes without figures are asked to propose a matcher for."""
PROTECTS = {
    Protects.EVENT: "events",
    Protects.CONSTANTS: "constants",
    Protects.ATTRIBUTES: "which attributes",
    Protects.FORMULA: "form",
    Protects.MATCH: "matches",
    Protects.EQUALITY_OF_EVENTS: "equal events",
    Protects.EQUALITY_OF_INTERESTS: "equal subscriptions",
}
"""Titles of what a card may protect."""
STEPS = {
    "event": "per event: encrypt",
    "interest": "per interest: encrypt",
    "prepare": "per interest: broker",
    "once": "per event: broker",
    "pair": "per pair: broker",
}
"""Figures of a row, and their titles."""


def load_figures() -> dict[str, Any]:
    """Return the machine, and the measured figures of each matcher."""
    figures = json.loads((DOCS / "figures.json").read_text(encoding="utf-8"))["bench_reusable"]
    table = figures["tables"][FIGURES]
    rows = [
        {"matcher": name, **dict(zip(table["columns"], cells, strict=True))}
        for name, cells in table["rows"].items()
    ]
    kept = [{what: value for what, value in row.items() if value is not None} for row in rows]
    return {"machine": figures["machine"], "rows": kept}


def leakage(measured: dict[str, Any]) -> str:
    """Return the text of leakage.md."""
    measured_rows = {row["matcher"]: row for row in measured["rows"]}
    rows, costs, details, protected = [], [], [], []
    for name, matcher in matchers().items():
        row = measured_rows.get(name)
        rows.append(row_of(matcher, row, name))
        details.append(card_of(matcher, name))
        link = f"[{name}](#{anchor(name)})"
        if kept := matcher.leakage.protects:
            protected.append([link, *("●" if one in kept else "" for one in PROTECTS)])
        if row is not None:
            costs.append([link, *(figure(row.get(what)) for what in STEPS)])
    head = ["scheme", "operators", "the broker learns", "attacks", "bytes"]
    head += ["broker: µs per event", "µs per pair"]
    batches = [row["events"] for row in measured["rows"] if "events" in row]
    note = NOTE.format(least=min(batches), most=f"{max(batches):,}", machine=measured["machine"])
    tables = [table(head, rows), PROTECTED + table(["scheme", *PROTECTS.values()], protected)]
    tables += [MORE, table(["µs", *STEPS.values()], costs), note]
    return HEAD + "\n".join([*tables, "\n\n".join(details)]) + "\n"


def matchers() -> dict[str, Matcher]:
    """Return a matcher or more of every scheme.

    They are the measured matchers, and for other schemes the first that they propose.
    """
    found = samples()
    for scheme in SCHEMES:
        if not any(isinstance(matcher, scheme) for matcher in found.values()):
            found[scheme.__name__] = next(
                matcher
                for schema, text in WANTED
                for matcher in scheme.propose(schema, schema.parse(text))
            )
    return found


def row_of(matcher: Matcher, row: dict[str, Any] | None, name: str = "") -> list[str]:
    """Return a matcher's row of the first table; `row` has its figures."""
    name, card = name or type(matcher).__name__, matcher.leakage
    kind = f"{card.security}, {card.reuse}" + (", covering" if matcher.covering else "")
    cells = [f"[{name}](#{anchor(name)}): {kind}", ", ".join(matcher.operators)]
    cells += [short(card.learns, words=2), short(card.attacks)]
    if row is None:
        return [*cells, "-", "-", "-"]
    size = f"{matcher.event_bytes:,} + {matcher.interest_bytes:,}"
    return [*cells, size, figure(row.get("once")), figure(row["pair"])]


def card_of(matcher: Matcher, name: str = "") -> str:
    """Return a matcher's card as a section."""
    card = matcher.leakage
    lines = [f"## {name or type(matcher).__name__}", ""]
    lines.append(f"{card.assumption[0].upper()}{card.assumption[1:]}.")
    for title, points in (
        ("The broker learns", card.learns),
        ("It does not learn", card.hides),
        ("Void if", card.hazards),
        ("Known attacks", card.attacks),
    ):
        if points:
            lines += ["", f"{title}:", "", *(f"- {point}" for point in points)]
    lines += ["", f"Integrity: {card.integrity}."]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head)]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def short(points: Sequence[str], words: int = 1) -> str:
    """Shorten each point to its part before the first colon or semicolon, each part once.

    A point stays whole if that part has fewer than `words` words.
    """
    heads = [re.split("[:;]", point)[0] for point in points]
    found = [
        head if len(head.split()) >= words else point
        for head, point in zip(heads, points, strict=True)
    ]
    return "; ".join(dict.fromkeys(found)) or "none known"


def anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def figure(value: float | None) -> str:
    """Format a number with three digits or more, and None as a dash."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
