"""Messages that no honest party sent: what brokers and clients do with them."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps.attacks import malformed_messages
from ccbps.attacks.network.messages import SCHEMA, Pair, altered
from ccbps.errors import DecodeError
from ccbps.matching import FormulaMatch, TagMatch


def test_altered_messages_raise_nothing_but_decode_errors() -> None:
    outcome = malformed_messages(alterations=80, batches=60, batch=20, seed=2)
    assert outcome["errors other than DecodeError"].undefended == 0
    assert outcome["refused: altered on the way"].undefended == 1
    # No broker of these can tell a true message from one that a client makes of other values.
    for kind in (
        "altered by a client",
        "altered, of one-time matchers",
        "altered filters of a router, by a client",
    ):
        assert 0.3 < outcome[f"refused: {kind}"].undefended < 0.9
    answered = outcome["true messages of a batch that are answered"]
    assert answered.expected == pytest.approx(0.95**19)
    # Of 60 batches, of which each is answered whole or not at all.
    assert answered.undefended == pytest.approx(0.95**19, abs=0.25)
    assert answered.defended == 1


def test_a_fault_of_a_broker_would_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IndexError

    monkeypatch.setattr(Pair, "read", fail)
    outcome = malformed_messages(alterations=2, batches=1)
    assert outcome["errors other than DecodeError"].undefended == 24


@pytest.mark.parametrize("length", [1, 2, 50])
def test_an_alteration_changes_the_message(length: int) -> None:
    random = np.random.default_rng(3)
    message = np.frombuffer(random.bytes(length), dtype=np.uint8)
    many = [altered(message, random).tobytes() for _ in range(200)]
    assert message.tobytes() not in many
    assert len({len(one) for one in many}) > 2 and len(set(many)) > 50


def test_a_pair_matches_and_a_client_can_sign() -> None:
    random = np.random.default_rng(4)
    pair = Pair.of(TagMatch(SCHEMA), random.bytes)
    changed = pair.messages["event"][0].copy()
    assert pair.read("event", changed).all()
    changed[-20] ^= 1
    with pytest.raises(DecodeError):
        pair.read("event", changed)
    pair.read("event", pair.signed("event", changed))
    assert Pair.of(FormulaMatch.box(SCHEMA), random.bytes).macs == {}
