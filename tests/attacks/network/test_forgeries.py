"""Forged events: routers believe all, guarded brokers none, and those of one domain some."""

from __future__ import annotations

from typing import Any

import pytest

from ccbps.attacks import forged_events
from ccbps.attacks.network.forgeries import MADE_UP, GuardedLine, PlainLine, delivered_forgeries


def test_figures() -> None:
    outcome = forged_events(most=3)
    for name, undefended, defended in [
        ("forgeries delivered", 1, 0),
        ("forgeries delivered, the own domain believed", 1, 4 / 14),
        ("genuine event kept out", 1, 0),
    ]:
        assert (outcome[name].undefended, outcome[name].defended) == (undefended, defended)
    assert outcome.curve.lines == {
        "without defence": pytest.approx((1, 1 / 2, 1 / 3, 1 / 4)),
        "with signatures at borders": pytest.approx((1, 1 / 2, 1 / 3, 1 / 4)),
        "with signatures at every hop": (1, 1, 1, 1),
    }


@pytest.mark.parametrize("line", [PlainLine, lambda: GuardedLine("every hop")])
def test_the_genuine_event_is_delivered_once(line: Any) -> None:
    """Else nothing would be delivered, and no forgery either."""
    brokers = line()
    event = brokers.event(1)
    assert [brokers.send(event), brokers.send(event), brokers.delivered] == [True, False, 1]


def test_which_forgeries_a_domain_believes() -> None:
    line = GuardedLine("border")
    sent = {name: line.send(one) for name, one in line.forgeries(line.event(1), 2).items()}
    assert [name for name, arrives in sent.items() if arrives] == [
        "declassifies without the right",
        "signs itself",
        "copies the signature, without the label",
        MADE_UP,
    ]
    assert delivered_forgeries(GuardedLine("every hop")) == 0
