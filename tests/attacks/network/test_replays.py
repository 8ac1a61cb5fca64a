"""Replays: what passes routers, and what guarded brokers drop."""

from __future__ import annotations

from ccbps.attacks import replay


def test_numbers_alone_make_a_router_drop_what_is_true_and_signatures_help() -> None:
    outcome = replay(copies=3, events=8)
    false, by_numbers, true, true_by_numbers = outcome.figures
    assert (false.undefended, false.defended, false.expected) == (6, 0, 6)
    assert by_numbers.undefended == 3
    assert (true.undefended, true.defended) == (1, 1)
    assert true_by_numbers.undefended == 1 / 8
    lines = outcome.curve.lines
    assert lines["without defence"] == (0, 2, 4, 6)
    assert lines["with numbers alone"] == (0, 1, 2, 3)
    assert lines["with numbers, and signatures at borders"] == (0, 1, 2, 3)
    assert lines["with numbers, and signatures at every hop"] == (0, 0, 0, 0)


def test_without_copies_all_is_as_it_should_be() -> None:
    true, by_numbers = replay(copies=0, events=4).figures[2:]
    assert (true.undefended, true.defended, by_numbers.undefended) == (1, 1, 1)
