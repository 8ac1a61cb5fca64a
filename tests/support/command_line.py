"""A shell for tests of the command line, and a broker for its clients."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ccbps.broker import MatchingBroker
from ccbps.cli import main
from ccbps.keys import RoleKey
from ccbps.matching import Matcher
from ccbps.mqtt import LocalServer, MqttService, MqttUrl

SERVER = "--matcher m --server server.key"


@dataclass
class Shell:
    """Shell in an empty folder, which runs lines such as ``ccbps explain`` in this process."""

    capsys: pytest.CaptureFixture[str]

    def run(self, line: str, status: int = 0) -> tuple[str, str]:
        """Run a line, check its exit status, and return its output and errors."""
        self.capsys.readouterr()
        name, *arguments = shlex.split(line)
        assert name == "ccbps"
        ended = main(arguments)
        output, errors = self.capsys.readouterr()
        assert ended == status, errors
        return output, errors

    def done(self, *lines: str) -> str:
        """Return the output of lines that succeed."""
        return "".join(self.run(line)[0] for line in lines)

    def refused(self, line: str) -> str:
        """Return the error of a line: one line, beside warnings of a weak scheme."""
        lines = self.run(line, 2)[1].splitlines()
        (error,) = [line for line in lines if not line.startswith("ccbps: warning: ")]
        assert error.startswith("ccbps: ")
        return error.removeprefix("ccbps: ")

    def deliveries(self, line: str) -> list[dict[str, Any]]:
        """Return the deliveries that a line prints."""
        return [json.loads(text) for text in self.done(line).splitlines()]

    def make_role_keys(self, **roles: str) -> None:
        """Make a key server's key for the matcher m, keys of roles by name, and a broker's."""
        self.done("ccbps keygen server --matcher m --out server.key")
        for name, role in roles.items():
            self.done(f"ccbps keygen {role} {SERVER} --name {name} --out {name}.key")
        self.done(f"ccbps keygen broker {SERVER} --out broker.key")


def key_of(role: str) -> RoleKey:
    return RoleKey.from_text(Path(f"{role}.key").read_text().strip())


@contextmanager
def served(matcher: Matcher, **options: Any) -> Iterator[tuple[str, MatchingBroker]]:
    """Run a broker behind a server in this process."""
    names = ("alice", "bob", "feed", "broker")
    for name in names:
        Path(f"{name}.password").write_text(f"password of {name}\n")
    key = key_of("broker") if Path("broker.key").exists() else None
    with (
        LocalServer({name: f"password of {name}" for name in names}) as server,
        MqttService(
            broker := MatchingBroker(matcher.broker(key), **options),
            MqttUrl(server.url, "broker", "password of broker"),
        ),
    ):
        yield server.url, broker


def at(url: str, name: str) -> str:
    return f"--url {url} --name {name} --password-file {name}.password"
