"""Seed rings: the pairs' seeds and nothing else."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, SeedRing, SharedSeed, UInt
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError
from ccbps.matching import BranchingMatch

MASTER = SharedSeed(bytes(range(32)))
MATCHER = BranchingMatch.box(Schema(a=UInt(4)))


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


@pytest.mark.parametrize("label", [5, None, "\ud800"])
def test_labels_are_text(label: Any) -> None:
    with pytest.raises(ParameterError, match="label"):
        SeedRing({label: MASTER})


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
