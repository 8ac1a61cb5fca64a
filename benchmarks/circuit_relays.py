"""Relays of a circuit, each in a process of its own on loopback: for a benchmark and a test.

Run as a program it is one relay: it reads its settings from standard input, and ends with it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ccbps.network import Credentials, Identity
from ccbps.overlay import RelayKey, RelayServer, Tunnel


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def identity(secret: bytes, name: str) -> Identity:
    return Identity.derive(secret, name.encode())


def serve() -> None:
    """Be a relay until standard input ends."""
    given = json.loads(sys.stdin.readline())
    secret, ports = bytes.fromhex(given["secret"]), given["ports"]
    peers = tuple(identity(secret, name).certificate() for name in [*ports, "client"])
    relays = {
        name: (f"127.0.0.1:{port}", identity(secret, name).certificate())
        for name, port in ports.items()
    }
    with RelayServer(
        RelayKey(bytes.fromhex(given["key"])),
        Credentials(identity(secret, given["name"]), peers),
        relays,
        targets=given["targets"],
        port=ports[given["name"]],
    ):
        sys.stdin.read()


@contextmanager
def tunnelled(target: str, hops: int = 3) -> Iterator[tuple[Tunnel, int]]:
    """Run relays; give a tunnel through all of them, and the process of the exit.

    Args:
        target: address of a server.
        hops: number of relays.
    """
    secret = os.urandom(32)
    ports = {f"relay {number}": free_port() for number in range(hops)}
    keys = {name: RelayKey.generate() for name in ports}
    exit_name = [*ports][-1]
    with ExitStack() as stack:
        pid = 0
        for name in ports:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())], stdin=subprocess.PIPE, text=True
            )
            stack.callback(process.wait)
            stdin = process.stdin
            assert stdin is not None
            stack.callback(stdin.close)
            settings = {"secret": secret.hex(), "key": keys[name].export_secret().hex()}
            settings |= {"name": name, "ports": ports, "targets": [target] * (name == exit_name)}
            stdin.write(json.dumps(settings) + "\n")
            stdin.flush()
            pid = process.pid
        for port in ports.values():
            for _ in range(300):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
        first = f"127.0.0.1:{ports['relay 0']}", identity(secret, "relay 0").certificate()
        path = [(name, key.public) for name, key in keys.items()]
        with Tunnel(path, target, first, identity(secret, "client")) as tunnel:
            yield tunnel, pid


if __name__ == "__main__":
    serve()
