"""The ledger of events against a dictionary, as a file and behind a server, whatever is killed.

A server is as its file is, whatever connection breaks, and serves nobody without the key.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import EpochSeed, SharedSeed
from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.cli.program import main
from ccbps.errors import KeyMismatchError, LedgerError, NetworkError, ParameterError
from ccbps.keys import FileKey, LedgerKey
from ccbps.network import Identity, channel, connect
from ccbps.network.identity import tls_context
from ccbps.rounds import EventLedger, LedgerServer, RemoteLedger, remote_ledger
from ccbps.rounds.disk_ledger import DiskLedger
from ccbps.rounds.remote_ledger import identities
from tests.support.relay import place_of, read_or_end, relayed
from tests.support.three_brokers import free_ports

SEED = SharedSeed(bytes(range(32)))
KEY = SEED.ledger_key()
STREAMS = [bytes(16), b"\1" * 16]
EVENTS = st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 2)), max_size=12)


class Refused(Exception):
    pass


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileKey:
    path = tmp_path_factory.mktemp("key") / "ledger.key"
    path.write_text(KEY.to_text())
    return FileKey(path)


def tags_of(contents: list[int]) -> Any:
    """As keyed tags are: of round and content."""

    def tags(rounds: Rounds) -> Bytes:
        made = [
            blake2b(b"%d %d" % pair, digest_size=16).digest()
            for pair in zip(rounds.tolist(), contents, strict=True)
        ]
        return np.frombuffer(b"".join(made), np.uint8).reshape(-1, 16)

    return tags


def allot(
    ledger: EventLedger | RemoteLedger,
    events: list[tuple[int, int]],
    stream: int = 0,
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

    names = np.array([1000 * stream + name for name, _ in events], dtype=np.int64)
    tags = tags or tags_of([content for _, content in events])
    if isinstance(ledger, RemoteLedger):
        rounds, other = ledger.allot(key, STREAMS[stream], names, tags, refuse)
    else:
        rounds, other = ledger.allot(STREAMS[stream], names, tags, refuse)
    return rounds.tolist(), other.tolist()


@pytest.mark.parametrize("served", [False, True])
@given(
    calls=st.lists(st.tuples(EVENTS, st.integers(0, 1), st.booleans(), st.booleans()), max_size=6)
)
def test_the_ledger_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    source: FileKey,
    served: bool,
    calls: list[tuple[list[tuple[int, int]], int, bool, bool]],
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "events"
    file = EventLedger(path)
    ledger: EventLedger | RemoteLedger = file
    model: list[dict[int, tuple[int, int]]] = [{}, {}]
    with ExitStack() as stack:
        if served:
            server = stack.enter_context(LedgerServer(file, source))
            ledger = pickle.loads(pickle.dumps(RemoteLedger(server.address)))
        for events, stream, strict, again in calls:
            if again and not served:
                ledger = EventLedger(path)
            known, right = dict(model[stream]), []
            for name, content in events:
                number, first = known.setdefault(name, (len(known), content))
                right.append((number, first != content))
            if strict and any(other for _, other in right):
                with pytest.raises(Refused):
                    allot(ledger, events, stream, strict=True)
            else:
                rounds, other = allot(ledger, events, stream, strict=strict)
                assert list(zip(rounds, other, strict=True)) == right
                model[stream] = known
            assert file.used() == max(map(len, model))


def test_rounds_run_out_after_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = EventLedger(tmp_path / "events", rounds=20)
    allot(ledger, [(n, 0) for n in range(17)])
    ledger.foretell()
    assert caplog.records == []
    allot(ledger, [(n, 0) for n in range(19)])
    assert [one.message[:24] for one in caplog.records] == ["19 of 20 rounds are used"]
    with pytest.raises(LedgerError, match="19 of 20 rounds are used, and 2 more events came"):
        allot(ledger, [(19, 0), (20, 0)])
    assert allot(ledger, [(3, 0), (19, 0)]) == ([3, 19], [False, False])
    assert len(caplog.records) == 1
    assert ledger.used() == 20
    ledger.foretell()
    assert caplog.records[1].message.startswith("20 of 20 rounds are used (with the")


def test_another_file_in_its_place_allots_nothing(tmp_path: Path) -> None:
    """It would use the seed's rounds once more."""
    ledger = EventLedger(tmp_path / "ledger")
    assert allot(ledger, [(1, 0), (2, 0)]) == ([0, 1], [False, False])
    sent = pickle.dumps(ledger)
    (tmp_path / "ledger").rename(tmp_path / "first")
    for one in (ledger, pickle.loads(sent)):
        with pytest.raises(LedgerError, match="so nothing was encoded"):
            allot(one, [(3, 0)])
    other = EventLedger(tmp_path / "ledger")
    for one in (ledger, pickle.loads(sent)):
        for use in (lambda one=one: allot(one, [(3, 0)]), one.used, one.identity):
            with pytest.raises(LedgerError, match="is another ledger"):
                use()
    assert other.used() == 0
    (tmp_path / "first").rename(tmp_path / "ledger")
    assert allot(pickle.loads(sent), [(3, 0), (1, 0)]) == ([2, 0], [False, False])


def test_a_ledger_of_known_identity_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(LedgerError, match="is missing, so nothing was encoded"):
        EventLedger(path, identity="f" * 32)
    assert not path.exists()
    ledger = EventLedger(path)
    allot(ledger, [(1, 0)])
    again = EventLedger(path, rounds=10, identity=ledger.identity())
    assert allot(again, [(1, 0), (2, 0)]) == ([0, 1], [False, False])
    with pytest.raises(LedgerError, match="is another ledger"):
        EventLedger(path, identity="f" * 32)
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="was emptied"):
        EventLedger(path, identity=ledger.identity())
    with pytest.raises(ParameterError, match="32 hexadecimal digits"):
        EventLedger(path, identity="first")


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    ledger = EventLedger(tmp_path / "events")
    allot(ledger, [(1, 0)])
    assert (tmp_path / "events").stat().st_mode & 0o077 == 0
    with sqlite3.connect(tmp_path / "events") as file:
        file.execute("UPDATE events SET tag = x'00'")
    with pytest.raises(LedgerError, match="damaged"):
        allot(ledger, [(1, 0)])
    (tmp_path / "events").write_bytes(b"")
    with pytest.raises(LedgerError, match="it has forgotten every event"):
        allot(ledger, [(1, 0)])
    EventLedger(tmp_path / "other")
    with pytest.raises(LedgerError, match="is not a ledger of rounds"):
        DiskLedger(tmp_path / "other")


def write_down(ledger: EventLedger | RemoteLedger, out: Path, seed: int) -> None:
    """Events in any order, some of them those of others; it writes down what it got, for ever."""
    rng = np.random.default_rng(seed)
    target = os.open(out, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        names = rng.integers(0, 400, 20).tolist()
        rounds, other = allot(ledger, [(name, name % 7) for name in names])
        assert not any(other)
        lines = [f"{name} {number}\n" for name, number in zip(names, rounds, strict=True)]
        os.write(target, "".join(lines).encode())


class Writers:
    """Three processes that write down what they get; one at a time may be killed."""

    def __init__(self, ledger: EventLedger | RemoteLedger, folder: Path, seed: int) -> None:
        self.ledger, self.folder, self.rng = ledger, folder, np.random.default_rng(seed)
        self.outs, self.running = list[Path](), list[Any]()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        while len(self.running) < 3:
            self.outs.append(self.folder / f"got {len(self.outs)}")
            arguments = self.ledger, self.outs[-1], len(self.outs)
            self.running.append(context.Process(target=write_down, args=arguments, daemon=True))
            self.running[-1].start()

    def kill_one(self) -> None:
        victim = self.running.pop(int(self.rng.integers(0, len(self.running))))
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()

    def lines(self) -> list[list[str]]:
        """Read the whole lines: a process that is killed may leave part of its last one."""
        texts = [out.read_text() for out in self.outs if out.exists()]
        return [line.split() for text in texts for line in text.split("\n")[:-1]]

    def wait_for(self, count: int) -> None:
        until = time.monotonic() + 60
        while len(self.lines()) < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    def end(self) -> dict[int, int]:
        """The rounds of events: an event has one round, a round one event."""
        for process in self.running:
            process.kill()
            process.join()
        pairs = {(int(line[0]), int(line[1])) for line in self.lines()}
        assert len(dict(pairs)) == len({number for _, number in pairs}) == len(pairs)
        return dict(pairs)


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_processes_agree_whoever_is_killed(tmp_path: Path, kills: int) -> None:
    """A speculative task, a retry, a job beside it."""
    ledger = EventLedger(tmp_path / "events")
    writers = Writers(ledger, tmp_path, 3)
    for kill in range(kills):
        writers.start()
        writers.wait_for(20 * (kill + 1))
        time.sleep(0.05 + 0.1 * writers.rng.random())
        writers.kill_one()
    pairs = writers.end()
    assert len(pairs) > 50
    names = sorted(pairs)
    again = EventLedger(tmp_path / "events")
    assert allot(again, [(name, name % 7) for name in names])[0] == [pairs[n] for n in names]


# -- behind a server -----------------------------------------------------------------------------


def test_rounds_run_out_by_name(tmp_path: Path, source: FileKey) -> None:
    with LedgerServer(EventLedger(tmp_path / "events", rounds=2), source) as server:
        ledger = RemoteLedger(server.address)
        allot(ledger, [(0, 0)])
        with pytest.raises(LedgerError, match="1 of 2 rounds are used, and 2 more events came"):
            allot(ledger, [(1, 0), (2, 0)])
        assert allot(ledger, [(2, 0)]) == ([1], [False])


def test_a_server_with_another_file_is_refused(tmp_path: Path, source: FileKey) -> None:
    """It would begin with round 0; one with an older copy of the file cannot be told."""
    file, other = EventLedger(tmp_path / "events"), EventLedger(tmp_path / "other")
    assert file.identity() == EventLedger(tmp_path / "events").identity() != other.identity()
    with LedgerServer(file, source) as server:
        ledger = pickle.loads(pickle.dumps(RemoteLedger(server.address, file.identity())))
        assert allot(ledger, [(7, 0), (8, 0)]) == ([0, 1], [False, False])
        with pytest.raises(LedgerError, match=f"is {file.identity()}, wanted {other.identity()}"):
            allot(RemoteLedger(server.address, other.identity()), [(9, 0)])
        port = place_of(server.address)[1]
    with LedgerServer(other, source, port=port):
        with pytest.raises(LedgerError, match="another file would allot rounds that were used"):
            allot(ledger, [(9, 0)])
        assert other.used() == 0
        assert allot(RemoteLedger(server.address), [(9, 0)]) == ([0], [False])
    # The file is taken away under the server, and another one put there.
    with LedgerServer(file, source, port=port):
        (tmp_path / "other").replace(tmp_path / "events")
        with pytest.raises(LedgerError, match="is another ledger"):
            allot(ledger, [(9, 0)])


def test_who_has_no_key_gets_nothing(
    tmp_path: Path,
    source: FileKey,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_SECONDS", 3)
    file, (own, worker) = EventLedger(tmp_path / "events"), identities(KEY)
    name = own.certificate().fingerprint
    name = f"{name[:32]}.{name[32:]}"
    with LedgerServer(file, source) as server:
        ledger = RemoteLedger(server.address)
        other = SharedSeed.generate().ledger_key()
        with pytest.raises(KeyMismatchError, match="does not know the ledger key of this seed"):
            allot(ledger, [(0, 0)], key=other)
        # Somebody who knows the name of the server's certificate, and not the key.
        for stranger in (Identity.generate(), own, identities(other)[1]):
            with pytest.raises(KeyMismatchError, match="does not pin the one of this identity"):
                connect(server.address, stranger, own.certificate())
        context = tls_context(server=False)
        context.load_verify_locations(cadata=own.certificate().der)
        with (
            socket.create_connection(place_of(server.address), 20) as raw,
            pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        ):
            context.wrap_socket(raw, server_hostname=name).recv(1)
        # Somebody who says something else, or nothing.
        for greeting in (b"GET / HTTP/1.1\r\n\r\n".ljust(200, b"."), b"\0" * 99, b""):
            with socket.create_connection(place_of(server.address), 20) as connection:
                connection.sendall(greeting)
                told = b"".join(iter(lambda one=connection: read_or_end(one), b""))
                assert len(told) in (0, 7)  # an alert
        # Who has the key is told nothing before it asks.
        with connect(server.address, worker, own.certificate()) as asking:
            asking.send(b"a request that is none")
            with pytest.raises(NetworkError, match="ended"):
                asking.receive(100)
        assert file.used() == 0
        assert allot(ledger, [(0, 0)]) == ([0], [False])
    assert sum("refused" in one.message for one in caplog.records) == 8


def test_refusals_do_not_fill_the_log(
    tmp_path: Path,
    source: FileKey,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "REFUSALS", 3)
    other = SharedSeed.generate().ledger_key()
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        inner = server
        for hour in (inner._hour, time.monotonic()):  # the second one is over
            inner._hour = hour
            for _ in range(7):
                with pytest.raises(KeyMismatchError):
                    allot(RemoteLedger(server.address), [(0, 0)], key=other)
            while inner._refusals < 7 or time.monotonic() > inner._hour:
                time.sleep(0.01)  # it answers, and then counts
    told = [one.message.partition("; ")[2] for one in caplog.records if "refused" in one.message]
    assert told == 2 * ["", "", "no more refusals are logged in this hour"]


def test_connections_are_bounded_and_those_that_say_nothing_end(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(channel, "PARTING_SECONDS", 0.1)
    monkeypatch.setattr(remote_ledger, "CONNECTIONS", 2)
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(place_of(server.address), 20))
        seen = 0
        while seen < 2:
            seen = max(seen, len(server._served))
        assert seen == 2
        assert allot(RemoteLedger(server.address), [(1, 0)]) == ([0], [False])


def test_threads_that_cannot_start_leave_the_server_alive(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_ledger, "CONNECTIONS", 2)
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        start, failures = threading.Thread.start, iter(range(5))

        def failing(thread: threading.Thread) -> None:
            if next(failures, None) is not None:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", failing)
        assert allot(RemoteLedger(server.address), [(1, 0)]) == ([0], [False])


def test_what_is_sent_is_not_seen_and_not_changed(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        with relayed(server.address) as relay:
            events = [(0x1122334455667788, 1), (7, 2)]
            assert allot(RemoteLedger(relay.address), events) == ([0, 1], [False, False])
        sent = b"".join(relay.seen)
        tags = tags_of([1, 2])(np.arange(2, dtype=np.uint64))
        hidden = [(0x1122334455667788).to_bytes(8, "little"), tags[0].tobytes(), tags[1].tobytes()]
        hidden += [one.export_secret() for one in (KEY, *identities(KEY))]
        hidden += [STREAMS[1], np.arange(2, dtype="<u8").tobytes()]
        assert [one for one in hidden if one in sent] == []
        monkeypatch.setattr(remote_ledger, "WAIT_SECONDS", 0.5)
        # Of what the server sends, one bit is changed.
        for place in range(4):

            def flip(number: int, piece: bytes, place: int = place) -> bytes:
                return piece[:-1] + bytes([piece[-1] ^ 1]) if number == place else piece

            with (
                relayed(server.address, flip) as relay,
                pytest.raises(LedgerError, match="so nothing was encoded: "),
            ):
                allot(RemoteLedger(relay.address), [(100 + place, 0)])


@pytest.mark.parametrize("piece", range(4))
def test_a_connection_that_breaks_leaves_nothing_or_all(
    tmp_path: Path, source: FileKey, piece: int
) -> None:
    """The server's pieces: handshake, let in, rounds, done. Whichever does not arrive, the worker
    asks again, and an event has one round."""
    file, broken = EventLedger(tmp_path / "events"), list[int]()

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
    monkeypatch.setattr(remote_ledger, "ANSWER_SECONDS", 0.5)
    asked, done = threading.Event(), threading.Event()

    def silent(rounds: Rounds) -> Bytes:
        if not asked.is_set():
            asked.set()
            assert done.wait(20)
        return tags_of([0])(rounds)

    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        ledger = RemoteLedger(server.address)
        with ThreadPoolExecutor(1) as other:
            got = other.submit(allot, ledger, [(1, 0)], tags=silent)
            assert asked.wait(20)
            assert allot(ledger, [(2, 0)]) == ([0], [False])
            done.set()
            assert got.result() == ([1], [False])


def test_a_server_that_closes_allots_nothing_more(tmp_path: Path, source: FileKey) -> None:
    """Its file may then be moved: a batch in progress is not kept, and the worker asks again."""
    file, asked, closed = EventLedger(tmp_path / "events"), threading.Event(), threading.Event()

    def slow(rounds: Rounds) -> Bytes:
        asked.set()
        assert closed.wait(20)
        return tags_of([0])(rounds)

    server = LedgerServer(file, source)
    with ThreadPoolExecutor(1) as other:
        got = other.submit(allot, RemoteLedger(server.address), [(1, 0)], tags=slow)
        assert asked.wait(20)
        server.close()
        assert file.used() == 0
        closed.set()
        with LedgerServer(file, source, port=place_of(server.address)[1]):
            assert got.result() == ([0], [False])


def test_what_a_worker_says_is_not_taken_for_a_broken_connection(
    tmp_path: Path, source: FileKey
) -> None:
    calls = []

    def failing(rounds: Rounds) -> Bytes:
        calls.append(rounds)
        raise TimeoutError("of the worker's own")

    file = EventLedger(tmp_path / "events")
    with LedgerServer(file, source) as server:
        with pytest.raises(TimeoutError, match="of the worker's own"):
            allot(RemoteLedger(server.address), [(1, 0)], tags=failing)
        assert (len(calls), file.used()) == (1, 0)


def test_a_server_that_is_not_there_is_waited_for(
    tmp_path: Path, source: FileKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_ports(1)
    ledger = RemoteLedger(f"127.0.0.1:{port}")
    other = ThreadPoolExecutor(1)
    got = other.submit(allot, ledger, [(1, 0)])
    time.sleep(0.3)
    with LedgerServer(EventLedger(tmp_path / "events"), source, port=port) as server:
        assert server.address == ledger.address
        with pytest.raises(LedgerError, match=f"no server can listen at 127.0.0.1, port {port}"):
            LedgerServer(EventLedger(tmp_path / "events"), source, port=port)
        assert got.result() == ([0], [False])
    other.shutdown()
    monkeypatch.setattr(remote_ledger, "WAIT_SECONDS", 0.3)
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
        paths[0].unlink()
        allot(ledger, [(1, 0)], key=seeds[1].ledger_key())


def test_arguments_are_checked(tmp_path: Path, source: FileKey) -> None:
    for address in ("here", "here:", ":7400", "here:0", "here:70000", 7400, None):
        with pytest.raises(ParameterError, match=r"address must be the server's 'host:port'"):
            RemoteLedger(address)  # type: ignore[arg-type]
    for identity in ("", "8c1f", "g" * 32, "0" * 32, "AB" * 16, int("1" * 32), b"1" * 32):
        with pytest.raises(ParameterError, match="identity must be 32 hexadecimal digits"):
            RemoteLedger("here:7400", identity)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="ledger must be an EventLedger"):
        LedgerServer(tmp_path / "events", source)  # type: ignore[arg-type]
    for keys in ([], "abc", [source, None]):
        with pytest.raises(ParameterError, match="keys must be a KeySource"):
            LedgerServer(EventLedger(tmp_path / "events"), keys)  # type: ignore[arg-type]
    for port in (-1, 70000, "7400"):
        with pytest.raises(ParameterError, match=r"port must be .* from 0 to 65,535"):
            LedgerServer(EventLedger(tmp_path / "events"), source, port=port)  # type: ignore[arg-type]
    (tmp_path / "other").write_text("")
    with pytest.raises(KeyMismatchError, match="not a key"):
        LedgerServer(EventLedger(tmp_path / "events"), FileKey(tmp_path / "other"))


PROGRAM = """
import sys
from ccbps.cli.program import main
sys.exit(main(["ledger", *sys.argv[1:]]))
"""


def served(folder: Path, source: FileKey, port: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "--file", str(folder / "events"), *more]
    command += ["--key", str(source.path), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"ledger {EventLedger(folder / 'events').identity()}\n"
    assert f"rounds used, at 127.0.0.1:{port}" in process.stdout.readline()
    return process


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_server_and_workers_are_killed(tmp_path: Path, source: FileKey, kills: int) -> None:
    port = free_ports(1)
    writers = Writers(RemoteLedger(f"127.0.0.1:{port}"), tmp_path, 4)
    server = served(tmp_path, source, port, "--new")
    try:
        for kill in range(kills):
            writers.start()
            writers.wait_for(20 * (kill + 1))
            time.sleep(0.1 * writers.rng.random())
            if kill % 2:
                writers.kill_one()
            else:
                server.kill()
                server.communicate()
                server = served(tmp_path, source, port)
        writers.wait_for(20 * (kills + 1))
        assert all(process.is_alive() for process in writers.running)
        server.terminate()
        assert server.communicate(timeout=60)[0] == "ended\n"
        assert server.returncode == 0
    finally:
        server.kill()
        pairs = writers.end()
    assert len(pairs) <= EventLedger(tmp_path / "events").used() <= 400


def test_the_command_makes_a_ledger_only_if_it_is_told_to(
    tmp_path: Path, source: FileKey, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    EventLedger(there)
    for path, more, said in (
        (tmp_path / "typo", [], "typo does not exist. A new ledger begins with round 0"),
        (there, ["--new"], "there exists already"),
        (there, ["--listen", "here"], "address must be the server's 'host:port'"),
        (there, ["--mark", str(tmp_path / "mark")], "is missing or empty"),
    ):
        assert main(["ledger", "--file", str(path), "--key", str(source.path), *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_nothing_secret_is_shown(
    tmp_path: Path, source: FileKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with LedgerServer(EventLedger(tmp_path / "events"), source) as server:
        shown = [repr(server), repr(RemoteLedger(server.address)), repr(KEY)]
        allot(RemoteLedger(server.address), [(1, 0)])
    texts: list[Any] = [*shown, caplog.text]
    assert not any(KEY.export_secret().hex() in str(text) for text in texts)
