"""mosquitto, where it is installed, with the access control list of the docs."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.support.three_brokers import free_ports

MOSQUITTO = os.environ.get("MOSQUITTO") or shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
DEPLOYMENT = Path(__file__).parents[2] / "examples" / "deployment"
ACL = (DEPLOYMENT / "acl").read_text("utf-8")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    return free_ports(1)  # none that a connection may get before the server does


class Mosquitto:
    """A server with a configuration, but for the user that it runs as, and an access list.

    Args:
        folder: folder for its files.
        text: the configuration. If it names no access list, this module's is used.
        port: a port that it listens to.
    """

    def __init__(self, folder: Path, text: str, port: int) -> None:
        self._config, self._port = folder / "mosquitto.conf", port
        acl = folder / "acl"
        acl.write_text(ACL, "utf-8")
        acl.chmod(0o600)
        if "acl_file" not in text:
            text = f"acl_file {acl}\n{text}"
        self._config.write_text(f"user {getpass.getuser()}\n{text}", "utf-8")

    def start(self) -> None:
        """Start, and wait until the port is open."""
        command = [str(MOSQUITTO), "-c", str(self._config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    break
            time.sleep(0.1)

    def reload(self) -> None:
        """Read the files again."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End."""
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def mosquitto(folder: Path) -> Iterator[str]:
    """A server that lets everybody in without a password, and its URL."""
    port = free_port()
    text = f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
    with Mosquitto(folder, text, port):
        yield f"mqtt://127.0.0.1:{port}"
