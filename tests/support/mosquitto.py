"""mosquitto, where it is installed, with the access control list of the docs."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOSQUITTO = os.environ.get("MOSQUITTO") or shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
ACL = """\
user broker
topic readwrite ccbps/#

pattern write ccbps/to/%u/#
pattern read ccbps/for/%u/#
pattern read ccbps/up
"""


@contextmanager
def mosquitto(folder: Path) -> Iterator[str]:
    """A server that lets everybody in without a password, and its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    acl, config = folder / "acl", folder / "mosquitto.conf"
    acl.write_text(ACL)
    acl.chmod(0o600)
    config.write_text(
        f"user {getpass.getuser()}\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
        f"acl_file {acl}\nset_tcp_nodelay true\n"
    )
    process = subprocess.Popen([str(MOSQUITTO), "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"mqtt://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
