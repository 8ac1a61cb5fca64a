"""A plan as text: a table of candidates, what each shows, and why others are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccbps.leakage import WITH_CLIENT
from ccbps.matching.contract.estimate import Seconds
from ccbps.planner.candidates import Candidate, Load, Refusal

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def explanation(
    load: Load,
    candidates: Sequence[Candidate],
    refused: Sequence[Candidate],
    others: Sequence[Refusal],
    *,
    every: bool,
) -> str:
    """Return the table of a plan; see `ccbps.planner.Plan.explain`."""
    rate = "" if load.events_per_second is None else f", {load.events_per_second:,g} events/s"
    lines = [f"{load.events:,} events x {load.subscriptions:,} subscriptions{rate}", ""]
    shown = list(candidates) if every else first_of_kind(candidates)
    hidden = len(candidates) - len(shown)
    cores = any(each.cores for each in shown)
    heads = ["", "candidate", "total", "publisher", "subscribers", "brokers", "deliveries"]
    heads += ["seconds"] + ["cores"] * cores
    rows = [heads]
    for place, each in enumerate(shown, start=1):
        traffic = each.traffic
        row = [str(place), each.name, size_text(traffic.total)]
        row += [
            size_text(part) if part else "-"
            for part in (
                traffic.publisher,
                traffic.subscriber,
                traffic.brokers,
                traffic.deliveries,
            )
        ]
        row += [_roles(each.seconds)] + [_roles(each.cores)] * cores
        rows.append(row)
    lines += _aligned(rows)
    if hidden:
        lines.append(f"and {hidden} with other parameters, which come after those in the table")
    lines += [
        "",
        "Seconds and cores are those of publisher, subscribers and broker.",
        "Matchers are public, and their parameters may follow from the constants of the predicate.",
        "",
    ]
    for place, each in enumerate(shown, start=1):
        lines += _described(place, each)
    if refused:
        lines += ["", "refused"]
        alike: dict[tuple[str, tuple[str, ...]], list[Candidate]] = {}
        for each in refused:
            alike.setdefault((type(each.way).__name__, each.refused), []).append(each)
        for (_, reasons), group in alike.items():
            more = f" and {len(group) - 1} more" if len(group) > 1 else ""
            lines.append(f"  {group[0].name}{more}: {'. '.join(reasons)}")
    if others:
        lines += ["", "do not take the predicate"]
        lines += [f"  {other.name}: {other.reason}" for other in others]
    return "\n".join(lines)


def first_of_kind(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the first candidate of each scheme that shows the same."""
    kinds: dict[object, Candidate] = {}
    for each in candidates:
        kinds.setdefault((type(each.way), each.leaks, each.security), each)
    return list(kinds.values())


def _described(place: int, candidate: Candidate) -> list[str]:
    leaks = ", ".join(sorted(leak.name for leak in candidate.leaks)) or "nothing"
    return [
        f"{place}. {candidate.name}",
        f"   shows {leaks}; {candidate.security}",
        f"   needs {candidate.needs}",
        *(f"   learned: {fact}" for fact in candidate.learned),
        f"   with one client, the broker learns at most: {WITH_CLIENT[candidate.with_client]}",
        *(f"   void if: {hazard}" for hazard in candidate.hazards),
    ]


def size_text(count: float) -> str:
    """Return a number of bytes in a decimal unit."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.4g} {_UNITS[unit]}"


def _roles(seconds: Seconds | None) -> str:
    if seconds is None:
        return "-"
    parts = (seconds.publisher, seconds.subscriber, seconds.broker)
    return " ".join(f"{part:.2g}" for part in parts)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place == 1 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
