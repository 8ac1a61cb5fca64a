"""A plan as a picture: bytes and cores of its candidates over subscriptions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ccbps.loading import need
from ccbps.planner.candidates import Candidate, Load
from ccbps.planner.tables import first_of_kind

POINTS: Final = 25
"""Numbers of subscriptions in a picture."""
RANGE: Final = 32
"""Factor below and above the plan's subscriptions that a picture reaches."""


def figure(load: Load, candidates: Sequence[Candidate], path: str | os.PathLike[str] | None) -> Any:
    """Draw bytes and, where there are any, cores; write a file if a path is given."""
    drawing = need("Plan.plot", "plot")
    shown = first_of_kind(candidates)
    least, most = max(1, load.subscriptions // RANGE), load.subscriptions * RANGE
    spread = np.geomspace(least, most, POINTS).round().astype(int).tolist()
    counts = sorted({*spread, load.subscriptions})
    timed = [each for each in shown if each.cores is not None]
    picture = drawing.Figure(figsize=(14 if timed else 7, 5), layout="constrained")
    axes = picture.subplots(1, 2 if timed else 1, squeeze=False)[0]
    colours = {each.name: f"C{place}" for place, each in enumerate(shown)}
    for each in shown:
        sizes = [each.traffic_for(count).total for count in counts]
        axes[0].plot(counts, sizes, color=colours[each.name], label=each.name)
    axes[0].set_ylabel(f"bytes of {load.events:,} events")
    for each in timed:
        busy = [each.cores_for(count) for count in counts]
        totals = [cores.total for cores in busy if cores is not None]
        axes[1].plot(counts, totals, color=colours[each.name], label=each.name)
    if timed:
        axes[1].set_ylabel(f"cores at {load.events_per_second:,g} events/s, all roles")
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="subscriptions")
        axis.axvline(load.subscriptions, color="grey", linewidth=0.8, linestyle=":")
    axes[0].legend(fontsize="x-small")
    if path is not None:
        picture.savefig(path)
    return picture
