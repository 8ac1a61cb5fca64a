"""The MQTT server in this process: what it says of a taken port, and what it leaves alone."""

from __future__ import annotations

import logging
import socket

import pytest

from ccbps.mqtt import LocalServer


def test_loggers_of_the_process_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = [logging.getLogger(name) for name in ("", "amqtt", "transitions", "ccbps")]
    for log in loggers:
        monkeypatch.setattr(log, "level", logging.WARNING)

    def state() -> list[tuple[object, ...]]:
        return [(log.level, log.disabled, log.propagate, *log.handlers) for log in loggers]

    before = state()
    with LocalServer({"broker": "word"}):
        assert state() == before
    assert state() == before


def test_a_taken_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = LocalServer({"broker": "word"}, port=taken.getsockname()[1])
        with pytest.raises(OSError, match=f"cannot start at {address}: Address already in use"):
            server.start()
