"""A ledger behind a server: as the file is, whoever breaks a connection, and for nobody else."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import EpochSeed, SharedSeed
from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import KeyMismatchError, LedgerError, ParameterError
from ccbps.keys import (
    EventLedger,
    FileKey,
    LedgerKey,
    LedgerServer,
    RemoteLedger,
    ledger_channel,
    ledger_server,
)
from tests.test_event_ledger import EVENTS, STREAMS, Refused, tags_of

SEED = SharedSeed(bytes(range(32)))
KEY = SEED.ledger_key()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileKey:
    path = tmp_path_factory.mktemp("key") / "ledger.key"
    path.write_text(KEY.to_text())
    return FileKey(path)


def allot(
    ledger: RemoteLedger,
    events: list[tuple[int, int]],
    *,
    strict: bool = False,
    key: LedgerKey = KEY,
    tags: Callable[[Rounds], Bytes] | None = None,
) -> tuple[list[int], list[bool]]:
    """Events are (id, content)."""

    def refuse(other: Bools, rounds: Rounds) -> None:
        assert other.any()
        assert len(other) == len(rounds) == len(events)
        if strict:
            raise Refused

    names = np.array([name for name, _ in events], dtype=np.int64)
    made = tags or tags_of([content for _, content in events])
    rounds, other = ledger.allot(key, STREAMS[0], names, made, refuse)
    return rounds.tolist(), other.tolist()


@given(calls=st.lists(st.tuples(EVENTS, st.booleans()), max_size=4))
def test_the_server_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    source: FileKey,
    calls: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    file = EventLedger(tmp_path_factory.mktemp("ledger") / "events")
    model: dict[int, tuple[int, int]] = {}
    with LedgerServer(file, source) as server:
        ledger = pickle.loads(pickle.dumps(RemoteLedger(server.address)))
        for events, strict in calls:
            known, wanted = dict(model), []
            for name, content in events:
                number, first = known.setdefault(name, (len(known), content))
                wanted.append((number, first != content))
            if strict and any(other for _, other in wanted):
                with pytest.raises(Refused):
                    allot(ledger, events, strict=True)
            else:
                assert list(zip(*allot(ledger, events, strict=strict), strict=True)) == wanted
                model = known
            assert file.used() == len(model)


def test_rounds_run_out_by_name(tmp_path: Path, source: FileKey) -> None:
    with LedgerServer(EventLedger(tmp_path / "events", rounds=2), source) as server:
        ledger = RemoteLedger(server.address)
        allot(ledger, [(0, 0)])
        with pytest.raises(LedgerError, match="1 of 2 rounds are used, and 2 more events came"):
            allot(ledger, [(1, 0), (2, 0)])
        assert allot(ledger, [(2, 0)]) == ([1], [False])


def test_who_has_no_key_gets_nothing(
    tmp_path: Path, source: FileKey, caplog: pytest.LogCaptureFixture
) -> None:
    file = EventLedger(tmp_path / "events")
    with LedgerServer(file, source) as server:
        ledger = RemoteLedger(server.address)
        with pytest.raises(KeyMismatchError, match="does not know the ledger key of this seed"):
            allot(ledger, [(0, 0)], key=SharedSeed.generate().ledger_key())
        # Frames of somebody who knows the key's fingerprint, and not the key.
        for greeting in (
            b"GET / HTTP/1.1\r\n\r\n".ljust(200, b"."),
            ledger_channel.MAGIC + bytes.fromhex(KEY.fingerprint()) + bytes(32) + b"\0\0\0\x10" * 9,
            ledger_channel.MAGIC + bytes.fromhex(KEY.fingerprint()) + bytes(32) + b"\xff" * 64,
        ):
            with socket.create_connection(_at(server.address), 20) as connection:
                connection.sendall(greeting)
                told = b"".join(iter(lambda one=connection: _quiet(one), b""))
                assert len(told) in (0, 1 + ledger_channel.NONCE_BYTES)
        assert file.used() == 0
        assert allot(ledger, [(0, 0)]) == ([0], [False])
    assert sum("refused" in one.message for one in caplog.records) == 4


def _at(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _quiet(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


class Relay:
    """Between a worker and a server: sees what is sent, and may change it."""

    def __init__(self, target: str, change: Callable[[int, bytes], bytes | None]) -> None:
        """
        Args:
            change: of the pieces that the server sends, by number: what arrives; None breaks both
                connections.
        """
        self.seen = [b"", b""]
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._target, self._change = target, change
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                worker, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(_at(self._target))
            threading.Thread(target=self._pump, args=(0, worker, server), daemon=True).start()
            threading.Thread(target=self._pump, args=(1, server, worker), daemon=True).start()

    def _pump(self, side: int, source: socket.socket, target: socket.socket) -> None:
        number = 0
        while piece := _quiet(source):
            self.seen[side] += piece
            changed = self._change(number, piece) if side else piece
            number += 1
            if changed is None:
                break
            with suppress(OSError):  # it has ended
                target.sendall(changed)
        for one in (source, target):
            with suppress(OSError):  # it has ended
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


@contextmanager
def relayed(target: str, change: Callable[[int, bytes], bytes | None]) -> Iterator[Relay]:
    relay = Relay(target, change)
    yield relay
    relay.close()


# Whose proof is not taken is hung up on, and asks again for a while.
REFUSALS = (KeyMismatchError, LedgerError)


def test_what_is_sent_is_not_seen_and_not_changed(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_server, "WAIT_SECONDS", 0.5)
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        with relayed(server.address, lambda number, piece: piece) as relay:
            events = [(0x1122334455667788, 1), (7, 2)]
            assert allot(RemoteLedger(relay.address), events) == ([0, 1], [False, False])
        sent = b"".join(relay.seen)
        tags = tags_of([1, 2])(np.arange(2, dtype=np.uint64))
        hidden = [(0x1122334455667788).to_bytes(8, "little"), tags[0].tobytes(), tags[1].tobytes()]
        hidden += [KEY.export_secret(), STREAMS[1], (1).to_bytes(8, "little") * 2]
        assert [one for one in hidden if one in sent] == []
        # Of what the server sends, one bit is changed.
        for place in range(4):

            def flip(number: int, piece: bytes, place: int = place) -> bytes:
                return piece[:-1] + bytes([piece[-1] ^ 1]) if number == place else piece

            with relayed(server.address, flip) as relay, pytest.raises(REFUSALS):
                allot(RemoteLedger(relay.address), [(100 + place, 0)])
        # An answer to one worker is played to another.
        record: list[bytes] = []

        def keep(number: int, piece: bytes) -> bytes:
            record.append(piece)
            return piece

        with relayed(server.address, keep) as relay:
            allot(RemoteLedger(relay.address), [(7, 2)])
        with (
            relayed(server.address, lambda number, piece: record[number]) as relay,
            pytest.raises(REFUSALS),
        ):
            allot(RemoteLedger(relay.address), [(7, 2)])


@pytest.mark.parametrize("piece", range(4))
def test_a_connection_that_breaks_leaves_nothing_or_all(
    tmp_path: Path, source: FileKey, piece: int
) -> None:
    """The server's pieces: nonce, proof, rounds, done. Whichever does not arrive, the worker asks
    again, and an event has one round."""
    file, broken = EventLedger(tmp_path / "events"), []

    def cut(number: int, content: bytes) -> bytes | None:
        if number == piece and not broken:
            broken.append(number)
            return None
        return content

    with LedgerServer(file, source) as server, relayed(server.address, cut) as relay:
        assert allot(RemoteLedger(relay.address), [(1, 0), (2, 0)]) == ([0, 1], [False, False])
        assert broken
        assert allot(RemoteLedger(server.address), [(2, 0), (3, 0)]) == ([1, 2], [False, False])
    assert file.used() == 3


def test_a_worker_that_says_nothing_holds_the_file_for_a_while(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_server, "ANSWER_SECONDS", 0.5)
    asked, done = threading.Event(), threading.Event()

    def silent(rounds: Rounds) -> Bytes:
        if not asked.is_set():
            asked.set()
            assert done.wait(20)
        return tags_of([0])(rounds)

    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        ledger, got = RemoteLedger(server.address), []
        worker = threading.Thread(target=lambda: got.append(allot(ledger, [(1, 0)], tags=silent)))
        worker.start()
        assert asked.wait(20)
        assert allot(ledger, [(2, 0)]) == ([0], [False])
        done.set()
        worker.join()
    assert got == [([1], [False])]


def test_a_server_that_is_not_there_is_waited_for(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ledger, got = RemoteLedger(f"127.0.0.1:{port}"), []
    worker = threading.Thread(target=lambda: got.append(allot(ledger, [(1, 0)])))
    worker.start()
    time.sleep(0.3)
    with LedgerServer(EventLedger(tmp_path / "events"), source, port=port) as server:
        assert server.address == ledger.address
        with pytest.raises(LedgerError, match=f"no server can listen at 127.0.0.1, port {port}"):
            LedgerServer(EventLedger(tmp_path / "events"), source, port=port)
        worker.join()
    assert got == [([0], [False])]
    monkeypatch.setattr(ledger_server, "WAIT_SECONDS", 0.3)
    with pytest.raises(LedgerError, match="cannot be used, so nothing was encoded"):
        allot(ledger, [(1, 0)])


def test_keys_are_read_again_and_may_be_several(tmp_path: Path) -> None:
    seeds = [EpochSeed(bytes(32)), SharedSeed(b"\1" * 32)]
    paths = [tmp_path / "one", tmp_path / "two"]
    for path, seed in zip(paths, seeds, strict=True):
        path.write_text(seed.ledger_key().to_text())
    with LedgerServer(EventLedger(tmp_path / "events"), [FileKey(p) for p in paths]) as server:
        ledger = RemoteLedger(server.address)
        for seed in seeds:
            allot(ledger, [(1, 0)], key=seed.ledger_key())
        later = seeds[0].step() if isinstance(seeds[0], EpochSeed) else seeds[0]
        with pytest.raises(KeyMismatchError):
            allot(ledger, [(1, 0)], key=later.ledger_key())
        paths[0].write_text(later.to_text())  # a seed is taken, too
        allot(ledger, [(1, 0)], key=later.ledger_key())
        with pytest.raises(KeyMismatchError):
            allot(ledger, [(1, 0)], key=seeds[0].ledger_key())


def test_arguments_are_checked(tmp_path: Path, source: FileKey) -> None:
    for address in ("here", "here:", ":7400", "here:0", "here:70000", 7400, None):
        with pytest.raises(ParameterError, match=r"address must be the server's 'host:port'"):
            RemoteLedger(address)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="ledger must be an EventLedger"):
        LedgerServer(tmp_path / "events", source)  # type: ignore[arg-type]
    (tmp_path / "other").write_text("")
    with pytest.raises(KeyMismatchError, match="not a key"):
        LedgerServer(EventLedger(tmp_path / "events"), FileKey(tmp_path / "other"))


PROGRAM = """
import sys
from ccbps.cli.program import main
sys.exit(main(["ledger", *sys.argv[1:]]))
"""


def served(folder: Path, source: FileKey, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "--file", str(folder / "events")]
    command += ["--key", str(source.path), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert f"rounds used, at 127.0.0.1:{port}" in process.stdout.readline()
    return process


def write(address: str, out: Path, seed: int) -> None:
    """Events in any order, some of them those of others; it writes down what it got."""
    rng, ledger = np.random.default_rng(seed), RemoteLedger(address)
    target = os.open(out, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        names = rng.integers(0, 400, 20).tolist()
        rounds, other = allot(ledger, [(name, name % 7) for name in names])
        assert not any(other)
        lines = [f"{name} {number}\n" for name, number in zip(names, rounds, strict=True)]
        os.write(target, "".join(lines).encode())


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_server_and_workers_are_killed(tmp_path: Path, source: FileKey, kills: int) -> None:
    """Whoever is killed: an event has one round, and a round one event."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn, rng = multiprocessing.get_context("fork"), np.random.default_rng(4)
    server, running = served(tmp_path, source, port), []
    for kill in range(kills):
        for one in range(3 - len(running)):
            out = tmp_path / f"got {kill} {one}"
            process = spawn.Process(target=write, args=(f"127.0.0.1:{port}", out, 10 * kill + one))
            process.start()
            running.append(process)
        time.sleep(0.1 + 0.2 * rng.random())
        if kill % 2:
            victim = running.pop(int(rng.integers(0, len(running))))
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
        else:
            server.kill()
            server.communicate()
            server = served(tmp_path, source, port)
    time.sleep(1)
    for process in running:
        assert process.is_alive()
        process.kill()
        process.join()
    server.terminate()
    assert server.communicate()[0] == "ended\n"
    assert server.returncode == 0
    lines = [
        line.split() for out in tmp_path.glob("got *") for line in out.read_text().splitlines()
    ]
    found = {(name, number) for name, number, *_ in lines}
    assert len(lines) > 20 * kills
    assert len(found) == len({name for name, _ in found}) == len({number for _, number in found})
    assert len(found) <= EventLedger(tmp_path / "events").used() <= 400


def test_nothing_secret_is_shown(
    tmp_path: Path, source: FileKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        shown = [repr(server), repr(RemoteLedger(server.address)), repr(KEY)]
        allot(RemoteLedger(server.address), [(1, 0)])
    texts: list[Any] = [*shown, caplog.text]
    assert not any(KEY.export_secret().hex() in str(text) for text in texts)
