"""Counts of a broker for Prometheus, kept by prometheus-client (the extra ``metrics``).

Without the extra a broker works, and counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from ccbps.loading import need

if TYPE_CHECKING:
    from prometheus_client import Metric

BOUNDS: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds of the histogram's buckets, seconds."""
_SECONDS: Final = "match_seconds"
_COUNTERS: Final = {
    "publications": "Publications that were accepted",
    "repeated": "Publications that were accepted before",
    "refused": "Messages that were refused, by reason",
    "prefiltered": "Publications whose topic nobody subscribed to, by the filter",
    "kept_prefiltered": "Subscriptions for whose topic nothing was kept, by the filter",
    "filter_false_positives": "Publications that the filter let through for nothing",
    "pairs_tested": "Pairs of event and interest that were tested",
    "pairs_saved": "Pairs that were not, as an equal interest was, or a covering one did not match",
    "pairs_masked": "Pairs that were not, as the masks of their contents exclude a match",
    "pairs_refused": "Pairs that could not be tested: messages of different rounds or seeds",
    "deliveries": "Deliveries that were put into queues",
    "withheld": "Matches that were not delivered, as the policy does not let the client receive",
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
    """A source of metrics for prometheus-client, such as a `MatchingBroker`."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""


class Metrics:
    """Counters of one broker, and a histogram of the time that matching took."""

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        try:
            client = _client()
        except ImportError:
            return
        for name, text in _COUNTERS.items():
            labels = ["reason"] if name == "refused" else []
            self._counts[name] = client.Counter(f"ccbps_{name}", f"{text}.", labels, registry=None)
        self._counts[_SECONDS] = client.Histogram(
            f"ccbps_{_SECONDS}",
            "How long a publication was matched.",
            unit="seconds",
            buckets=BOUNDS,
            registry=None,
        )

    def add(self, name: str, count: int = 1, **labels: str) -> None:
        """Increase a counter."""
        if self._counts:
            counter = self._counts[name]
            (counter.labels(**labels) if labels else counter).inc(count)

    def published(self, seconds: float, filtered: str) -> None:
        """Count a publication.

        Args:
            seconds: time that matching it took.
            filtered: counter of what the filter of topics did with it; empty for none.
        """
        if self._counts:
            self._counts[_SECONDS].observe(seconds)
        for name in ("publications", filtered):
            if name:
                self.add(name)

    def collect(self, gauges: Mapping[str, int]) -> Iterator[Metric]:
        """Yield counters, the histogram and gauges for prometheus-client.

        Args:
            gauges: current values by name.

        Raises:
            ImportError: prometheus-client is missing.
        """
        core = _client().core
        for count in self._counts.values():
            yield from count.collect()
        for name, text in _GAUGES.items():
            yield core.GaugeMetricFamily(f"ccbps_{name}", f"{text}.", gauges[name])


def metrics_text(collector: Collector) -> str:
    """Return metrics as OpenMetrics text.

    Raises:
        ImportError: prometheus-client is missing.
    """
    text: bytes = _client().openmetrics.exposition.generate_latest(_registry(collector))
    return text.decode()


@contextmanager
def metrics_page(collector: Collector, port: int) -> Iterator[str]:
    """Serve metrics over HTTP on this machine while the block runs, and yield the address.

    Args:
        collector: source of the metrics.
        port: port of 127.0.0.1; 0 for a free one.

    Raises:
        ImportError: prometheus-client is missing.
        OSError: the port is taken.
    """
    start, registry = _client().start_http_server, _registry(collector)
    try:
        server, thread = start(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise OSError(
            f"metrics cannot be served at 127.0.0.1, port {port}: {error.strerror or error}"
        ) from None
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
    return need("MatchingBroker.metrics", "metrics")
