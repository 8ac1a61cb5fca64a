"""Three brokers over TLS: they match together, or part with an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from sympy import ZZ
from sympy.polys.matrices import DomainMatrix

from ccbps.arrays import Bytes
from ccbps.ciphers.row_mac import LIMB, PRIME, RowMac
from ccbps.errors import NetworkError, PeerError, RandomnessReuseError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.network import Channel
from ccbps.predicates import Schema, UInt
from ccbps.shares.replicated import Evaluation, Masks, lanes, unpacked, whole_vectors
from ccbps.shares.ring import Ring
from tests.support.three_brokers import together

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
FORM = FormulaDigits(SCHEMA, {"price": 4, "volume": 2}, box_form(SCHEMA))
EVALUATION = Evaluation(FORM.program, FORM.digit_bits, FORM.tables, FORM.table_rows)
CONTEXT = sha256(b"parameters").digest()
SAME = sha256(b"the same events and interests").digest()
RNG = np.random.default_rng(4)
EVENTS = SCHEMA.encode({"price": RNG.integers(0, 256, 20), "volume": RNG.integers(0, 64, 20)})
PREDICATES = [
    SCHEMA.parse(f"price BETWEEN {low} AND {low + 100} AND volume > {low // 5}")
    for low in range(150)
]
EXPECTED = np.stack([predicate.evaluate(EVENTS) for predicate in PREDICATES], axis=1)


def shares_of(bits: np.ndarray) -> list[np.ndarray]:
    first, second = RNG.integers(0, 2, (2, *bits.shape), dtype=np.uint8)
    return [first, second, bits ^ first ^ second]


ROWS = FORM.interest_rows([box_form(SCHEMA, predicate.box()) for predicate in PREDICATES])
INTEREST_SHARES = [lanes(share) for share in shares_of(ROWS)]
EVENT_SHARES = [
    whole_vectors(share, FORM.digit_bits, number == 0)
    for number, share in enumerate(shares_of(FORM.event_rows(EVENTS)))
]


def begin(party: int) -> Callable[[Masks], Any]:
    other = (party + 1) % 3
    events = EVENT_SHARES[party], EVENT_SHARES[other]
    interests = INTEREST_SHARES[party], INTEREST_SHARES[other]
    return lambda masks: EVALUATION.steps(events, interests, masks)


def test_three_brokers_match_over_tls() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        with Ring(party, lower, upper, CONTEXT) as ring:
            answers = [ring.evaluate(unit, SAME, begin(party))[0] for unit in (0, 1, 7)]
        with pytest.raises(NetworkError):
            ring.evaluate(8, SAME, begin(party))
        return answers, ring.sent_bytes

    for answers, sent in together(act):
        for words in answers:
            assert np.array_equal(unpacked(words, len(PREDICATES)), EXPECTED)
        # A bit for each gate, and one that opens the answer.
        lanes_sent = 64 * -(-len(PREDICATES) // 64) * len(EVENTS)
        assert sent == 3 * lanes_sent * (FORM.program.gates + 1) // 8


@pytest.mark.parametrize("difference", ["unit", "digest"])
def test_brokers_at_other_positions_part(difference: str) -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        unit = 1 if difference == "unit" and party == 1 else 0
        digest = sha256(b"other").digest() if difference == "digest" and party == 2 else SAME
        with Ring(party, lower, upper, CONTEXT) as ring:
            return ring.evaluate(unit, digest, begin(party))

    errors = together(act)
    assert all(isinstance(error, NetworkError) for error in errors)
    assert sum("stands at unit" in str(error) for error in errors) >= 1


@pytest.mark.parametrize("field", ["context", "worker", "attempt", "party"])
def test_brokers_that_do_not_fit_part(field: str) -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        other = party == 1
        with Ring(
            (party + other * (field == "party")) % 3,
            lower,
            upper,
            bytes(32) if other and field == "context" else CONTEXT,
            worker=int(other and field == "worker"),
            attempt=int(other and field == "attempt"),
        ) as ring:
            return ring.evaluate(0, SAME, begin(party))

    errors = together(act)
    assert all(isinstance(error, NetworkError) for error in errors)
    assert any(isinstance(error, PeerError) for error in errors)


def test_a_unit_is_not_evaluated_twice() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        with Ring(party, lower, upper, CONTEXT) as ring:
            ring.evaluate(3, SAME, begin(party))
            return ring.evaluate(3, SAME, begin(party))

    assert any(isinstance(error, RandomnessReuseError) for error in together(act))


def test_a_broker_that_goes_away_ends_the_others() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        with Ring(party, lower, upper, CONTEXT) as ring:
            if party == 0:
                return "gone"
            return ring.evaluate(0, SAME, begin(party))

    results = together(act)
    assert results[0] == "gone"
    assert all(isinstance(error, NetworkError) for error in results[1:])


# -- clients may cheat --------------------------------------------------------------------------


def test_shares_that_differ_are_found_by_all_three() -> None:
    shares = RNG.integers(0, 256, (3, 50, 9), dtype=np.uint8)
    faults = {0: [3, 17], 1: [40], 2: [17, 49]}

    def act(party: int, lower: Channel, upper: Channel) -> Any:
        first, second = shares[party].copy(), shares[(party + 1) % 3].copy()
        first[faults[party], 4] ^= 8
        with Ring(party, lower, upper, CONTEXT) as ring:
            clean = ring.differing(shares[party], shares[(party + 1) % 3])
            return clean, ring.differing(first, second)

    for clean, found in together(act):
        assert not clean.any()
        assert np.flatnonzero(found).tolist() == [3, 17, 40, 49]


def test_coins_are_common_and_new() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        with Ring(party, lower, upper, CONTEXT) as ring:
            return [ring.coin() for _ in range(3)]

    coins = together(act)
    assert coins[0] == coins[1] == coins[2]
    assert len({*coins[0]}) == 3 and {len(coin) for coin in coins[0]} == {32}


def test_other_numbers_of_rows_end_the_connection() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        rows = np.zeros((4 + party, 3), dtype=np.uint8)
        with Ring(party, lower, upper, CONTEXT) as ring:
            return ring.differing(rows, rows)

    assert all(isinstance(error, NetworkError) for error in together(act))


def with_the_same_tag(mac: RowMac, row: Bytes, first: int, count: int) -> Bytes:
    """Change some numbers of 16 bits of a row so that its tag stays, as who has the key can."""
    limbs, _ = mac._of_width(len(row))
    keys = [sum(int(limb) << LIMB * at for at, limb in enumerate(part)) for part in limbs]
    lead, *others = keys[first : first + count]
    basis = [[PRIME, *[0] * (count - 1)]]
    for at, key in enumerate(others):
        basis.append(
            [-key * pow(lead, -1, PRIME) % PRIME, *[int(at == n) for n in range(count - 1)]]
        )
    short = DomainMatrix(basis, (count, count), ZZ).lll().to_list()[0]
    numbers = row.view("<u2").astype(np.int64)
    numbers[first : first + count] += np.array(short, dtype=np.int64)
    return numbers.astype("<u2").view(np.uint8)


def test_a_client_that_watches_a_broker_cannot_make_rows_that_differ_look_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows the keys of tags that the broker has when the client hands in its rows."""
    seen, ready = threading.local(), threading.Barrier(3)
    row = np.full(100, 0x77, dtype=np.uint8)
    rows = [np.tile(row, (3, 1)) for _ in range(3)]
    bent = rows[2].copy()

    class Seen(RowMac):
        def __init__(self, key: bytes) -> None:
            super().__init__(key)
            seen.last = self

    monkeypatch.setattr("ccbps.shares.ring.RowMac", Seen)

    def act(party: int, lower: Channel, upper: Channel) -> Any:
        first, second = rows[party], rows[(party + 1) % 3]
        with Ring(party, lower, upper, CONTEXT) as ring:
            assert not ring.differing(first, second).any()
            if party == 1:  # its last one is the one that it shares with broker 2
                bent[1] = with_the_same_tag(seen.last, row, 30, 14)
                assert (seen.last.tags(bent) == seen.last.tags(rows[2])).all()
                assert (bent[1] != row).any()
            ready.wait()
            return ring.differing(bent if party == 2 else first, second).tolist()

    assert together(act) == [[False, True, False]] * 3
