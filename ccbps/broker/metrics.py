"""What a broker counted, for Prometheus.

Counting needs nothing; to write or serve the counts takes prometheus-client, the extra ``metrics``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from prometheus_client import Metric

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


class Collector(Protocol):
    """What prometheus-client collects metrics from: a `MatchingBroker`."""

    def collect(self) -> Iterator[Metric]:
        """Give the metrics as they are now."""


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
        """Count how long a publication was matched."""
        self._seconds[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def collect(self, gauges: Mapping[str, int], pairs: Mapping[str, int]) -> list[Metric]:
        """Return all of it, for prometheus-client.

        Args:
            gauges: what there is now.
            pairs: counters that are kept elsewhere.
        """
        core, metrics = _client().core, []
        counts = self.counts + Counter({(name, ""): count for name, count in pairs.items()})
        for name, about in _COUNTERS.items():
            labels = ["reason"] if name == "refused" else []
            counter = core.CounterMetricFamily(f"ccbps_{name}", f"{about}.", labels=labels)
            reasons = sorted(reason for counted, reason in counts if counted == name)
            for reason in reasons if labels else [""]:
                counter.add_metric([reason][: len(labels)], counts[name, reason])
            metrics.append(counter)
        for name, about in _GAUGES.items():
            metrics.append(core.GaugeMetricFamily(f"ccbps_{name}", f"{about}.", gauges[name]))
        buckets = [*zip([*map(str, BOUNDS), "+Inf"], accumulate(self._seconds), strict=True)]
        name, about = "ccbps_match_seconds", "How long a publication was matched."
        took = core.HistogramMetricFamily(name, about, buckets, self._sum, unit="seconds")
        return [*metrics, took]


def metrics_text(collector: Collector) -> str:
    """Return metrics as OpenMetrics text.

    Raises:
        ImportError: prometheus-client is missing.
    """
    text: bytes = _client().openmetrics.exposition.generate_latest(_registry(collector))
    return text.decode()


@contextmanager
def metrics_page(collector: Collector, port: int) -> Iterator[str]:
    """Serve metrics over HTTP in the block, on this machine only; gives the address.

    Args:
        collector: a broker.
        port: of 127.0.0.1; 0 for a free one.

    Raises:
        ImportError: prometheus-client is missing.
        OSError: the port is taken.
    """
    start, registry = _client().start_http_server, _registry(collector)
    server, thread = start(port, addr="127.0.0.1", registry=registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(collector: Collector) -> Any:
    registry = _client().CollectorRegistry()
    registry.register(collector)
    return registry


def _client() -> Any:
    try:
        import prometheus_client.core
        import prometheus_client.openmetrics.exposition
    except ImportError:
        raise ImportError(
            "a broker's metrics need prometheus-client: pip install 'ccbps[metrics]'"
        ) from None
    return prometheus_client
