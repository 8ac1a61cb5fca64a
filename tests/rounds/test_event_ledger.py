"""The ledger of events against a dictionary, from many processes, killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import LedgerError, ParameterError
from ccbps.rounds import EventLedger
from ccbps.rounds.disk_ledger import DiskLedger

STREAMS = [bytes(16), b"\1" * 16]
EVENTS = st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 2)), max_size=12)


class Refused(Exception):
    pass


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
    ledger: EventLedger, events: list[tuple[int, int]], stream: int = 0, *, strict: bool = False
) -> tuple[list[int], list[bool]]:
    """Events are (id, content)."""

    def refuse(other: Bools, rounds: Rounds) -> None:
        assert other.any()
        if strict:
            raise Refused

    names = np.array([1000 * stream + name for name, _ in events], dtype=np.int64)
    tags = tags_of([content for _, content in events])
    rounds, other = ledger.allot(STREAMS[stream], names, tags, refuse)
    return rounds.tolist(), other.tolist()


@given(
    calls=st.lists(st.tuples(EVENTS, st.integers(0, 1), st.booleans(), st.booleans()), max_size=6)
)
def test_the_ledger_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[list[tuple[int, int]], int, bool, bool]],
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "events"
    ledger = EventLedger(path)
    model: list[dict[int, tuple[int, int]]] = [{}, {}]
    for events, stream, strict, again in calls:
        if again:
            ledger = EventLedger(path)
        known, wanted = dict(model[stream]), []
        for name, content in events:
            number, first = known.setdefault(name, (len(known), content))
            wanted.append((number, first != content))
        if strict and any(other for _, other in wanted):
            with pytest.raises(Refused):
                allot(ledger, events, stream, strict=True)
        else:
            rounds, other = allot(ledger, events, stream, strict=strict)
            assert list(zip(rounds, other, strict=True)) == wanted
            model[stream] = known
        assert ledger.used() == max(map(len, model))


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


def write(path: Path, out: Path, seed: int) -> None:
    write_down(partial(allot, EventLedger(path)), out, seed)


def write_down(ask: Callable[[Any], tuple[list[int], list[bool]]], out: Path, seed: int) -> None:
    """Events in any order, some of them those of others; it writes down what it got, for ever."""
    rng = np.random.default_rng(seed)
    target = os.open(out, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        names = rng.integers(0, 400, 20).tolist()
        rounds, other = ask([(name, name % 7) for name in names])
        assert not any(other)
        lines = [f"{name} {number}\n" for name, number in zip(names, rounds, strict=True)]
        os.write(target, "".join(lines).encode())


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_processes_agree_whoever_is_killed(tmp_path: Path, kills: int) -> None:
    """A speculative task, a retry, a job beside it: an event has one round, a round one event."""
    path, spawn = tmp_path / "events", multiprocessing.get_context("fork")
    EventLedger(path)
    rng, running = np.random.default_rng(3), []
    for kill in range(kills):
        for one in range(3 - len(running)):
            out = tmp_path / f"got {kill} {one}"
            process = spawn.Process(target=write, args=(path, out, 10 * kill + one))
            process.start()
            running.append(process)
        time.sleep(0.05 + 0.1 * rng.random())
        victim = running.pop(int(rng.integers(0, len(running))))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
    for process in running:
        process.kill()
        process.join()
    lines = [
        line.split() for out in tmp_path.glob("got *") for line in out.read_text().splitlines()
    ]
    pairs = {(int(line[0]), int(line[1])) for line in lines if len(line) == 2}
    assert len(pairs) > 100
    assert len(dict(pairs)) == len({number for _, number in pairs}) == len(pairs)
    ledger = EventLedger(path)
    names = sorted(name for name, _ in pairs)
    rounds, _ = allot(ledger, [(name, name % 7) for name in names])
    assert dict(zip(names, rounds, strict=True)) == dict(pairs)
