"""The walk over clauses: its answers are AND of ORs, and it tests nothing that is decided."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ccbps.arrays import Bools, Index
from ccbps.matching.contract.clauses import Alternatives, all_of, gaps


class Known(Alternatives):
    """Alternatives whose truth is given: shape (clauses, slots, events, interests)."""

    def __init__(self, truth: Bools, used: Bools) -> None:
        super().__init__(truth.shape[2], used)
        self.truth, self.tested = truth, np.zeros(truth.shape, dtype=np.int64)

    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        columns = np.arange(self.truth.shape[3]) if interests is None else interests
        self.tested[clause, slot][:, columns] += 1
        return self.truth[clause, slot][:, columns].copy()

    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        assert len(event)
        np.add.at(self.tested[clause, slot], (event, interest), 1)
        return self.truth[clause, slot][event, interest]


@st.composite
def lookups(draw: st.DrawFn) -> Known:
    clauses, slots, events, interests = (draw(st.integers(1, most)) for most in (3, 4, 5, 6))
    truth = draw(arrays(np.bool_, (clauses, slots, events, interests)))
    last = draw(arrays(np.int64, interests, elements=st.integers(0, clauses)))
    most = draw(arrays(np.int64, (clauses, interests), elements=st.integers(1, slots)))
    used = np.arange(clauses)[:, None, None] < last
    return Known(truth, used & (np.arange(slots)[None, :, None] < most[:, None]))


@given(lookups())
def test_answers_are_an_and_of_ors(lookup: Known) -> None:
    holds = (lookup.truth & lookup.used[:, :, None]).any(axis=1) | ~lookup.used[:, :1].any(1)[
        :, None
    ]
    assert np.array_equal(lookup.answers(), holds.all(axis=0))


@given(lookups())
def test_nothing_unused_or_decided_is_tested(lookup: Known) -> None:
    lookup.answers()
    tested, used = lookup.tested, lookup.used
    assert tested.max() <= 1 and not tested[~np.broadcast_to(used[:, :, None], tested.shape)].any()
    alive = np.ones(tested.shape[2:], dtype=np.bool_)
    for clause, truth in enumerate(lookup.truth):
        holds = np.zeros_like(alive)
        for slot, alternative in enumerate(truth):
            if clause:  # the first clause is tried with all pairs, while most are undecided
                assert np.array_equal(tested[clause, slot], alive & ~holds & used[clause, slot])
            holds |= alternative & used[clause, slot]
        alive &= holds & used[clause, 0]


def test_clauses_that_all_interests_have() -> None:
    truth = np.random.default_rng(4).random((4, 30, 20)) < 0.7
    asked: list[int] = []

    def test_of(clause: Bools) -> object:
        def test(event: Index, interest: Index) -> Bools:
            asked.append(len(event))
            return clause[event, interest]

        return test

    further = [(test_of(clause), None) for clause in truth[1:]]
    assert np.array_equal(all_of(truth[0].copy(), further), truth.all(axis=0))  # type: ignore[arg-type]
    assert asked == [int(truth[:n].all(axis=0).sum()) for n in (1, 2, 3)]


def test_gaps_are_what_follows_something_unused() -> None:
    used = np.array(
        [
            [[1, 1], [1, 0]],
            [[1, 0], [0, 0]],
            [[0, 0], [0, 0]],
            [[0, 1], [0, 0]],
            [[0, 0], [1, 0]],
            [[1, 0], [0, 1]],
        ],
        dtype=np.bool_,
    )
    assert gaps(used).tolist() == [False, False, False, True, True, True]
