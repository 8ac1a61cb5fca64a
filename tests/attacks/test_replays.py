"""Events that no publisher sent: what passes a router, and what a guarded broker drops."""

from __future__ import annotations

import pytest

from ccbps.attacks import replay
from ccbps.attacks.network.replays import PARTIES, RELATION, TOPIC, guarded_edge, stamped
from ccbps.keys import SigningKey
from ccbps.overlay import GuardedMessage, Publication


def test_numbers_alone_make_a_router_drop_what_is_true_and_signatures_help() -> None:
    outcome = replay(copies=3, events=20)
    false, by_numbers, true, true_by_numbers = outcome.figures
    assert (false.undefended, false.defended, false.expected) == (9, 0, 9)
    assert by_numbers.undefended == 6
    assert (true.undefended, true.defended) == (1, 1)
    assert true_by_numbers.undefended == 1 / 20
    lines = outcome.curve.lines
    assert lines["with numbers alone"] == lines["with signatures at borders"] == (0, 2, 4, 6)
    assert lines["with signatures at every hop"] == (0, 0, 0, 0)


@pytest.mark.parametrize(("signer", "taken"), [("feed", 1), ("adversary", 0)])
def test_a_guarded_edge_delivers_what_the_publisher_signed_once(signer: str, taken: int) -> None:
    keys = {name: SigningKey.generate() for name in PARTIES}
    delivered: list[str] = []
    edge, seal = guarded_edge(keys, lambda client, _: delivered.append(client), "every hop")
    content = RELATION.event_bytes({"price": 3})
    sealed = seal(*stamped(keys[signer], "feed", "event", 7, content))
    for _ in range(3):
        edge.receive("adversary", GuardedMessage(TOPIC, Publication("feed", 7, sealed)))
    assert delivered == ["client"] * taken
    assert edge.dropped == ({} if taken else {"in label": 3})
