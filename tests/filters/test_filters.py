"""Bloom and cuckoo filters: no key is lost, false positives are as the formulas say, and bytes."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ccbps.errors import DecodeError, FilterFullError, KeyMismatchError, ParameterError, ShapeError
from ccbps.filters import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    FilterKey,
    Hashing,
    Murmur3,
    SipHash,
    bloom_size,
    cuckoo_buckets,
)
from ccbps.filters.cuckoo import SPARE_BUCKETS, cuckoo_rate
from ccbps.filters.filter import CHECK_BYTES, MAGIC, _Form
from ccbps.filters.hashing import as_key_bytes
from ccbps.records import write
from tests.support.effort import examples
from tests.support.kernels import both_kernels, each_kernel, wished  # noqa: F401  (a fixture)

SIP = SipHash(FilterKey(bytes(range(16))))
HASHINGS: dict[str, Hashing] = {"murmur": Murmur3(), "seeded": Murmur3(0xDEADBEEF), "sip": SIP}
TEXTS = st.lists(st.text(max_size=40) | st.binary(max_size=40), max_size=30)


def halves(hashing: Hashing, keys: Any) -> list[tuple[int, int]]:
    first, second = hashing.many(as_key_bytes(keys))
    return list(zip(first.tolist(), second.tolist(), strict=True))


# -- hashes --------------------------------------------------------------------------------------


@both_kernels
@pytest.mark.parametrize("name", HASHINGS)
@given(keys=TEXTS)
@settings(max_examples=examples(60))
def test_columns_are_hashed_as_single_keys(name: str, keys: list[str | bytes]) -> None:
    hashing = HASHINGS[name]
    raw = [key.encode() if isinstance(key, str) else key for key in keys]
    assert halves(hashing, keys) == [hashing.one(key) for key in raw]
    if isinstance(hashing, Murmur3):
        expected = [mmh3.hash64(key, hashing.seed, signed=False) for key in raw]
        assert halves(hashing, keys) == expected


# Outputs of SipHash's reference implementation, 128 bits, for the key 00 .. 0f and the messages
# 00 .. n - 1.
SIP_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}


@both_kernels
def test_siphash_gives_the_published_outputs() -> None:
    hashes = SIP.many(as_key_bytes([bytes(range(size)) for size in SIP_VECTORS]))
    outputs = np.stack(hashes, axis=1).astype("<u8")
    assert [row.tobytes().hex() for row in outputs] == [*SIP_VECTORS.values()]


@both_kernels
def test_long_columns_of_all_lengths() -> None:
    rng = np.random.default_rng(1)
    keys = [rng.bytes(int(size)) for size in rng.integers(0, 70, 9000)]
    for hashing in HASHINGS.values():
        hashes = halves(hashing, keys)
        for row in range(0, 9000, 517):
            assert hashes[row] == hashing.one(keys[row])


def test_columns_of_all_kinds_are_the_same_keys() -> None:
    keys = ["news", "", "größer", "x" * 33]
    raw = [key.encode() for key in keys]
    expected = halves(Murmur3(), keys)
    columns = [
        raw,
        tuple(keys),
        np.array(keys),
        np.array(keys, dtype=object),
        *(pa.array(keys, kind) for kind in (pa.string(), pa.large_string())),
        *(pa.array(raw, kind) for kind in (pa.binary(), pa.large_binary())),
        pa.array(keys).dictionary_encode(),
        pa.chunked_array([keys[:1], keys[1:]]),
        pa.array(["before", *keys, "after"]).slice(1, 4),
    ]
    for column in columns:
        assert halves(Murmur3(), column) == expected
    rows = np.arange(24, dtype=np.uint8).reshape(3, 8)
    fixed = pa.array([row.tobytes() for row in rows], pa.binary(8))
    assert halves(SIP, rows) == halves(SIP, fixed) == [SIP.one(row.tobytes()) for row in rows]
    for empty in ([], pa.array([], pa.string()), np.empty((0, 4), dtype=np.uint8)):
        assert halves(Murmur3(), empty) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("news", "a list or a column of strings or bytes, got str"),
        (["a", 1], r"keys\[1\] must be bytes, got int; text is a key, too"),
        ([None], r"keys\[0\] must be bytes, got NoneType"),
        (["\ud800"], r"keys\[0\] must be text in Unicode or bytes"),
        (pa.array(["a", None]), "1 are NULL"),
        (pa.array([1]), "column of strings or binary, got int64"),
        (5, "got int"),
    ],
)
def test_what_is_no_key_is_refused(keys: Any, message: str) -> None:
    for held in (BloomFilter(10), CountingBloomFilter(10), CuckooFilter(10)):
        with pytest.raises(ParameterError, match=message):
            held.add_all(keys)


@pytest.mark.parametrize("key", ["\ud800", 5, None])
def test_a_single_key_that_is_none_is_refused(key: Any) -> None:
    for held in (BloomFilter(10), CountingBloomFilter(10), CuckooFilter(10)):
        for action in (held.add, held.__contains__):
            with pytest.raises(ParameterError, match=r"^a key must be "):
                action(key)
        held.add(bytearray(b"news"))
        assert "news" in held
        assert memoryview(b"news") in held


# -- filters against sets ------------------------------------------------------------------------

MAKE: dict[str, Callable[[Hashing], Any]] = {
    "bloom": lambda hashing: BloomFilter(500, 0.02, hashing),
    "counting": lambda hashing: CountingBloomFilter(500, 0.02, hashing),
    "cuckoo": lambda hashing: CuckooFilter(130, 4, 2, hashing),
    "cuckoo of 1": lambda hashing: CuckooFilter(150, 4, 1, hashing),
    "cuckoo of 4": lambda hashing: CuckooFilter(67, 8, 4, hashing),
    "cuckoo, once": lambda hashing: CuckooFilter(130, 4, 2, hashing, once=True),
}


@both_kernels
@pytest.mark.parametrize("name", MAKE)
def test_all_added_keys_are_found_single_and_in_columns(name: str) -> None:
    for hashing in (Murmur3(), SIP):
        held = MAKE[name](hashing)
        keys = [f"topic/{n}" for n in range(400)]
        held.add_all(keys[:390])
        for key in keys[390:]:
            held.add(key)
        assert held.has_all(keys).all()
        assert all(key in held for key in keys)
        others = [f"other/{n}" for n in range(2000)]
        present = held.has_all(others)
        assert present.tolist() == [key in held for key in others]
        assert present.mean() < 0.08
        assert 380 < len(held) <= 400


def test_kernels_agree_on_everything_but_kicks() -> None:
    keys = [f"topic/{n}" for n in range(300)]
    others = [f"other/{n}" for n in range(5000)]
    for make in MAKE.values():
        filters = []
        for kernel in ("arrays", "compiled"):
            with wished(kernel):
                filters.append(make(Murmur3()))
                filters[-1].add_all(keys)
        first, second = filters
        assert (first.has_all(others) == second.has_all(others)).all()
        assert len(first) == len(second)
        if not isinstance(first, CuckooFilter):
            assert first.to_bytes() == second.to_bytes()


class AgainstAMultiset(RuleBasedStateMachine):
    """Random adds and removals of few keys, single and many."""

    keys = st.integers(0, 40).map("key {}".format)
    kernel = "0"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("CCBPS_COMPILED", self.kernel)
        self.filters: list[Any] = [
            CountingBloomFilter(200, 0.001),
            CuckooFilter(37, 4),
            CuckooFilter(11, 16),
        ]
        self.expected: list[Counter[str]] = [Counter() for _ in self.filters]

    def teardown(self) -> None:
        self.patch.undo()

    @rule(keys=st.lists(keys, max_size=12), single=st.booleans())
    def add(self, keys: list[str], single: bool) -> None:
        for held, expected in zip(self.filters, self.expected, strict=True):
            for some in [[key] for key in keys] if single else [keys]:
                before = held.to_bytes()
                try:
                    held.add(*some) if single else held.add_all(some)
                    expected.update(some)
                except FilterFullError:  # many copies, or keys whose two buckets are the same
                    assert held.to_bytes() == before
                    assert len(held) > 9 or max((expected + Counter(some)).values()) > 4

    @rule(data=st.data(), single=st.booleans())
    def remove(self, data: st.DataObject, single: bool) -> None:
        for held, expected in zip(self.filters, self.expected, strict=True):
            there = sorted(expected.elements())
            keys = data.draw(st.permutations(there))[: data.draw(st.integers(0, 10))]
            for key in keys if single else ():
                held.remove(key)
            held.remove_all([] if single else keys)
            expected.subtract(keys)

    @rule()
    def through_bytes(self) -> None:
        self.filters = [type(held).from_bytes(held.to_bytes()) for held in self.filters]

    @invariant()
    def nothing_is_lost(self) -> None:
        for held, expected in zip(self.filters, self.expected, strict=True):
            assert len(held) == expected.total()
            assert held.has_all([key for key, count in expected.items() if count]).all()


class CompiledAgainstAMultiset(AgainstAMultiset):
    kernel = "1"


for machine in (AgainstAMultiset, CompiledAgainstAMultiset):
    machine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=20)
TestAgainstAMultiset = AgainstAMultiset.TestCase
TestCompiledAgainstAMultiset = CompiledAgainstAMultiset.TestCase

GEOMETRIES = [(100_000, 4), (50_000, 8), (25_000, 16)]


def numbers(first: int, count: int) -> np.ndarray:
    return np.arange(first, first + count, dtype="<u8").view(np.uint8).reshape(-1, 8)


@pytest.mark.parametrize(
    ("buckets", "slots", "kernel"),
    [
        *((*shape, "compiled") for shape in GEOMETRIES),
        (100, 8, "compiled"),
        (100, 8, "arrays"),
        (5000, 4, "arrays"),
        *(pytest.param(*shape, "arrays", marks=pytest.mark.slow) for shape in GEOMETRIES),
    ],
)
def test_no_key_is_lost_at_95_percent_load(buckets: int, slots: int, kernel: str) -> None:
    """After a million random adds and removals, for numbers of buckets that are no powers of 2."""
    with wished(kernel):
        held = CuckooFilter(buckets, slots)
        full = buckets * slots * 95 // 100
        held.add_all(numbers(0, full))
        rng = np.random.default_rng(3)
        there, new = numbers(0, full), full
        turns = 1_000_000 if kernel == "compiled" else 100_000
        for _ in range(max(1, turns // (full // 2))):
            order = rng.permutation(full)
            there = there[order]
            gone = full // 4
            held.remove_all(there[:gone])
            there[:gone] = numbers(new, gone)
            new += gone
            held.add_all(there[:gone])
            assert held.has_all(there).all()
        assert len(held) == full
        if kernel == "compiled" and buckets > 1000:
            absent = [numbers(part << 40, 1_000_000) for part in range(1, 9)]
            measured = np.mean([held.has_all(part).mean() for part in absent])
            assert measured == pytest.approx(held.expected_false_positives(), rel=0.1)


@both_kernels
@pytest.mark.parametrize("rate", [0.1, 0.01])
def test_bloom_filters_have_the_rate_that_was_asked_for(rate: float) -> None:
    for kind in (BloomFilter, CountingBloomFilter):
        held = kind(20_000, rate)
        held.add_all(numbers(0, 20_000))
        measured = held.has_all(numbers(1 << 40, 400_000)).mean()
        assert measured == pytest.approx(held.expected_false_positives(), rel=0.1)
        assert measured == pytest.approx(held.false_positives(), rel=0.1)
        assert held.expected_false_positives() == pytest.approx(rate, rel=0.1)


@both_kernels
@pytest.mark.parametrize("keys", [2, 8, 50])
def test_small_bloom_filters_have_their_rate_too(keys: int) -> None:
    """Places that lie side by side would give a filter for 8 keys six times its rate."""
    rates, expected = [], 0.0
    for seed in range(400):
        held = BloomFilter(keys, 0.002, Murmur3(seed))
        held.add_all(numbers(0, keys))
        rates.append(held.has_all(numbers(1 << 40, 3000)).mean())
        expected += held.expected_false_positives() / 400
    # It takes bits as independent, which those of few keys are not.
    assert expected < np.mean(rates) < (3 if keys == 2 else 1.5) * expected


def test_sizes_are_those_of_the_source() -> None:
    """The report's Table 1 prints 0.47 MiB for the first one."""
    size = bloom_size(400_000, 0.1)
    assert size == 1_917_012
    assert size / 8 / 2**20 == pytest.approx(0.23, abs=0.005)
    assert BloomFilter(400_000, 0.1).hashes == 3
    held = BloomFilter(800)
    assert (held.size, held.hashes) == (7669, 7)
    held.count = 800
    assert held.expected_false_positives() == pytest.approx(0.01, rel=0.02)
    assert cuckoo_rate(4, 2, 1.0) == pytest.approx(8 / 65535, rel=0.001)
    for slots in (1, 2, 3, 4, 8, 16):
        cuckoo = CuckooFilter.for_capacity(2000, slots)
        cuckoo.add_all(numbers(0, 2000))
        assert cuckoo.buckets == cuckoo_buckets(2000, slots) + SPARE_BUCKETS


@both_kernels
@pytest.mark.parametrize("slots", [3, 4, 8])
def test_a_few_keys_have_room_whatever_their_hash(slots: int) -> None:
    """Of six keys in two buckets of four, five may belong to the same one."""
    for seed in range(300):
        for count in (1, 6, 15, 30, 60):
            held = CuckooFilter.for_capacity(count, slots, hashing=Murmur3(seed))
            held.add_all(numbers(0, count))
            assert len(held) == count


# -- full, alike, united -------------------------------------------------------------------------


@both_kernels
def test_a_full_filter_raises_and_loses_nothing() -> None:
    for held, room in (
        (BloomFilter(1000), 1000),
        (CountingBloomFilter(1000), 1000),
        (CuckooFilter(250, 4), 940),
        (CuckooFilter(250, 4, once=True), 930),
    ):
        held.add_all(numbers(0, room))
        before = held.to_bytes()
        with pytest.raises(FilterFullError, match="nothing was added"):
            held.add_all(numbers(room, 100))
        assert held.to_bytes() == before
        full = 0
        for more in range(60):
            try:
                held.add(numbers(5000 + more, 1).tobytes())
            except FilterFullError:
                full += 1
        assert full
        assert held.has_all(numbers(0, room)).all()


@both_kernels
def test_copies_of_one_key() -> None:
    held = CuckooFilter(50, 4)
    held.add_all(["a"] * 8)
    with pytest.raises(FilterFullError):
        held.add("a")
    assert (len(held), "a" in held) == (8, True)
    held.remove_all(["a"] * 7)
    assert "a" in held
    with pytest.raises(ParameterError, match="are not in the filter, or not so often"):
        held.remove_all(["a", "a"])
    assert "a" in held
    held.remove("a")
    assert "a" not in held
    once = CuckooFilter(50, 4, once=True)
    once.add_all(["a"] * 80 + ["b"])
    assert len(once) == 2
    with pytest.raises(ParameterError, match="stores each once"):
        once.remove("a")
    assert len(once) == 2
    bloom = BloomFilter(2)
    bloom.add_all(["a"] * 80)
    bloom.add_all(["a", "b"] * 3)
    assert len(bloom) == 2
    counting = CountingBloomFilter(1000)
    counting.add_all(["a"] * 300 + ["b"])
    counting.remove_all(["a"] * 300)  # its counters stand at 255, and stay there
    assert counting.has_all(["a", "b"]).all()
    with pytest.raises(ParameterError, match="is not in the filter"):
        counting.remove("c")


@both_kernels
@pytest.mark.parametrize("name", MAKE)
def test_unions_hold_the_keys_of_both(name: str) -> None:
    first, second = (MAKE[name](Murmur3()) for _ in range(2))
    first.add_all(numbers(0, 200))
    second.add_all(numbers(150, 200))
    both = first | second
    assert both.has_all(numbers(0, 350)).all()
    assert len(first) == len(second) == 200
    assert len(both) == (350 if "once" in name else 400)
    assert both.has_all(numbers(1 << 30, 1000)).mean() < 0.1
    for other in (MAKE[name](Murmur3(1)), MAKE[name](SIP), BloomFilter(499, 0.02)):
        with pytest.raises(ShapeError, match="can be united if"):
            first | other


# -- bytes and secrets ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKE)
def test_filters_come_back_from_bytes(name: str) -> None:
    held = MAKE[name](SIP)
    held.add_all(numbers(0, 300))
    message = held.to_bytes()
    back = type(held).from_bytes(message, SipHash(FilterKey(bytes(range(16)))))
    assert back.to_bytes() == message
    assert back.has_all(numbers(0, 300)).all()
    assert len(back) == 300
    for at in range(0, len(message), 7):
        for wrong in (message[:at], message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]):
            with pytest.raises(DecodeError):
                type(held).from_bytes(wrong, SIP)
    for hashing in (Murmur3(1), SipHash(FilterKey(bytes(16)))):
        with pytest.raises(DecodeError, match="another hash or key"):
            type(held).from_bytes(message, hashing)
    with pytest.raises(DecodeError, match="give hashing=SipHash"):
        type(held).from_bytes(message)
    # A hash without a key is named in the message.
    public = MAKE[name](Murmur3(7))
    public.add_all(numbers(0, 300))
    back = type(held).from_bytes(public.to_bytes())
    assert back.hashing.identity() == Murmur3(7).identity()
    assert back.has_all(numbers(0, 300)).all()
    others = {BloomFilter, CountingBloomFilter, CuckooFilter} - {type(held)}
    for other in others:
        with pytest.raises(DecodeError, match="another kind"):
            other.from_bytes(message, SIP)


@given(st.binary(max_size=120))
def test_any_bytes_are_no_filter(message: bytes) -> None:
    for kind in (BloomFilter, CountingBloomFilter, CuckooFilter):
        with pytest.raises(DecodeError):
            kind.from_bytes(message)


@pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter])
def test_a_filter_takes_no_more_memory_than_its_bytes(kind: type[Any]) -> None:
    """Its numbers may say that it has 2^32 counters."""
    numbers = 400_000_000, 8, 7, 0, 0.01
    form = _Form(kind.kind, Murmur3().identity(), numbers, bytes(8 // kind.cells))
    message = write(form, MAGIC, check=CHECK_BYTES)
    assert len(message) < 80
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="parameters that no"):
            kind.from_bytes(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_filter_under_a_key_says_nothing_to_who_does_not_hold_it() -> None:
    """Guessing topics, an attacker finds those of a filter without a key, and under another key
    only false positives."""
    topics = [f"health/{n}" for n in range(300)]
    guesses = topics + [f"sports/{n}" for n in range(300)]
    for make in (lambda h: BloomFilter(300, 0.01, h), lambda h: CuckooFilter(100, 4, 2, h)):
        plain, keyed = make(Murmur3()), make(SIP)
        for held in (plain, keyed):
            held.add_all(topics)
        assert plain.has_all(guesses)[:300].all()
        stranger = make(SipHash(FilterKey(bytes(16))))
        stranger._cells = keyed._cells
        present = stranger.has_all(guesses)
        assert present[:300].mean() < 0.05
        assert present[300:].mean() < 0.05


def test_secrets_do_not_print() -> None:
    key = FilterKey(bytes(range(16)))
    for shown in (repr(SipHash(key)), repr(BloomFilter(10, hashing=SipHash(key))), repr(key)):
        assert "000102" not in shown
    assert key.export_secret() not in BloomFilter(10, hashing=SipHash(key)).to_bytes()
    with pytest.raises(KeyMismatchError, match="has 16 bytes, got 15"):
        FilterKey(bytes(15))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BloomFilter(0), "capacity must be a whole number, at least 1, got 0"),
        (lambda: BloomFilter(10, 1.0), "rate must be above 0 and below 1, got 1.0"),
        (lambda: BloomFilter(10, 1), "rate must be"),
        (lambda: BloomFilter(10, float("nan")), "rate must be a finite number"),
        (lambda: BloomFilter(1 << 40), r"more than 2\^32 - 1"),
        (lambda: BloomFilter(10, 0.1, "murmur"), "hashing must be a Hashing, got str"),
        (lambda: CuckooFilter(0), "buckets must be"),
        (lambda: CuckooFilter(10, 65), "slots must be a whole number from 1 to 64, got 65"),
        (lambda: CuckooFilter(10, 4, 3), "fingerprint_bytes must be 1, 2 or 4, got 3"),
        (lambda: CuckooFilter(10, once=1), "once must be True or False, got 1"),
        (lambda: CuckooFilter(10, hashing=5), "hashing must be a Hashing, got int"),
        (lambda: Murmur3(1 << 32), "seed must be"),
        (lambda: SipHash(bytes(16)), "key must be a FilterKey, got bytes"),
        (lambda: cuckoo_buckets(10, 0), "slots must be a whole number, at least 1"),
    ],
)
def test_arguments_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()
