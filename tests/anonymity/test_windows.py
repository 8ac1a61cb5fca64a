"""Windows of a stream: nobody waits too long, and no class is too small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.anonymity import Anonymizer, Distinct, Window
from ccbps.errors import ParameterError

SCHEMA = Schema(age=UInt(6), ill=UInt(2))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.lists(st.tuples(st.integers(0, 63), st.integers(0, 3)), max_size=5),
        ),
        max_size=12,
    ),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from(["suppress", "hide", "diverse"]),
)
def test_records_leave_in_time_in_classes_that_are_enough(
    steps: list[tuple[int, list[tuple[int, int]]]], k: int, delay: int, few: str
) -> None:
    rule = Distinct(2) if few == "diverse" else None
    anonymizer = Anonymizer(SCHEMA, k, sensitive=["ill"], diversity=rule)
    window = Window(anonymizer, delay, few="hide" if few == "hide" else "suppress")
    ages, ills, came, waiting, now = [], [], [], set(), 0
    for step in [*steps, None]:
        if step is None:
            release = window.close()
        else:
            now += step[0]
            rows = step[1]
            waiting |= set(range(len(ages), len(ages) + len(rows)))
            ages += [age for age, _ in rows]
            ills += [ill for _, ill in rows]
            came += [now] * len(rows)
            release = window.push({"age": [a for a, _ in rows], "ill": [i for _, i in rows]}, now)
        due = {row for row in waiting if step is None or came[row] + delay <= now}
        enough = len(waiting) >= k and (rule is None or len({ills[r] for r in waiting}) >= 2)
        codes = {name: code[0].tolist() for name, code in release.events.codes.items()}
        out = release.rows.tolist()
        assert set(out) <= waiting
        if not due:
            assert release.records == 0
        elif enough:
            assert due <= set(out)
            assert release.records == len(out)
            for number in np.unique(release.classes):
                own = [row for row, c in zip(out, release.classes, strict=True) if c == number]
                assert len(own) >= k
                assert set(own) & due
                assert rule is None or len({ills[row] for row in own}) >= 2
        else:
            assert release.records == len(due)
            assert set(out) == (due if few == "hide" else set())
            assert all(low == 0 for low in codes["age_low"])
            assert all(high == 63 for high in codes["age_high"])
        for at, row in enumerate(out):
            assert codes["age_low"][at] <= ages[row] <= codes["age_high"][at]
            assert codes["ill"][at] == ills[row]
        waiting -= set(out) | due
        assert len(window) == len(waiting)
        assert window.deadline == min((came[row] for row in waiting), default=np.inf) + delay
    assert not waiting


def test_waiting_makes_ranges_narrower() -> None:
    rng = np.random.default_rng(1)
    schema, losses = Schema(x=UInt(16)), []
    for delay in (0, 4, 16):
        window, lost, seen = Window(Anonymizer(schema, 5), delay), 0.0, 0
        for now in range(64):
            release = window.push({"x": rng.integers(0, 1 << 16, 10)}, now)
            lost += release.report.loss * release.events.count
            seen += release.events.count
        losses.append(lost / seen)
    assert losses[0] > 2 * losses[1] > 2 * losses[2]


def test_what_is_refused() -> None:
    anonymizer = Anonymizer(SCHEMA, 2, sensitive=["ill"], diversity=Distinct(2))
    with pytest.raises(ParameterError, match="no rule allows"):
        Window(anonymizer, 1, few="hide")
    with pytest.raises(ParameterError, match="delay must be"):
        Window(anonymizer, -1)
    window = Window(anonymizer, 1)
    window.push([], 5)
    with pytest.raises(ParameterError, match="must not go back"):
        window.push([], 4)
