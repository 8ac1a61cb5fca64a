"""Batches over processes: the same results as in one, and an end where one of them ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable

import pytest

from ccbps import Schema, UInt
from ccbps.algebra.pairing.curve import MclCurve
from ccbps.errors import CcbpsError, NetworkError, ParameterError
from ccbps.functional import Authority, CpAbe, HiddenVectors, PublicKey, UserKey, workers

SCHEMA = Schema(age=UInt(3))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes begin at once."""
    monkeypatch.setattr(workers, "HERE_SECONDS", 0)


def with_its_process(key: bytes) -> Callable[[int], int]:
    """Return a function that does what its row says, in a worker."""

    def act(row: int) -> int:
        if row < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert key == b"a key"
    return act


def shared(rows: list[int]) -> list[int]:
    return workers.share(
        rows,
        lambda row: os.getpid(),
        workers=2,
        parallel=False,
        remade=with_its_process,
        key=lambda: b"a key",
    )


def test_processes_open_what_one_opens(soon: None) -> None:
    """The key is of a kind that refuses to be pickled, and its workers have it all the same."""
    authority = Authority.generate(CpAbe(SCHEMA, pairing="transparent"))
    key = authority.key({"age": 5})
    policies = [f"age >= {number % 8}" for number in range(40)]
    sealed = authority.public.seal_many([b"%d" % n for n in range(40)], policies)
    sealed[3] = b"no message"
    assert key.examine(sealed, workers=2) == key.examine(sealed)
    payloads, causes = key.examine(sealed)
    assert payloads[:8] == [b"0", b"1", b"2", None, b"4", b"5", None, None]
    assert [*causes][:4] == [3, 6, 7, 14]


@pytest.mark.slow
def test_processes_seal_what_keys_open(soon: None) -> None:
    authority = Authority.generate(HiddenVectors(SCHEMA))
    payloads = [bytes([n]) for n in range(9)]
    records = [{"age": n % 8} for n in range(9)]
    sealed = authority.public.seal_many(payloads, records, pad_to=1, workers=2)
    assert authority.key("TRUE").examine(sealed, workers=2) == (payloads, {})
    assert len({*sealed}) == len(sealed)


@pytest.mark.slow
def test_workers_are_processes_and_end_with_the_batch(soon: None) -> None:
    ids = {*shared(list(range(64)))}
    assert os.getpid() not in ids
    assert 1 <= len(ids) <= 2
    for number in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


@pytest.mark.slow
def test_a_worker_that_ends_is_one_clear_error(soon: None) -> None:
    with pytest.raises(NetworkError, match="worker process ended"):
        shared([0, 1, -1, 3])


def test_short_batches_stay_in_this_process() -> None:
    assert {*shared(list(range(40)))} == {os.getpid()}


def test_a_rest_that_is_small_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "HERE_SECONDS", 0.3)
    done: list[int] = []

    def act(row: int) -> int:
        time.sleep(0.35 if row == 3 else 0)
        done.append(row)
        return row

    rows = list(range(7))
    assert (
        workers.share(
            rows,
            act,
            workers=2,
            parallel=True,
            remade=with_its_process,
            key=lambda: b"",
        )
        == rows
    )
    assert sorted(done) == rows


def test_daemons_start_no_processes(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert {*shared(list(range(64)))} == {os.getpid()}


def test_many_are_sealed_as_one_is() -> None:
    public = Authority.generate(CpAbe(SCHEMA, pairing="transparent")).public
    assert public.seal_many([], []) == []
    for call in (
        lambda: public.seal_many([b"x"], "age > 3"),
        lambda: public.seal_many([b"x"], ["age > 3", "age > 4"]),
        lambda: public.seal_many([b"x"], ["ages > 3"]),
        lambda: public.seal_many(["x"], ["age > 3"]),
        lambda: public.seal_many([b"x"], ["age > 3"], workers=0),
    ):
        with pytest.raises(CcbpsError):
            call()
    with pytest.raises(ParameterError, match="as many targets as payloads, 1, got 2"):
        public.seal_many([b"x"], ["age > 3", "age > 4"])


def test_keys_of_workers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker makes of the bytes is the key, by whichever library it has."""
    pytest.importorskip("pymcl", reason="pymcl has no wheel for this Python")
    authority = Authority.generate(CpAbe(SCHEMA))
    key, sealed = authority.key({"age": 5}), authority.public.seal(b"x", "age = 5")
    with monkeypatch.context() as patch:
        patch.setattr("ccbps.functional.scheme._group", lambda _: MclCurve())
        assert UserKey._from_bytes(key._to_bytes()).open(sealed) == b"x"
        assert PublicKey.from_bytes(authority.public.to_bytes()) == authority.public
