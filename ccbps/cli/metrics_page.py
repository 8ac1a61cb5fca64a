"""A broker's metrics over HTTP, for Prometheus, on this machine only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@contextmanager
def metrics_page(metrics: Callable[[], str], port: int) -> Iterator[str]:
    """Answer GET /metrics in the block; gives the address.

    Args:
        metrics: gives their text.
        port: of 127.0.0.1; 0 for a free one.

    Raises:
        OSError: the port is taken.
    """

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            text = metrics().encode()
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Nothing: somebody asks every few seconds."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
