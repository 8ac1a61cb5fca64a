"""Seed rings: the pairs' seeds and nothing else, in text and back."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Schema, SeedRing, SharedSeed, UInt
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError
from ccbps.keys.seeds import parse_seeds
from ccbps.matching import BranchingMatch

MASTER = SharedSeed(bytes(range(32)))
MATCHER = BranchingMatch.box(Schema(a=UInt(4)))
LABELS = st.text(min_size=1, max_size=12).filter(
    lambda t: t == t.strip() and len(t.splitlines()) == 1
)


def test_ring_encodes_what_the_master_encodes() -> None:
    rounds, labels = np.arange(6), ["x", "y", "x", "z", "z", "y"]
    ring = MASTER.ring(["x", "y", "z"])
    got = MATCHER.subscriber(ring).encode("a < 3", rounds, pairs=labels)
    assert np.array_equal(got, MATCHER.subscriber(MASTER).encode("a < 3", rounds, pairs=labels))


def test_ring_has_its_own_pairs_only() -> None:
    ring = MASTER.ring(["x"])
    assert ring.pair("x") == MASTER.pair("x")
    with pytest.raises(KeyMismatchError, match="'y'"):
        MATCHER.subscriber(ring).encode("a < 3", [0], pairs=["y"])
    with pytest.raises(ParameterError, match="name each row's pair"):
        MATCHER.subscriber(ring).encode("a < 3", [0])


def test_errors_hold_no_seed_in_their_frames() -> None:
    text = f"{MASTER.to_text()} a\nbroken b\n"
    with pytest.raises(KeyMismatchError, match="line 2") as failure:
        parse_seeds(text)
    frame = failure.value.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != __file__:
            assert MASTER.export_secret().hex() not in repr(frame.tb_frame.f_locals)
        frame = frame.tb_next


def test_empty_rings_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least one pair"):
        SeedRing({})


def test_ring_does_not_print_or_pickle() -> None:
    ring = MASTER.ring(["x"])
    assert repr(ring) == "<SeedRing of 1 pairs>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError, match="KeySource"):
            escape(ring)


@given(st.lists(LABELS, min_size=1, max_size=4, unique=True))
def test_text_form_is_read_back(labels: list[str]) -> None:
    back = parse_seeds(MASTER.ring(labels).to_text())
    assert isinstance(back, SeedRing)
    assert len(back) == len(labels)
    assert all(back.pair(label) == MASTER.pair(label) for label in labels)


def test_a_single_unlabelled_line_is_a_seed() -> None:
    assert parse_seeds(MASTER.to_text() + "\n") == MASTER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        MASTER.to_text() + "\n" + MASTER.to_text(),
        MASTER.to_text()[:-1] + " alice",
        f"{MASTER.to_text()} a\n{MASTER.to_text()} a",
    ],
)
def test_other_text_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(KeyMismatchError) as failure:
        parse_seeds(text)
    assert MASTER.export_secret().hex()[:8] not in str(failure.value)


@pytest.mark.parametrize("label", ["", " a", "a\nb", "a\rb", "a\u2028b"])
def test_labels_are_lines(label: str) -> None:
    with pytest.raises(ParameterError, match="label"):
        SeedRing({label: MASTER})


def test_two_pairs_of_a_ring_have_two_seeds() -> None:
    """Under one seed, round 0 of both would be the same randomness, and no ledger would see it."""
    alice, bob = MASTER.pair("alice"), MASTER.pair("bob")
    with pytest.raises(ParameterError, match="pairs 'alice' and 'carol' have the same seed"):
        SeedRing({"alice": alice, "bob": bob, "carol": SharedSeed(alice.export_secret())})
    with pytest.raises(KeyMismatchError, match="'alice' and 'carol' have the same seed") as failure:
        parse_seeds(f"{alice.to_text()} alice\n{alice.to_text()} carol\n")
    assert alice.export_secret().hex()[:8] not in str(failure.value)


def test_one_string_is_no_list_of_labels() -> None:
    with pytest.raises(ParameterError, match=r"write ring\(\['alice'\]\)"):
        MASTER.ring("alice")
    assert len(MASTER.ring(["alice"])) == 1


@pytest.mark.parametrize("seeds", [{"alice": "x"}, {"alice": MASTER.to_text()}, [MASTER], None])
def test_a_ring_holds_seeds_and_shows_nothing_else(seeds: Any) -> None:
    with pytest.raises(ParameterError, match=r"master.ring\(labels\)") as failure:
        SeedRing(seeds)
    assert MASTER.export_secret().hex()[:8] not in str(failure.value)
