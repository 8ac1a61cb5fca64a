"""Shared randomness: the stream by definition, pads by position, rounds used once."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from ccbps import Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    KeyMismatchError,
    PadExhaustedError,
    ParameterError,
    RandomnessReuseError,
    SerializationError,
    ShapeError,
)
from ccbps.keys import stream as key_stream
from ccbps.keys.pad import OneTimePad
from ccbps.keys.randomness import RandomnessReader, RandomnessSource
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.matching import BranchingMatch, OFSGPMatch
from tests.support.effort import examples
from tests.support.forks import answer_of_child

LAST = 2**64 - 1
SEED = SharedSeed(bytes(range(32)))


# -- the slow twin ------------------------------------------------------------------------------


def derived(secret: bytes, use: bytes, info: bytes) -> bytes:
    context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
    return HKDF(SHA256(), length=32, salt=None, info=context).derive(secret)


def stream(secret: bytes, purpose: bytes, width: int, number: int) -> bytes:
    """One round's bytes: its own cipher, started at its own counter."""
    blocks = (width + 15) // 16
    counter = (number * blocks).to_bytes(16, "big")
    key = algorithms.AES(derived(secret, b"stream", purpose))
    return Cipher(key, modes.CTR(counter)).encryptor().update(bytes(16 * blocks))[:width]


def uint64(rounds: Sequence[int]) -> NDArray[np.uint64]:
    return np.array(rounds, dtype=np.uint64)


def read(reader: RandomnessReader, edges: Sequence[int]) -> list[bytes]:
    """All rows, in chunks between the edges."""
    rows: list[bytes] = []
    for start, stop in pairwise(edges):
        chunk = reader(start, stop)
        assert chunk.dtype == np.uint8
        assert all(row.flags.c_contiguous for row in chunk)
        rows += [row.tobytes() for row in chunk]
    return rows


def chunks(data: st.DataObject, count: int) -> list[int]:
    inner = data.draw(st.sets(st.integers(1, count - 1)) if count > 1 else st.just(set()))
    return [0, *sorted(inner), count]


# -- the stream of a seed -----------------------------------------------------------------------

# Counters whose low words overflow: while a round's blocks are counted, and in the product itself,
# in its low 64 bits and between its halves of 32 bits, for each number of blocks a round below.
CARRIES = [
    *[(2**64 - 1) // blocks for blocks in (1, 2, 7, 88)],
    *[-pow(odd, -1, 2**bits) % 2**bits << 32 | 2**32 - 1 for odd, bits in ((7, 32), (11, 29))],
]
SPANS = {
    "consecutive": list(range(1000, 1100)),
    "descending": list(range(1100, 1000, -1)),
    "scattered": [7 * i * i % 10_007 for i in range(100)],
    "runs": [*range(5), *range(90, 99), 3_000_000, *range(20, 60), 2, 1, 0],
    "huge": [LAST, LAST - 1, 2**63, 2**32, 2**32 - 1, 0, LAST - 2],
    "over 2^32": list(range(2**32 - 5, 2**32 + 5)),
    "up to the last": list(range(LAST - 40, LAST + 1)),
    "repeated": [5, 5, 6, 5, 6, 6],
    "carries": CARRIES,
    "one": [12],
}


@pytest.mark.parametrize("width", [1, 16, 24, 100, 1400])
@pytest.mark.parametrize("span", SPANS)
def test_stream_is_aes_ctr_of_a_derived_key(span: str, width: int) -> None:
    rounds = SPANS[span]
    reader = SEED.reader(b"purpose", width, uint64(rounds))
    expected = [stream(SEED.export_secret(), b"purpose", width, r) for r in rounds]
    assert read(reader, [0, len(rounds)]) == expected


rounds_with_runs = st.lists(
    st.tuples(st.integers(0, LAST - 8) | st.integers(0, 50), st.integers(1, 8)),
    min_size=1,
    max_size=12,
).map(lambda runs: [first + i for first, length in runs for i in range(length)])


@given(rounds=rounds_with_runs, width=st.integers(1, 70), data=st.data())
def test_stream_does_not_depend_on_the_chunks_it_is_read_in(
    rounds: list[int], width: int, data: st.DataObject
) -> None:
    expected = [stream(SEED.export_secret(), b"p", width, r) for r in rounds]
    reader = SEED.reader(b"p", width, uint64(rounds))
    assert read(reader, chunks(data, len(rounds))) == expected


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["", "alice", "bob", "zoë"]), st.integers(0, 20)),
        min_size=1,
        max_size=40,
    ),
    kept=st.sampled_from([1, 2, 100]),
    data=st.data(),
)
def test_stream_of_a_pair_is_that_of_its_own_seed(
    rows: list[tuple[str, int]], kept: int, data: st.DataObject
) -> None:
    labels = data.draw(st.permutations(["bob", "unused", "alice", "", "zoë"]))
    index = np.array([labels.index(label) for label, _ in rows], dtype=np.intp)
    pairs = DictionaryColumn(labels, index)
    reader = SEED.reader(b"p", 40, uint64([r for _, r in rows]), pairs)
    expected = [
        stream(derived(SEED.export_secret(), b"pair", label.encode()), b"p", 40, r)
        for label, r in rows
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_stream, "KEPT_CONTEXTS", kept)
        assert read(reader, chunks(data, len(rows))) == expected


def test_readers_of_one_seed_do_not_disturb_one_another() -> None:
    """Readers take over what earlier ones have left, each for itself."""
    seed = SharedSeed(bytes(range(32)))
    expected = [stream(seed.export_secret(), b"p", 40, r) for r in range(30)]
    for start in (0, 2, 1):
        firsts = [start, start + 10, start + 20]
        readers = [seed.reader(b"p", 40, uint64(list(range(r, r + 4)))) for r in firsts]
        for row in range(4):
            for first, reader in zip(firsts, readers, strict=True):
                assert reader(row, row + 1)[0].tobytes() == expected[first + row]


def test_threads_read_one_seed_at_once() -> None:
    seed, width = SharedSeed(bytes(range(32))), 100

    def read_some(first: int) -> bool:
        return all(
            read(seed.reader(b"p", width, uint64([r])), [0, 1]) == [expected[r]]
            for r in range(first, 200, 4)
        )

    expected = [stream(seed.export_secret(), b"p", width, r) for r in range(200)]
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read_some, range(4)))


def test_stream_of_many_pairs_in_one_round_is_that_of_their_seeds() -> None:
    labels = [f"subscriber {i}" for i in range(300)]
    pairs = DictionaryColumn(labels, np.arange(300, dtype=np.intp)[::-1].copy())
    found = read(SEED.reader(b"p", 33, np.full(300, 9, np.uint64), pairs), [0, 299, 300])
    assert found == [
        read(SEED.pair(label).reader(b"p", 33, uint64([9])), [0, 1])[0]
        for label in reversed(labels)
    ]


def test_stream_of_another_purpose_pair_or_seed_is_another() -> None:
    a = SEED.pair("a")
    sources = [SEED, a, SEED.pair("b"), a.pair("a"), SharedSeed(bytes(32))]
    purposes = [b"", b"p", b"q", b"pq"]
    found = {
        read(source.reader(purpose, 32, uint64([0])), [0, 1])[0]
        for source in sources
        for purpose in purposes
    }
    assert len(found) == len(sources) * len(purposes)


def test_rounds_of_one_stream_share_no_block() -> None:
    rows = read(SEED.reader(b"p", 48, uint64(range(500))), [0, 500])
    blocks = {row[i : i + 16] for row in rows for i in (0, 16, 32)}
    assert len(blocks) == 1500


# -- seeds --------------------------------------------------------------------------------------


def test_pair_seed_is_derived_and_differs_by_label() -> None:
    assert SEED.pair("alice") == SharedSeed(derived(SEED.export_secret(), b"pair", b"alice"))
    assert len({SEED.pair(label) for label in ("", "a", "b", "ab", "A", "é")} | {SEED}) == 7


def test_generated_seeds_differ() -> None:
    assert SharedSeed.generate() != SharedSeed.generate()


def test_seed_text_can_be_read_again() -> None:
    text = SEED.to_text()
    secret = bytes(range(32))
    check = sha256(b"ccbps-seed-3:" + secret).hexdigest()[:16]
    assert text == "ccbps-seed-3:" + secret.hex() + check
    assert SharedSeed.from_text(f"\n {text} \n") == SEED


# -- one-time pads ------------------------------------------------------------------------------

PAD = np.random.default_rng(1).integers(0, 256, 1003, dtype=np.uint8).tobytes()


@given(rounds=st.lists(st.integers(0, 99), min_size=1, max_size=30), data=st.data())
def test_pad_round_is_the_bytes_at_its_place(rounds: list[int], data: st.DataObject) -> None:
    reader = OneTimePad(PAD).reader(b"p", 10, uint64(rounds))
    expected = [PAD[10 * r : 10 * r + 10] for r in rounds]
    assert read(reader, chunks(data, len(rounds))) == expected


@pytest.mark.parametrize("number", [100, 2**63, LAST])
def test_pad_refuses_rounds_beyond_its_end(number: int) -> None:
    with pytest.raises(PadExhaustedError, match=rf"round {number} .* rounds 0\.\.99 of 10 bytes"):
        OneTimePad(PAD).reader(b"p", 10, uint64([0, number]))


def test_pad_shorter_than_a_round_says_so() -> None:
    with pytest.raises(PadExhaustedError, match="the pad has 1003 bytes, one round needs 1004"):
        OneTimePad(PAD).reader(b"p", 1004, uint64([0]))


@pytest.mark.parametrize(("purpose", "width"), [(b"q", 10), (b"p", 11)])
def test_pad_serves_one_purpose(purpose: bytes, width: int) -> None:
    pad = OneTimePad(PAD)
    pad.reader(b"p", 10, uint64([0]))(0, 1)
    pad.reader(b"p", 10, uint64([1]))(0, 1)
    with pytest.raises(RandomnessReuseError, match="already serves another matcher"):
        pad.reader(purpose, width, uint64([50]))


def test_pad_serves_one_purpose_whichever_reader_reads_first() -> None:
    pad = OneTimePad(PAD)
    first, second = pad.reader(b"p", 10, uint64([0])), pad.reader(b"q", 10, uint64([0]))
    second(0, 1)
    with pytest.raises(RandomnessReuseError, match="already serves another matcher"):
        first(0, 1)


def test_pad_refused_for_being_short_is_still_free() -> None:
    pad = OneTimePad(PAD)
    with pytest.raises(PadExhaustedError):
        pad.reader(b"p", 2000, uint64([0]))
    assert read(pad.reader(b"q", 3, uint64([2])), [0, 1]) == [PAD[6:9]]


def test_pad_takes_no_pair_labels() -> None:
    pairs = DictionaryColumn(["a"], np.zeros(1, np.intp))
    with pytest.raises(ParameterError, match="belongs to one pair"):
        OneTimePad(PAD).reader(b"p", 10, uint64([0]), pairs)


def test_pad_comes_from_a_file_or_the_operating_system(tmp_path: Path) -> None:
    path = tmp_path / "pad"
    path.write_bytes(PAD)
    assert OneTimePad.from_file(path) == OneTimePad(PAD)
    assert OneTimePad.from_file(str(path)).export_secret() == PAD
    assert len(OneTimePad.generate(500)) == 500
    assert OneTimePad.generate(500) != OneTimePad.generate(500)


@pytest.mark.parametrize("source", [SEED, OneTimePad(PAD)])
def test_sources_are_recognised(source: object) -> None:
    assert isinstance(source, RandomnessSource)


# -- rounds that a role has used ----------------------------------------------------------------

near = st.integers(0, 40) | st.integers(LAST - 20, LAST)
batches = st.lists(
    st.lists(near, max_size=8)
    | st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 40),
                st.integers(0, 12)),
    max_size=25,
)  # fmt: skip


def refused(ledger: RoundLedger, rounds: list[int]) -> bool:
    try:
        ledger.claim(uint64(rounds))
    except RandomnessReuseError:
        return True
    return False


@given(claims=batches)
@settings(max_examples=examples(300))
def test_ledger_refuses_what_a_set_has_seen_and_takes_all_or_nothing(
    claims: list[list[int]],
) -> None:
    ledger, used = RoundLedger(), set[int]()
    for rounds in claims:
        again = len(set(rounds)) < len(rounds) or not used.isdisjoint(rounds)
        assert refused(ledger, rounds) == again
        if not again:
            used.update(rounds)
    for number in [*range(60), *range(LAST - 25, LAST + 1)]:
        assert refused(ledger, [number]) == (number in used)


@given(order=st.permutations([(label, number) for label in "ab" for number in range(8)]))
def test_ledger_keeps_rounds_that_touch_as_one_interval(order: list[tuple[str, int]]) -> None:
    ledger = RoundLedger()
    for label, number in order:
        ledger.claim(uint64([number]), DictionaryColumn([label], np.zeros(1, np.intp)))
    assert [column.tolist() for column in ledger._used] == [[0, 1], [0, 0], [7, 7]]


def test_ledger_check_changes_nothing() -> None:
    ledger = RoundLedger()
    ledger.check(uint64([3, 4]))
    ledger.claim(uint64([3, 4]))
    with pytest.raises(RandomnessReuseError):
        ledger.check(uint64([4, 5]))
    ledger.claim(uint64([5]))


def test_ledger_says_which_round_and_why() -> None:
    ledger = RoundLedger()
    with pytest.raises(RandomnessReuseError, match="round 7 occurs more than once in this batch"):
        ledger.claim(uint64([9, 7, 8, 7]))
    ledger.claim(uint64([7]))
    for rounds in ([6, 7], [7, 8], [6, 7, 8], [8, 7], [9, 7]):
        with pytest.raises(RandomnessReuseError, match="round 7 was already used by this role"):
            ledger.claim(uint64(rounds))


MATCHER = BranchingMatch.box(Schema(a=UInt(4)))
FORKED = "RandomnessReuseError: this process was forked after the role"


@pytest.mark.parametrize("source", ["seed", "pad"])
def test_a_forked_child_uses_no_round_of_its_parents_roles(source: str) -> None:
    pad = OneTimePad(bytes(9 * MATCHER.randomness_bytes))
    seed: RandomnessSource = SEED if source == "seed" else pad
    publisher, subscriber = MATCHER.publisher(seed), MATCHER.subscriber(seed)
    long = OFSGPMatch(Schema(a=UInt(4)), 1).publisher(SEED)
    calls: list[Callable[[], object]] = [
        lambda: publisher.encode([{"a": 3}], [0]),
        lambda: long.encode_chunks({"a": 3}, 0),
        lambda: subscriber.encode("a < 3", [0]),
    ]
    for call in calls:
        assert answer_of_child(call).startswith(FORKED)
        call()  # the parent goes on
        with pytest.raises(RandomnessReuseError, match="round 0 was already used"):
            call()
        publisher, subscriber = MATCHER.publisher(SEED), MATCHER.subscriber(SEED)


def test_a_role_made_after_the_fork_works_and_a_pads_does_not(tmp_path: Path) -> None:
    pad, event = OneTimePad(bytes(9 * MATCHER.randomness_bytes)), [{"a": 3}]
    assert "Error" not in answer_of_child(lambda: MATCHER.publisher(SEED).encode(event, [0]))
    # The pad's rounds are those of all its publishers.
    MATCHER.publisher(pad).encode(event, [0])
    assert answer_of_child(lambda: MATCHER.publisher(pad).encode(event, [1])).startswith(FORKED)
    kept = MATCHER.publisher(pad, ledger=tmp_path / "rounds")
    kept.encode(event, [1])
    assert "Error" not in answer_of_child(lambda: kept.encode(event, [2]))
    with pytest.raises(RandomnessReuseError, match="round 2 was already used, says"):
        kept.encode(event, [2])


def test_a_pad_made_before_the_fork_serves_no_role_made_after_it(tmp_path: Path) -> None:
    pad, event = OneTimePad(bytes(9 * MATCHER.randomness_bytes)), [{"a": 3}]
    for role in (MATCHER.publisher, MATCHER.subscriber):
        what: Any = event if role == MATCHER.publisher else "a < 3"
        assert answer_of_child(lambda: role(pad).encode(what, [0])).startswith(FORKED)  # noqa: B023
    answer = answer_of_child(
        lambda: MATCHER.publisher(pad, ledger=tmp_path / "r").encode(event, [0])
    )
    assert "Error" not in answer


def test_a_ledger_on_disk_knows_in_the_child_what_its_pad_had_served_without_one(
    tmp_path: Path,
) -> None:
    pad, event = OneTimePad(bytes(9 * MATCHER.randomness_bytes)), [{"a": 3}]
    MATCHER.publisher(pad).encode(event, [3])
    kept = MATCHER.publisher(pad, ledger=tmp_path / "rounds")
    answer = answer_of_child(lambda: kept.encode(event, [3]))
    assert "round 3 was already used by a role of this one-time pad" in answer
    assert "Error" not in answer_of_child(lambda: kept.encode(event, [4]))


def test_a_child_of_a_child_is_no_parent_though_it_had_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, number = RoundLedger(), os.getpid()

    def with_the_parents_number() -> None:
        monkeypatch.setattr(os, "getpid", lambda: number)
        ledger.check(uint64([0]))

    assert answer_of_child(with_the_parents_number).startswith(FORKED)


@pytest.mark.parametrize("side", ["publisher", "subscriber"])
def test_roles_of_one_side_over_one_pad_share_its_rounds(side: str) -> None:
    pad = OneTimePad(bytes(range(256)) * MATCHER.randomness_bytes)
    what: Any = [{"a": 3}] if side == "publisher" else "a < 3"
    first, second = getattr(MATCHER, side)(pad), getattr(MATCHER, side)(pad)
    first.encode(what, [0])
    with pytest.raises(RandomnessReuseError, match="round 0 was already used by a role of this"):
        second.encode(what, [0])
    second.encode(what, [1])
    with pytest.raises(RandomnessReuseError, match="round 1"):
        first.encode(what, [1])
    # The other side uses each round, too: once.
    if side == "publisher":
        MATCHER.subscriber(pad).encode("a < 3", [0, 1])
    else:
        MATCHER.publisher(pad).encode([{"a": 3}] * 2, [0, 1])


def test_claims_by_pair_are_separate_and_all_or_nothing() -> None:
    ledger = RoundLedger()
    pairs = DictionaryColumn(["a", "b"], np.array([0, 1, 1], np.intp))
    ledger.claim(uint64([1, 1, 2]), pairs)
    with pytest.raises(RandomnessReuseError, match="pair 'b': round 2 was already used"):
        ledger.claim(uint64([5, 5, 2]), pairs)
    ledger.claim(uint64([5, 5, 6]), pairs)
    ledger.claim(uint64([1, 2, 5]))


def test_claims_of_a_pair_that_is_listed_twice_are_of_one_pair() -> None:
    ledger = RoundLedger()
    twice = DictionaryColumn(["a", "a"], np.array([0, 1], np.intp))
    with pytest.raises(RandomnessReuseError, match="pair 'a': round 5"):
        ledger.claim(uint64([5, 5]), twice)
    ledger.claim(uint64([5, 6]), twice)


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=6)))
def test_ledger_of_many_pairs_refuses_what_a_set_has_seen(
    claims: list[list[tuple[str, int]]],
) -> None:
    ledger, used = RoundLedger(), set[tuple[str, int]]()
    sweep = [[(label, number)] for label in "abc" for number in range(13)]
    for rows in [*claims, *sweep]:
        # A dictionary may hold labels that no row has, and a label twice.
        labels = ["c", "a", "b", "a"] if len({label for label, _ in rows}) != 1 else [rows[0][0]]
        places = [labels.index(label) for label, _ in rows]
        pairs = DictionaryColumn(labels, np.array(places, np.intp))
        again = len(set(rows)) < len(rows) or not used.isdisjoint(rows)
        try:
            ledger.claim(uint64([number for _, number in rows]), pairs)
        except RandomnessReuseError:
            assert again
        else:
            assert not again
            used.update(rows)


def test_ledger_keeps_pairs_with_neighbouring_rounds_apart() -> None:
    ledger = RoundLedger()
    pairs = DictionaryColumn(["a", "b"], np.array([0, 0, 1], np.intp))
    ledger.claim(uint64([3, 4, 5]), pairs)
    ledger.claim(uint64([5, 6, 4]), pairs)
    for rows in ([5, 9, 9], [9, 10, 5], [9, 10, 4]):
        with pytest.raises(RandomnessReuseError, match="was already used"):
            ledger.claim(uint64(rows), pairs)


def test_rounds_at_both_ends_have_their_own_bytes() -> None:
    seed, last = SharedSeed(bytes(32)), 2**64 - 1
    both = seed.reader(b"p", 40, uint64([last, 0]), None)(0, 2).copy()
    for place, number in enumerate((last, 0)):
        alone = seed.reader(b"p", 40, uint64([number]), None)(0, 1)
        assert np.array_equal(both[place], alone[0])


# -- round numbers as callers write them --------------------------------------------------------


@pytest.mark.parametrize(
    "rounds",
    [
        [0, LAST],
        (1, 2),
        range(3, 5),
        np.array([4, 5], np.int8),
        np.array([0, LAST], np.uint64),
        [LAST, 1],
        [2**63, 0],
    ],
)
def test_rounds_may_be_any_whole_numbers_of_64_bits(rounds: Sequence[int]) -> None:
    found = as_rounds(rounds, 2)
    assert found.dtype == np.uint64
    assert found.tolist() == [int(r) for r in rounds]


@pytest.mark.parametrize("nothing", [[], (), np.zeros(0), range(0)])
def test_no_rounds_may_have_any_type(nothing: ArrayLike) -> None:
    found = as_rounds(nothing, 0)
    assert found.dtype == np.uint64
    assert found.shape == (0,)


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([0.0, 1.0], "whole numbers, one per row, got float64"),
        (["0", "1"], "whole numbers"),
        ([True, False], "whole numbers, one per row, got bool"),
        ([0, 2**64], "whole numbers"),
        ([[0, 1]], r"whole numbers, one per row, got int64 of shape \(1, 2\)"),
        (5, "whole numbers"),
        (None, "whole numbers"),
        ([3, -1], "must not be negative, got -1"),
        ([1, 2, 3], "2 rows need 2 rounds, got 3"),
        ([], "2 rows need 2 rounds, got 0"),
    ],
)
def test_rounds_of_another_type_sign_or_number_are_refused(rounds: ArrayLike, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        as_rounds(rounds, 2)


@pytest.mark.parametrize("index", [np.array([0, 2]), np.array([-1]), np.array([0.0]), np.array(0)])
def test_pair_index_outside_its_labels_is_refused(index: NDArray[np.intp]) -> None:
    with pytest.raises(ShapeError, match="index must"):
        DictionaryColumn(["a", "b"], index)


def test_pads_and_seeds_that_cannot_be_read(tmp_path: Path) -> None:
    for wrong in (-1, 1.5, "32"):
        with pytest.raises(ParameterError, match="length must be a whole number of bytes"):
            OneTimePad.generate(wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="cannot be read: No such file"):
        OneTimePad.from_file(tmp_path / "nowhere")
    with pytest.raises(KeyMismatchError, match="not a key"):
        SharedSeed.from_text(None)  # type: ignore[arg-type]


def test_rounds_are_not_masked() -> None:
    with pytest.raises(ParameterError, match="rounds must not be masked"):
        as_rounds(np.ma.masked_array([1, 2], mask=[False, True]), 2)


@given(
    st.sampled_from([0, 1, 5, 2**63, 2**64 - 20]),
    st.lists(st.integers(0, 6) | st.lists(st.integers(0, 30), max_size=5), max_size=8),
)
def test_a_counter_goes_on_beyond_all_that_were_used(
    first: int, calls: list[int | list[int]]
) -> None:
    """Against a set of numbers: what is counted, what is given, and what is refused."""
    ledger = RoundLedger("number", first=first)
    used: set[int] = set()
    for call in calls:
        after = max(used, default=first - 1) + 1
        assert ledger.next == after
        if isinstance(call, int):
            if after + call > 2**64:
                with pytest.raises(RandomnessReuseError, match=f"no {call} numbers left below"):
                    ledger.take(call)
                continue
            taken = ledger.take(call)
            assert taken.dtype == np.uint64
            assert taken.tolist() == list(range(after, after + call))
            used |= set(taken.tolist())
            continue
        numbers = [max(0, first - 10) + number for number in call]
        numbers = [number for number in numbers if number < 2**64]
        if (
            min(numbers, default=first) < first
            or len(set(numbers)) < len(numbers)
            or used & set(numbers)
        ):
            with pytest.raises(RandomnessReuseError):
                ledger.claim(as_rounds(numbers, None))
        else:
            ledger.claim(as_rounds(numbers, None))
            used |= set(numbers)


def test_numbers_below_the_first_are_refused_by_name() -> None:
    ledger = RoundLedger("event number", first=7)
    with pytest.raises(
        RandomnessReuseError,
        match="event number 6 may have been used before this role's key was saved: give numbers "
        "from 7 on",
    ):
        ledger.claim(np.array([9, 6], dtype=np.uint64))
    ledger.claim(np.array([9, 7], dtype=np.uint64))
    assert ledger.next == 10


def test_a_counter_at_its_end_has_no_number_left() -> None:
    ledger = RoundLedger("number", first=1 << 64)
    assert ledger.next == 1 << 64
    assert len(ledger.take(0)) == 0
    with pytest.raises(RandomnessReuseError, match="no 1 numbers left below"):
        ledger.take(1)
    with pytest.raises(RandomnessReuseError, match="may have been used"):
        ledger.claim(np.array([2**64 - 1], dtype=np.uint64))


def test_a_ledger_is_nobody_elses() -> None:
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError):
            escape(RoundLedger())
