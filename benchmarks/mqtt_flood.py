"""A client that keeps to no protocol: it sends an MQTT server many small messages a second.

It writes MQTT 3.1.1 by itself, in a process of its own, so that it takes little of the machine.

    python benchmarks/mqtt_flood.py HOST PORT USER PASSWORD TOPIC QOS RATE SECONDS
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK = 0.01


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2) + text.encode()


def _packet(kind: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([kind, len(content)]) + content


def flood(
    host: str, port: int, user: str, password: str, topic: str, qos: int, rate: int, seconds: float
) -> int:
    """Send, and return the number of messages; those that the server does not read are not sent."""
    connect = _text("MQTT") + b"\x04\xc2\x00\x3c" + _text("flood") + _text(user) + _text(password)
    numbers = b"\x00\x07" if qos else b""
    message = _packet(0x30 | qos << 1, _text(topic) + numbers + bytes(8) + b"flood")
    sent, rest = 0, b""
    with socket.create_connection((host, port)) as server:
        server.sendall(_packet(0x10, connect))
        assert server.recv(4)[3] == 0
        # As an honest client would begin, so that the service listens to it.
        hello = _text(f"ccbps/to/{user}/resume") + bytes(8) + bytes(8) + b"\xff" * 8
        server.sendall(_packet(0x30, hello))
        time.sleep(0.2)
        server.setblocking(False)
        start = time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            due = min(int((now - start) * rate) - sent, rate // 10)
            if not rest and due > 0:
                rest, sent = message * due, sent + due
            try:
                rest = rest[server.send(rest) :] if rest else rest
                while server.recv(65536):
                    pass
            except BlockingIOError:
                pass
            except OSError:
                break  # the server has closed the connection
            time.sleep(TICK)
    return sent


@contextmanager
def flooding(
    url: str, user: str, password: str, topic: str, *, qos: int, rate: int, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Flood the server of a URL from another process while the block runs."""
    host, port = url.rpartition("/")[2].split(":")
    arguments = [host, port, user, password, topic, str(qos), str(rate), str(seconds)]
    process = subprocess.Popen([sys.executable, __file__, *arguments])
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    _, HOST, PORT, USER, PASSWORD, TOPIC, QOS, RATE, SECONDS = sys.argv
    flood(HOST, int(PORT), USER, PASSWORD, TOPIC, int(QOS), int(RATE), float(SECONDS))
