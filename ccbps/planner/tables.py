"""A plan as a picture, and as text: candidates, the facts they leak, and reasons for refusals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ccbps.leakage import WITH_CLIENT
from ccbps.loading import need
from ccbps.matching.contract.estimate import Seconds
from ccbps.planner.candidates import Candidate, Load, Refusal

POINTS: Final = 25
"""Numbers of subscriptions in a picture."""
RANGE: Final = 32
"""Factor below and above the plan's subscriptions that a picture reaches."""
_TIMES = (("days", 86400), ("hours", 3600), ("minutes", 60))
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
        *_from_answers(candidate),
        f"   with one client, the broker learns at most: {WITH_CLIENT[candidate.with_client]}",
        *(f"   void if: {hazard}" for hazard in candidate.hazards),
    ]


def _from_answers(candidate: Candidate) -> list[str]:
    """Write how fast answers give bounds away, whatever the matcher."""
    known = candidate.placing
    if known is None:
        return []
    time, seconds = "", candidate.placing_seconds
    if seconds is not None:
        time = f" ({duration_text(seconds)})"
    more = " or more" if known.least else ""
    return [
        "   from answers: with an accomplice who reads events, each bound to "
        f"{known.accuracy:.0%} of its domain after some {known.events:,.0f} events{more}{time}; "
        f"exactly, after at most {known.chosen} chosen events"
    ]


def duration_text(seconds: float) -> str:
    """Return a time in the unit that fits it."""
    unit, length = next(
        ((name, size) for name, size in _TIMES if seconds >= 2 * size), ("seconds", 1)
    )
    count = seconds / length
    return f"{count:,.0f} {unit}" if count >= 10 else f"{count:.2g} {unit}"


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


def figure(load: Load, candidates: Sequence[Candidate], path: str | os.PathLike[str] | None) -> Any:
    """Draw bytes and, where there are any, cores; write a file if a path is given."""
    drawing = need("Plan.plot", "plot")
    shown = first_of_kind(candidates)
    least, most = max(1, load.subscriptions // RANGE), load.subscriptions * RANGE
    spread = np.geomspace(least, most, POINTS).round().astype(int).tolist()
    counts = sorted({*spread, load.subscriptions})
    timed = [each for each in shown if each.cores is not None]
    size = (14 if timed else 7, 3.6 + 0.2 * len(shown))
    picture = drawing.Figure(figsize=size, layout="constrained")
    axes = picture.subplots(1, 2 if timed else 1, squeeze=False)[0]
    styles = {
        each.name: {"color": f"C{place % 10}", "linestyle": ("-", "--", ":")[place // 10 % 3]}
        for place, each in enumerate(shown)
    }
    for each in shown:
        sizes = [each.traffic_for(count).total for count in counts]
        axes[0].plot(counts, sizes, **styles[each.name], label=each.name)
    axes[0].set_ylabel(f"bytes of {load.events:,} events")
    for each in timed:
        busy = [each.cores_for(count) for count in counts]
        totals = [cores.total for cores in busy if cores is not None]
        axes[1].plot(counts, totals, **styles[each.name], label=each.name)
    if timed:
        axes[1].set_ylabel(f"cores at {load.events_per_second:,g} events/s, all roles")
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="subscriptions")
        axis.axvline(load.subscriptions, color="grey", linewidth=0.8, linestyle=":")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", fontsize="small")
    if path is not None:
        picture.savefig(path)
    return picture
