"""What commands say of secrets that others may read, taken ports, revoked clients and extras."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from ccbps.matching import from_json
from tests.support.command_line import SERVER, Shell, at, served

EXPLAIN = "ccbps explain --schema 'x=UInt(3)' --scheme TagMatch --out m"


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.chdir(name)
        yield Path(name)
        monkeypatch.undo()


@pytest.mark.skipif(os.name == "nt", reason="of POSIX")
def test_secrets_that_every_user_may_read_are_refused(shell: Shell, open_folder: Path) -> None:
    shell.done(EXPLAIN, "ccbps keygen seed --out feed.seed")
    shell.make_role_keys(alice="subscriber")
    shell.done("ccbps keygen password --name alice --users users --out word")
    secrets = ("feed.seed", "server.key", "alice.key", "broker.key", "users", "word")
    for path in map(Path, secrets):
        path.chmod(0o644)
    client = "--url mqtt://127.0.0.1:1 --name alice"
    lines = {
        "feed.seed": "keygen pair --master feed.seed --label a/b --out pair",
        "server.key": f"keygen broker {SERVER} --out other.key",
        "alice.key": f"subscribe 'x < 1' --matcher m --key alice.key {client}",
        "broker.key": "broker --matcher m --key broker.key --local 0 --users users",
        "users": "keygen password --name bob --users users --out other",
        "word": f"subscribe {client} --password-file word",
    }
    for name, line in lines.items():
        error = shell.refused(f"ccbps {line}")
        assert f"{name} may be read or changed by every user of this machine" in error
        assert "--shared-keys" in error
    assert not {"pair", "other.key", "other"} & {path.name for path in open_folder.iterdir()}
    for name in ("feed.seed", "server.key", "users"):
        shell.done(f"ccbps {lines[name]} --shared-keys")
    assert "no connection to" in shell.refused(f"ccbps {lines['word']} --shared-keys")


def test_a_taken_port_is_named(shell: Shell) -> None:
    shell.done(EXPLAIN, "ccbps keygen seed --out feed.seed")
    shell.make_role_keys()
    shell.done(
        "ccbps keygen password --name alice --users users --out word",
        "ccbps keygen ledger --master feed.seed --out ledger.key",
    )
    broker = "ccbps broker --matcher m --key broker.key --users users"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for line in (
            f"{broker} --local {port}",
            f"{broker} --local 0 --metrics {port}",
            f"ccbps ledger --file l --new --key ledger.key --listen 127.0.0.1:{port}",
        ):
            error = shell.refused(line)
            assert "127.0.0.1" in error
            assert str(port) in error
            assert "already in use" in error


def test_a_revoked_client_is_told_so(shell: Shell) -> None:
    shell.done(EXPLAIN)
    shell.make_role_keys(feed="publisher", alice="subscriber")
    Path("x.csv").write_text("x\n1\n")
    with served(from_json(Path("m").read_text())) as (url, broker):
        subscribe = f"ccbps subscribe {at(url, 'alice')}"
        shell.done(f"{subscribe} 'x < 3' --matcher m --key alice.key --count 0")

        def revoke() -> None:
            end = monotonic() + 20
            while not broker.knows("alice") and monotonic() < end:
                sleep(0.01)
            sleep(0.3)
            broker.revoke("alice")

        thread = threading.Thread(target=revoke)
        thread.start()
        # While it waits for deliveries, and when it comes again.
        assert shell.refused(subscribe) == "alice was revoked"
        thread.join()
        assert shell.refused(subscribe) == "alice was revoked"
        broker.revoke("feed")
        publish = f"ccbps publish x.csv --matcher m --key feed.key {at(url, 'feed')} --state s"
        assert shell.refused(f"{publish} --plain") == "feed was revoked"


@pytest.mark.parametrize(
    ("module", "line", "extra"),
    [
        ("paho", "broker --matcher m --local 0 --users users --key broker.key", "mqtt"),
        ("paho", "subscribe --url mqtt://h --name a", "mqtt"),
        (
            "paho",
            "publish --matcher m --key feed.key --url mqtt://h --name a --state s --plain",
            "mqtt",
        ),
        (
            "prometheus_client",
            "broker --matcher m --key broker.key --local 0 --users users --metrics 0",
            "metrics",
        ),
    ],
)
def test_a_missing_extra_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, module: str, line: str, extra: str
) -> None:
    shell.done(EXPLAIN)
    shell.make_role_keys(feed="publisher")
    shell.done("ccbps keygen password --name alice --users users --out word")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "ccbps.mqtt")
    assert f"needs {module}: pip install 'ccbps[{extra}]'" in shell.refused(f"ccbps {line}")
