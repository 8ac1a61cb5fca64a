"""Ledgers that were put back from a copy, and ledgers with a flipped bit, are noticed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, SharedSeed, UInt
from ccbps.delivery import PayloadSealer
from ccbps.errors import CcbpsError, LedgerError, ParameterError, RandomnessReuseError
from ccbps.matching import FormulaMatch
from ccbps.rounds import EventLedger, MarkedLedger
from ccbps.rounds.disk_ledger import DiskLedger
from tests.support.effort import examples
from tests.support.refusals import refused

BOX = FormulaMatch.box(Schema(price=UInt(8)))
SEED = SharedSeed(bytes(range(32)))
OLDER = "is another one or an older copy, or goes on from one, so nothing was encoded"
STREAM = b"s" * 16
ROUND, NOTHING = np.zeros(1, np.uint64), np.zeros((1, 0), np.uint8)


def publish(ledger: Any, price: int, number: int) -> Any:
    """Encode an event by a role that is made for it."""
    return BOX.publisher(SEED, ledger=ledger).encode({"price": [price]}, [number])


def tags_of(content: int) -> Callable[[Any], Any]:
    """Tags of events that have this content."""
    return lambda rounds: np.full((len(rounds), 16), content, dtype=np.uint8)


def allot(ledger: EventLedger, names: Any, content: int) -> Any:
    """Allot rounds to events of one content."""
    return ledger.allot(STREAM, np.array(names), tags_of(content), lambda *_: None)


# -- put back from a copy -----------------------------------------------------------------------


def test_a_role_notices_that_its_ledger_was_put_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "rounds", tmp_path / "copy"
    role = BOX.publisher(SEED, ledger=path)
    role.encode({"price": [1]}, [0])
    shutil.copy(path, copy)
    role.encode({"price": [2]}, [1])
    shutil.copy(copy, path)
    for number in (1, 2):
        refused(LedgerError, OLDER, role.encode, {"price": [3]}, [number])
    # Others go on from the copy, until it has as many changes and more.
    for number in range(1, 5):
        publish(path, 9, number)
        refused(LedgerError, OLDER, role.encode, {"price": [3]}, [7])


def test_an_event_ledger_notices_that_it_was_put_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "events", tmp_path / "copy"
    ledger = EventLedger(path)
    allot(ledger, [1], 1)
    shutil.copy(path, copy)
    assert allot(ledger, [2], 1)[0] == [1]
    shutil.copy(copy, path)
    refused(LedgerError, OLDER, allot, ledger, [3], 1)
    refused(LedgerError, OLDER, ledger.used)


def test_a_role_that_slept_for_many_changes_goes_on_and_refuses_another_ledger(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "rounds", tmp_path / "other"
    role = BOX.publisher(SEED, ledger=path)
    role.encode({"price": [1]}, [0])
    BOX.publisher(SEED, ledger=other).encode({"price": [1]}, [8])
    for file in (path, other):
        changes(file, 1100)
    role.encode({"price": [1]}, [7])
    shutil.copy(other, path)
    refused(LedgerError, OLDER, role.encode, {"price": [3]}, [0])


def changes(path: Any, count: int) -> None:
    """Begin many generations, without the rounds of each."""
    ledger = DiskLedger(path)._file
    with ledger.transaction() as file:
        for _ in range(count):
            ledger.advance(file)


def test_a_batch_that_stores_nothing_is_no_change(tmp_path: Path) -> None:
    publish(tmp_path / "rounds", 1, 0)
    before = (tmp_path / "rounds").read_bytes()
    publish(tmp_path / "rounds", 1, 0)
    assert (tmp_path / "rounds").read_bytes() == before


# -- a mark -------------------------------------------------------------------------------------


@pytest.fixture
def marked(tmp_path: Path) -> MarkedLedger:
    (tmp_path / "elsewhere").mkdir()
    return MarkedLedger(tmp_path / "rounds", tmp_path / "elsewhere" / "mark")


def test_a_new_process_notices_by_the_mark(marked: MarkedLedger, tmp_path: Path) -> None:
    publish(marked, 1, 0)
    shutil.copy(marked.path, tmp_path / "copy")
    publish(marked, 2, 1)
    shutil.copy(tmp_path / "copy", marked.path)
    refused(LedgerError, OLDER, publish, marked, 3, 1)
    refused(LedgerError, OLDER, publish, marked, 3, 2)


def test_all_that_is_written_is_in_the_mark(marked: MarkedLedger, tmp_path: Path) -> None:
    """Also by those that do not name it, once one that does has looked."""
    publish(marked, 1, 0)
    publish(marked.path, 1, 1)
    shutil.copy(marked.path, tmp_path / "copy")
    publish(marked, 1, 2)
    publish(marked.path, 1, 3)
    publish(marked, 1, 3)
    shutil.copy(tmp_path / "copy", marked.path)
    refused(LedgerError, OLDER, publish, marked, 1, 2)


def test_every_ledger_takes_a_mark(marked: MarkedLedger, tmp_path: Path) -> None:
    ledger = EventLedger(marked)
    allot(ledger, [1], 1)
    shutil.copy(marked.path, tmp_path / "copy")
    allot(EventLedger(marked, identity=ledger.identity()), [2], 1)
    shutil.copy(tmp_path / "copy", marked.path)
    refused(LedgerError, OLDER, EventLedger, marked)
    sealed = MarkedLedger(tmp_path / "sealed", tmp_path / "mark of sealed")
    PayloadSealer(SEED, ledger=sealed).seal([b"IBM"], events=[1])
    (tmp_path / "sealed").unlink()
    refused(LedgerError, "is missing, so nothing", PayloadSealer, SEED, ledger=sealed)


def test_one_of_the_two_files_alone_is_refused(marked: MarkedLedger, tmp_path: Path) -> None:
    publish(marked.path, 1, 0)
    missing = r"the mark .* is missing or empty.* adopt=True once"
    refused(LedgerError, missing, publish, marked, 1, 0)
    assert not Path(marked.mark).exists()
    publish(MarkedLedger(marked.path, marked.mark, adopt=True), 1, 0)
    publish(marked, 1, 1)
    adopting = MarkedLedger(marked.path, tmp_path / "another mark", adopt=True)
    refused(LedgerError, "another mark .* is missing or empty", publish, adopting, 1, 2)
    role = BOX.publisher(SEED, ledger=marked)
    mark = Path(marked.mark).read_bytes()
    Path(marked.mark).write_bytes(b"")
    refused(LedgerError, "is missing or empty", role.encode, {"price": [1]}, [2])
    refused(LedgerError, missing, publish, marked, 1, 2)
    Path(marked.mark).write_bytes(mark)
    kept = Path(marked.path).read_bytes()
    Path(marked.path).write_bytes(b"")
    refused(LedgerError, "was emptied", publish, marked, 1, 2)
    Path(marked.path).unlink()
    refused(LedgerError, "is missing", publish, marked, 1, 2)
    Path(marked.path).write_bytes(kept)
    publish(marked, 1, 2)
    assert Path(marked.mark).stat().st_mode & 0o077 == 0


def test_the_mark_of_another_ledger_is_refused(marked: MarkedLedger, tmp_path: Path) -> None:
    publish(marked, 1, 0)
    publish(tmp_path / "other", 1, 0)
    other = MarkedLedger(tmp_path / "other", marked.mark)
    refused(LedgerError, OLDER, publish, other, 1, 0)
    changes(tmp_path / "other", 1100)
    refused(LedgerError, OLDER, publish, other, 1, 0)
    for content in (b"x", b"not a mark at all, and longer than the header of a file" * 20):
        (tmp_path / "text").write_bytes(content)
        wrong = MarkedLedger(tmp_path / "new", tmp_path / "text")
        refused(LedgerError, "not a database|is not the mark|missing", publish, wrong, 1, 0)
        assert (tmp_path / "text").read_bytes() == content
    refused(
        LedgerError, "is not the mark", publish, MarkedLedger(marked.path, tmp_path / "other"), 1, 0
    )
    refused(
        LedgerError,
        "no mark can be made",
        publish,
        MarkedLedger(tmp_path / "new", tmp_path / "nowhere" / "mark"),
        1,
        0,
    )
    for path in (5, b"mark", "a\0b", None):
        refused(ParameterError, "mark must be the path", MarkedLedger, tmp_path / "new", path)


def test_a_claim_that_stores_nothing_changes_neither_file(marked: MarkedLedger) -> None:
    publish(marked, 1, 0)
    files = [Path(marked.path), Path(marked.mark)]
    before = [file.read_bytes() for file in files]
    refused(RandomnessReuseError, "something else", publish, marked, 2, 0)
    publish(marked, 1, 0)
    assert [file.read_bytes() for file in files] == before


# -- flipped bits -------------------------------------------------------------------------------


def flipped(content: bytes, count: int) -> list[bytes]:
    """Copies of a file, each with another bit flipped."""
    out = []
    for bit in random.Random(3).sample(range(8 * len(content)), count):
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        out.append(bytes(other))
    return out


def test_no_flipped_bit_lets_a_used_round_take_other_content(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    rounds = np.r_[:300, 1_000_000:1_000_100, 5_000_000:5_020_000:97].astype(np.uint64)
    marks = {
        content: SEED.marks(b"p", rounds, None, np.full((len(rounds), 16), content, np.uint8))
        for content in (1, 2)
    }
    first = SEED.marks(b"p", rounds[:200], None, np.full((200, 16), 1, np.uint8))
    claim(path, rounds[:200], first)
    claim(path, rounds, marks[1])
    refusals = 0
    for content in flipped(path.read_bytes(), examples(800)):
        path.write_bytes(content)
        refused(
            (LedgerError, RandomnessReuseError),
            "",
            claim,
            path,
            rounds,
            marks[2],
        )
        try:
            claim(path, rounds, marks[1])
            assert DiskLedger(path).holds(marks[1].names) == [True]
        except LedgerError:
            refusals += 1
    assert refusals


def test_no_flipped_bit_hides_a_stream(tmp_path: Path) -> None:
    path, name = tmp_path / "rounds", SEED.marks(b"p", ROUND, None, NOTHING).names[0]
    claim(path, ROUND, SEED.marks(b"p", ROUND, None, NOTHING))
    content = path.read_bytes()
    for place in (content.index(name), content.rindex(name)):
        path.write_bytes(content[:place] + bytes([name[0] ^ 1]) + content[place + 1 :])
        refused(LedgerError, "is damaged", DiskLedger(path).holds, [name])


@pytest.mark.parametrize(
    ("place", "why"), [(63, "is of version 2, and this .* or it is damaged"), (70, "is damaged")]
)
def test_a_ledger_with_a_damaged_header_is_not_to_be_begun_anew(
    tmp_path: Path, place: int, why: str
) -> None:
    path = tmp_path / "rounds"
    publish(path, 1, 0)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    refused(LedgerError, f"{why}.*take new seeds and a new ledger", publish, path, 1, 0)


def claim(path: Path, rounds: Any, marks: Any) -> None:
    """Claim rounds by a ledger that is made for it."""
    DiskLedger(path).claim(rounds, marks)


def test_no_flipped_bit_allots_a_round_twice(tmp_path: Path) -> None:
    path, names = tmp_path / "events", np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 400)
    first = [allot(EventLedger(path), part, 1)[0] for part in np.split(names, 2)]
    rounds = np.concatenate(first)
    refusals = 0
    for number, content in enumerate(flipped(path.read_bytes(), examples(800))):
        path.write_bytes(content)
        for wanted, used in ((names, 1), (names[::40], 2), (np.array([number]), 3)):
            try:
                got, other = allot(EventLedger(path), wanted, used)
            except LedgerError:
                refusals += 1
                continue
            if used == 3:
                assert got[0] == 400
            else:
                assert (got == rounds[:: 1 if used == 1 else 40]).all()
                assert (other == (used == 2)).all()
    assert refusals


def test_names_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    publish(path, 1, 0)
    content = path.read_bytes()
    assert content.count(b"CREATE TABLE runs") == 1
    for broken in (b"CREATE TABLE r\xffns", b"\xff\xfe\xfd\xfcE TABLE runs"):
        path.write_bytes(content.replace(b"CREATE TABLE runs", broken))
        error = refused(CcbpsError, "ledger", publish, path, 1, 0)
        assert isinstance(error, LedgerError)
