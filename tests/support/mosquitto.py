"""mosquitto, where it is installed, with the access control list of the docs."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MOSQUITTO = os.environ.get("MOSQUITTO") or shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
DEPLOYMENT = Path(__file__).parents[2] / "examples" / "deployment"
ACL = (DEPLOYMENT / "acl").read_text("utf-8")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def mosquitto(folder: Path) -> Iterator[str]:
    """A server that lets everybody in without a password, and its URL."""
    port = free_port()
    text = f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
    with configured_mosquitto(folder, text, ACL, port):
        yield f"mqtt://127.0.0.1:{port}"


@contextmanager
def configured_mosquitto(
    folder: Path, text: str, acl: str, port: int
) -> Iterator[Callable[[], None]]:
    """A server with a configuration, but for the user that it runs as, and its access list.

    A function that starts it again.
    """
    (folder / "acl").write_text(acl, "utf-8")
    (folder / "acl").chmod(0o600)
    if "acl_file" not in text:
        text = f"acl_file {folder / 'acl'}\n{text}"
    config = folder / "mosquitto.conf"
    config.write_text(f"user {getpass.getuser()}\n{text}", "utf-8")
    process: subprocess.Popen[bytes] | None = None

    def end() -> None:
        if process is not None:
            process.terminate()
            process.wait()

    def start() -> None:
        nonlocal process
        end()
        process = subprocess.Popen([str(MOSQUITTO), "-c", str(config)], stderr=subprocess.DEVNULL)
        for _ in range(50):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)

    start()
    try:
        yield start
    finally:
        end()
