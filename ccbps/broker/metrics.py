"""What a broker counted, as OpenMetrics text, which Prometheus reads.

Source: OpenMetrics 1.0.0, https://prometheus.io/docs/specs/om/open_metrics_spec/.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

BOUNDS: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Of the histogram, seconds."""
_COUNTERS: Final = {
    "publications": "Publications that were accepted",
    "repeated": "Publications that were accepted before",
    "refused": "Messages that were refused, by reason",
    "prefiltered": "Publications whose topic nobody subscribed to, by the filter",
    "kept_prefiltered": "Subscriptions for whose topic nothing was kept, by the filter",
    "filter_false_positives": "Publications that the filter let through for nothing",
    "pairs_tested": "Pairs of event and interest that were tested",
    "pairs_saved": "Pairs that were not, as an equal interest was, or a covering one did not match",
    "pairs_refused": "Pairs that could not be tested: messages of different rounds or seeds",
    "deliveries": "Deliveries that were put into queues",
    "dropped": "Deliveries that were dropped as a queue was full",
    "acknowledged": "Deliveries that were acknowledged",
    "revoked": "Clients that were revoked",
}
_GAUGES: Final = {
    "clients": "Clients that subscribed",
    "subscriptions": "Subscriptions",
    "interests": "Subscriptions that differ",
    "topics": "Topics' tokens with subscriptions",
    "waiting": "Deliveries that wait in queues",
    "kept": "Publications that are kept for later subscribers",
}


class Metrics:
    """Counters, by name and reason.

    Attributes:
        counts: by name, and by reason where there is one.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._seconds: list[int] = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def add(self, name: str, count: int = 1, reason: str = "") -> None:
        """Count."""
        self.counts[name, reason] += count

    def matched(self, seconds: float) -> None:
        """How long a publication was matched."""
        self._seconds[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def text(self, gauges: Mapping[str, int], pairs: Mapping[str, int]) -> str:
        """All of it.

        Args:
            gauges: what there is now.
            pairs: counters that are kept elsewhere.
        """
        lines: list[str] = []
        for name, about in _COUNTERS.items():
            lines += [f"# TYPE ccbps_{name} counter", f"# HELP ccbps_{name} {about}."]
            found = {reason: n for (one, reason), n in self.counts.items() if one == name}
            found = found or {"": pairs.get(name, 0)}
            for reason, count in sorted(found.items()):
                label = f'{{reason="{reason}"}}' if reason else ""
                lines.append(f"ccbps_{name}_total{label} {count}")
        for name, about in _GAUGES.items():
            lines += [f"# TYPE ccbps_{name} gauge", f"# HELP ccbps_{name} {about}."]
            lines.append(f"ccbps_{name} {gauges[name]}")
        name = "ccbps_match_seconds"
        lines += [f"# TYPE {name} histogram", f"# UNIT {name} seconds"]
        lines.append(f"# HELP {name} How long a publication was matched.")
        total = 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self._seconds, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_count {total}", f"{name}_sum {self._sum}", "# EOF", ""]
        return "\n".join(lines)
