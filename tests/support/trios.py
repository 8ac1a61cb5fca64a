"""Three brokers as services on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from ccbps.keys import OperatorKey
from ccbps.shares.operators import Operator
from ccbps.shares.public_clients import Authority
from ccbps.trio import Follower, Leader, Trio
from tests.support.relay import Relay
from tests.support.three_brokers import free_ports

PROGRAM = Path(__file__).parent / "trio_party.py"


class Parts:
    """What three brokers need: keys, and what they know of one another."""

    def __init__(self, workers: int = 1) -> None:
        self.keys = [OperatorKey.generate() for _ in range(3)]
        step = workers + 1
        ports = range(first := free_ports(3 * step), first + 3 * step, step)
        pairs = zip(self.keys, ports, strict=True)
        a, b, c = (Operator.of(key, f"127.0.0.1:{port}") for key, port in pairs)
        self.trio = Trio((a, b, c), workers)
        self.public = a.public, b.public, c.public

    def name(self, authority: Authority) -> None:
        """Name the authority that gives grants to all three brokers."""
        self.trio = replace(self.trio, authority=authority)

    def follower(self, party: int, matcher: Any, **options: Any) -> Follower:
        """Start broker 1 or 2."""
        return Follower(party, self.trio, self.keys[party], matcher, **options)

    def leader(self, matcher: Any, **options: Any) -> Leader:
        """Start broker 0."""
        return Leader(self.trio, self.keys[0], matcher, **options)


class Processes:
    """Three brokers in processes of their own, which may be killed, as may the links between them.

    Broker 0 is a client of an MQTT server, where its name is "broker".
    """

    def __init__(
        self,
        matcher: Any,
        folder: Path,
        server: tuple[str, str],
        stack: ExitStack,
        workers: int = 1,
        parts: Parts | None = None,
    ) -> None:
        url, password = server
        parts = Parts(workers) if parts is None else parts
        self.public, self.folder = parts.public, folder
        own, authority = parts.trio.operators, parts.trio.authority
        self.links: dict[tuple[int, int], list[Relay]] = {}
        operators = []
        for party in range(3):
            seen = []
            for other in range(3):
                operator = own[other]
                if other != party:
                    port = free_ports(workers + 1)
                    target = int(operator.address.rpartition(":")[2])
                    relays = [
                        Relay(f"127.0.0.1:{target + at}", lambda _, piece: piece, port=port + at)
                        for at in range(workers + 1)
                    ]
                    for relay in relays:
                        stack.callback(relay.close)
                    self.links[party, other] = relays
                    operator = structs.replace(operator, address=f"127.0.0.1:{port}")
                seen.append(operator.to_bytes().hex())
            operators.append(seen)
        settings = {
            "matcher": matcher.to_json(),
            "operators": operators,
            "keys": [one.export_secret().hex() for one in parts.keys],
            "workers": workers,
            "authority": None if authority is None else authority.to_text(),
            "url": url,
            "password": password,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        self.processes: list[Any] = [None] * 3
        for party in range(3):
            self.start(party)
        stack.callback(self.stop)

    def start(self, party: int) -> None:
        log = (self.folder / f"log{party}").open("ab")
        self.processes[party] = subprocess.Popen(
            [sys.executable, PROGRAM, self.folder, str(party)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def kill(self, party: int) -> None:
        self.processes[party].kill()
        self.processes[party].wait()
        self.start(party)

    def stop(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def running(matcher: Any, workers: int = 1) -> Iterator[tuple[Parts, Leader]]:
    """Yield the parts of three brokers that run, and broker 0."""
    parts = Parts(workers)
    with (
        parts.follower(1, matcher),
        parts.follower(2, matcher),
        parts.leader(matcher, patience=30) as leader,
    ):
        yield parts, leader
