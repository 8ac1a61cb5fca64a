"""Epoch seeds: both sides step alike, nothing steps back, and what was stepped is gone.

Seed rings: the pairs' seeds and nothing else.
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps import EpochSeed, Schema, SeedRing, SharedSeed, UInt
from ccbps.delivery import PayloadOpener, PayloadSealer
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, SerializationError
from ccbps.matching import BranchingMatch

SECRET = bytes(range(32))
MASTER = SharedSeed(SECRET)
MATCHER = BranchingMatch.box(Schema(a=UInt(4)))
EVENT = [{"a": 2}]


def derived(secret: bytes, use: bytes, info: bytes = b"") -> bytes:
    context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
    return HKDF(SHA256(), length=32, salt=None, info=context).derive(secret)


def chain(secret: bytes, steps: int) -> bytes:
    for _ in range(steps):
        secret = derived(secret, b"step")
    return secret


def test_each_epochs_seed_is_derived_from_the_one_before() -> None:
    seed = EpochSeed.start(SharedSeed(SECRET))
    start = derived(SECRET, b"ratchet")
    for epoch in range(4):
        assert (seed.epoch, seed.export_secret()) == (epoch, chain(start, epoch))
        seed = seed.step()
    assert seed.step(to=9).export_secret() == chain(start, 9)


def test_a_pair_that_joins_late_steps_like_its_counterpart() -> None:
    master = EpochSeed(SECRET)
    for epoch in range(3):
        master.pair(f"joined {epoch}")
        master = master.step()
    for epoch in range(3):
        label = f"joined {epoch}"
        first = derived(chain(SECRET, epoch), b"pair", label.encode())
        assert master.pair(label) == EpochSeed(chain(first, 3 - epoch), 3)


def test_both_sides_match_in_every_epoch_and_begin_rounds_anew() -> None:
    master = EpochSeed.generate()
    alice = EpochSeed.from_text(master.pair("alice").to_text())
    ring = SeedRing({"bob": master.pair("bob"), "carol": master.pair("carol")})
    seen = set()
    for epoch in range(3):
        assert master.epoch == alice.epoch == ring.epoch == epoch
        events = MATCHER.publisher(master).encode(
            EVENT * 3, [0, 0, 0], pairs=["alice", "bob", "carol"]
        )
        interests = np.concatenate(
            [
                MATCHER.subscriber(alice).encode("a < 3", [0]),
                MATCHER.subscriber(ring).encode("a > 3", [0, 0], pairs=["bob", "carol"]),
            ]
        )
        assert MATCHER.broker().match(events, interests).tolist() == [True, False, False]
        seen |= {row.tobytes() for row in events}
        master, alice, ring = master.step(), alice.step(), ring.step()
    assert len(seen) == 9


def test_payloads_of_an_epoch_open_with_its_seeds_only() -> None:
    master = EpochSeed.generate()
    alice, late = master.pair("alice"), master.pair("alice")
    master, alice = master.step(), alice.step()
    sealer = PayloadSealer(master)
    sealed, wrapped = sealer.seal([b"quote"], [7]), sealer.wrap([7], [0], pairs=["alice"])
    assert PayloadOpener(alice).open(sealed, wrapped, [0]) == [b"quote"]
    for seed in (late, alice.step()):
        with pytest.raises(DecodeError, match="not a payload for this key"):
            PayloadOpener(seed).open(sealed, wrapped, [0])


def test_sides_in_different_epochs_are_refused_by_the_broker() -> None:
    master = EpochSeed.generate()
    alice = master.pair("alice")
    interests = MATCHER.subscriber(alice).encode("a < 3", [0])
    events = MATCHER.publisher(master.step()).encode(EVENT, [0], pairs=["alice"])
    with pytest.raises(DecodeError, match="different matchers, pairs, rounds or seeds"):
        MATCHER.broker().match(events, interests)


def itself(seed: EpochSeed) -> EpochSeed:
    return seed


USES: dict[str, tuple[Callable[[EpochSeed], Any], Callable[[Any], object]]] = {
    "publisher": (MATCHER.publisher, lambda role: role.encode(EVENT, [1])),
    "of a pair": (MATCHER.publisher, lambda role: role.encode(EVENT, [1], pairs=["x"])),
    "subscriber": (MATCHER.subscriber, lambda role: role.encode("a < 3", [1])),
    "sealer": (PayloadSealer, lambda role: role.seal([b"x"], [1])),
    "wrap": (PayloadSealer, lambda role: role.wrap([1], [1], pairs=["x"])),
    "opener": (
        PayloadOpener,
        lambda role: role.open([bytes(294)], np.zeros((1, 32), np.uint8), [1]),
    ),
    "export": (itself, lambda seed: seed.export_secret()),
    "fingerprint": (itself, lambda seed: seed.fingerprint),
    "text": (itself, lambda seed: seed.to_text()),
    "pair": (itself, lambda seed: seed.pair("x")),
    "new pair": (itself, lambda seed: seed.pair("y")),
    "ring": (itself, lambda seed: SeedRing.of(seed, ["x"])),
    "step": (itself, lambda seed: seed.step()),
}


@pytest.mark.parametrize("use", USES)
def test_a_stepped_seed_and_its_roles_refuse(use: str) -> None:
    make, ask = USES[use]
    seed = EpochSeed(SECRET)
    seed.pair("x")
    MATCHER.publisher(seed).encode(EVENT, [0], pairs=["x"])
    made = make(seed)
    assert seed.step().epoch == 1
    with pytest.raises(KeyMismatchError, match="seed of epoch 0 was stepped and is erased"):
        ask(made)
    assert repr(seed) == "<EpochSeed erased, epoch 0>"


def test_a_stepped_ring_and_its_roles_refuse() -> None:
    ring = SeedRing.of(EpochSeed(SECRET), ["x"])
    role = MATCHER.subscriber(ring)
    role.encode("a < 3", [0], pairs=["x"])
    after = ring.step(to=4)
    assert after.epoch == 4
    for call in (lambda: role.encode("a < 3", [1], pairs=["x"]), ring.to_text, ring.step):
        with pytest.raises(KeyMismatchError, match="erased"):
            call()


def test_nothing_holds_the_secret_of_a_stepped_seed() -> None:
    secret = bytes(bytearray(SECRET))
    seed = EpochSeed(secret)
    pair = seed.pair("x")
    role = MATCHER.publisher(seed)
    role.encode(EVENT, [0])
    role.encode(EVENT, [0], pairs=["x"])
    inner = seed._pairs["x"].export_secret()
    after = seed.step()
    # One reference of this function, one of the call.
    assert sys.getrefcount(secret) <= 2
    assert sys.getrefcount(inner) <= 3  # and that of `pair`, its counterpart's own
    assert pair.step() == after.pair("x")
    assert sys.getrefcount(inner) <= 2


def test_a_pair_that_nobody_named_is_unknown() -> None:
    master = EpochSeed(SECRET)
    master.pair("alice")
    with pytest.raises(KeyMismatchError, match=r"no seed for pair 'bob' among the 1 of this epoch"):
        MATCHER.publisher(master).encode(EVENT, [0], pairs=["bob"])


@pytest.mark.parametrize("to", [0, 2, 3, 2.5, "4"])
def test_seeds_do_not_step_back(to: Any) -> None:
    with pytest.raises(KeyMismatchError, match="does not come after 3: seeds step forward only"):
        EpochSeed(SECRET, 3).step(to)


@pytest.mark.parametrize("epoch", [-1, 10**9, 1.0, True, None])
def test_epochs_are_whole_numbers(epoch: Any) -> None:
    with pytest.raises(ParameterError, match="epoch must be a whole number from 0 to 999,999,999"):
        EpochSeed(SECRET, epoch)


def test_rings_start_and_step_together() -> None:
    ring = SeedRing.of(SharedSeed(SECRET), ["x", "y"])
    assert ring.epoch is None
    with pytest.raises(KeyMismatchError, match=r"no epochs: start_epochs\(\) starts them"):
        ring.step()
    started = ring.start_epochs()
    assert started.pair("x") == EpochSeed.start(SharedSeed(SECRET).pair("x"))
    with pytest.raises(ParameterError, match="already"):
        started.start_epochs()
    with pytest.raises(ParameterError, match="of one epoch, or of none"):
        SeedRing({"x": EpochSeed(SECRET, 1), "y": EpochSeed(bytes(32), 2)})
    with pytest.raises(ParameterError, match="of one epoch, or of none"):
        SeedRing({"x": EpochSeed(SECRET), "y": SharedSeed(bytes(32))})


def test_a_ring_of_which_one_seed_was_stepped_loses_no_other() -> None:
    kept, gone = EpochSeed(SECRET), EpochSeed(bytes(32))
    ring = SeedRing({"kept": kept, "gone": gone})
    gone.step()
    with pytest.raises(KeyMismatchError, match="the seed of epoch 0 was stepped and is erased"):
        ring.step()
    assert kept.step().export_secret() == chain(SECRET, 1)


def test_epochs_beyond_the_last_are_refused_before_anything_is_erased() -> None:
    seed = EpochSeed(SECRET, 10**9 - 2)
    for holder in (seed, SeedRing({"x": seed}), EpochSeed(SECRET)):
        with pytest.raises(ParameterError, match="from 0 to 999,999,999, got 1000000000"):
            holder.step(to=10**9)
    assert seed.step().epoch == 10**9 - 1


def test_a_master_in_use_starts_the_chains_that_its_subscribers_start() -> None:
    master = SharedSeed(SECRET)
    alice, bob = (EpochSeed.start(master.pair(label)) for label in ("alice", "bob"))
    chained = EpochSeed.from_text(EpochSeed.start(master, ["alice", "bob"]).to_text())
    assert chained.export_secret() == derived(SECRET, b"ratchet")
    for _ in range(3):
        assert (chained.pair("alice"), chained.pair("bob")) == (alice, bob)
        chained, alice, bob = chained.step(), alice.step(), bob.step()
    with pytest.raises(KeyMismatchError, match="no seed for pair 'carol'"):
        chained.reader(
            b"p", 16, np.zeros(1, np.uint64), DictionaryColumn(["carol"], np.zeros(1, np.intp))
        )
    with pytest.raises(ParameterError, match=r"got one string; write \['alice'\]"):
        EpochSeed.start(master, "alice")
    with pytest.raises(ParameterError, match=r"be a SharedSeed, got SeedRing; .* start_epochs\(\)"):
        EpochSeed.start(SeedRing.of(master, ["alice"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["\ud800", 5, None, b"a"])
def test_labels_are_text(label: Any) -> None:
    uses: list[Callable[[], object]] = [
        lambda: MASTER.pair(label),
        lambda: EpochSeed(SECRET).pair(label),
        lambda: EpochSeed.start(MASTER, [label]),
        lambda: SeedRing({label: MASTER}),
    ]
    for use in uses:
        with pytest.raises(ParameterError, match="a pair label must be a string that UTF-8 can"):
            use()


# -- rings ---------------------------------------------------------------------------------------


def test_ring_encodes_what_the_master_encodes() -> None:
    rounds, labels = np.arange(6), ["x", "y", "x", "z", "z", "y"]
    ring = SeedRing.of(MASTER, ["x", "y", "z"])
    got = MATCHER.subscriber(ring).encode("a < 3", rounds, pairs=labels)
    assert np.array_equal(got, MATCHER.subscriber(MASTER).encode("a < 3", rounds, pairs=labels))


def test_ring_has_its_own_pairs_only() -> None:
    ring = SeedRing.of(MASTER, ["x"])
    assert ring.pair("x") == MASTER.pair("x")
    with pytest.raises(KeyMismatchError, match="'y'"):
        MATCHER.subscriber(ring).encode("a < 3", [0], pairs=["y"])
    with pytest.raises(ParameterError, match="name each row's pair"):
        MATCHER.subscriber(ring).encode("a < 3", [0])


def test_empty_rings_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least one pair"):
        SeedRing({})


def test_ring_does_not_print_or_pickle() -> None:
    ring = SeedRing.of(MASTER, ["x"])
    assert repr(ring) == "<SeedRing of 1 pairs>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError, match="KeySource"):
            escape(ring)


def test_two_pairs_of_a_ring_have_two_seeds() -> None:
    """Under one seed, round 0 of both would be the same randomness, and no ledger would see it."""
    alice, bob = MASTER.pair("alice"), MASTER.pair("bob")
    with pytest.raises(ParameterError, match="pairs 'alice' and 'carol' have the same seed"):
        SeedRing({"alice": alice, "bob": bob, "carol": SharedSeed(alice.export_secret())})


def test_one_string_is_no_list_of_labels() -> None:
    with pytest.raises(ParameterError, match=r"write \['alice'\]"):
        SeedRing.of(MASTER, "alice")
    assert len(SeedRing.of(MASTER, ["alice"])) == 1


@pytest.mark.parametrize("seeds", [{"alice": "x"}, {"alice": MASTER.to_text()}, [MASTER], None])
def test_a_ring_holds_seeds_and_shows_nothing_else(seeds: Any) -> None:
    with pytest.raises(ParameterError, match=r"SeedRing.of\(master, labels\)") as failure:
        SeedRing(seeds)
    assert MASTER.export_secret().hex()[:8] not in str(failure.value)
