"""Three brokers in one process serve clients, honest ones and others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps.errors import DecodeError, NetworkError, PeerError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import (
    HEAD_BYTES,
    BrokerKey,
    Client,
    opened,
    part_of,
    sealed_bytes,
    sealed_part,
)
from ccbps.shares.event_check import EventCheck
from ccbps.shares.one_hot import _vectors, _weighted
from ccbps.shares.party import Party
from ccbps.shares.replicated import Evaluation, lanes, unpacked, whole_vectors
from ccbps.shares.ring import Ring, in_bytes, local_links
from tests.support.three_brokers import Three, run_together, share

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
FORM = FormulaDigits(SCHEMA, {"price": 4, "volume": 3}, box_form(SCHEMA))
CONTEXT = bytes(32)
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]
RNG = np.random.default_rng(6)


def client() -> Client:
    return Client(PUBLIC, CONTEXT)


def events(count: int) -> Any:
    values = {"price": RNG.integers(0, 256, count), "volume": RNG.integers(0, 64, count)}
    return SCHEMA.encode(values)


def predicates(count: int) -> list[Any]:
    return [SCHEMA.parse(f"price > {n} AND volume < {60 - n % 40}") for n in range(count)]


def interests(one: Client, chosen: list[Any]) -> Three:
    return share(one, "interest", FORM.interest_rows([box_form(SCHEMA, p.box()) for p in chosen]))


def brokers(act: Callable[[Party, int], Any]) -> list[Any]:
    """Run a function for each broker in a thread, and return results or errors."""
    results: list[Any] = [None] * 3

    def run(number: int, lower: Any, upper: Any) -> None:
        try:
            with Ring(number, lower, upper, CONTEXT) as ring:
                results[number] = act(Party(number, FORM, KEYS[number], ring, CONTEXT, 64), number)
        except Exception as error:
            results[number] = error
            lower.close()
            upper.close()

    links = enumerate(local_links())
    threads = [threading.Thread(target=run, args=(number, *pair)) for number, pair in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_clients_are_served() -> None:
    ann, bob, eve = client(), client(), client()
    wanted = predicates(70), predicates(9)
    news = events(20), events(3)
    messages = interests(bob, wanted[0]), interests(eve, wanted[1])
    sent = [share(ann, "event", FORM.event_rows(some)) for some in news]
    # Events of two publishers in one batch.
    more = share(bob, "event", FORM.event_rows(news[1]))
    both = [np.concatenate([a, b]) for a, b in zip(sent[1], more, strict=True)]

    def act(party: Party, number: int) -> Any:
        for one in (ann, bob, eve):
            party.greet(one.hellos[number])
        assert party.subscribe(messages[0][number]).tolist() == list(range(70))
        first, refused = party.publish(sent[0][number])
        assert not refused.any()
        assert party.subscribe(messages[1][number]).tolist() == list(range(70, 79))
        party.table.remove(np.array([5]))
        return first, party.publish(both[number])[0]

    def meaning(chosen: list[Any], some: Any) -> Any:
        return np.stack([predicate.evaluate(some) for predicate in chosen], axis=1)

    second = np.concatenate([meaning(wanted[0] + wanted[1], news[1])] * 2)
    second[:, 5] = False
    for answers in brokers(act):
        assert not isinstance(answers, Exception), answers
        assert np.array_equal(answers[0], meaning(wanted[0], news[0]))
        assert np.array_equal(answers[1], second)


@pytest.mark.parametrize("kind", ["event", "interest"])
def test_only_the_messages_of_cheats_are_refused(kind: str) -> None:
    """Broker 2 gets another x_2 than broker 1, or vectors have several ones."""
    ann, some, chosen = client(), events(12), predicates(12)
    bits = FORM.event_rows(some)
    if kind == "event":
        row = bits[7, : (1 << FORM.digit_bits[0]) - 1]
        row[np.flatnonzero(row == 0)[:2]] = 1
    sent, wanted = share(ann, "event", bits), interests(ann, chosen)
    altered = sent if kind == "event" else wanted
    altered[2][3, HEAD_BYTES] ^= 1
    refused = [3, 7] if kind == "event" else []

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        lanes = party.subscribe(wanted[number])
        return lanes.tolist(), *party.publish(sent[number])

    expected = np.stack([predicate.evaluate(some) for predicate in chosen], axis=1)
    expected[refused] = False
    places = list(range(12)) if kind == "event" else [0, 1, 2, -1, *range(3, 11)]
    if kind == "interest":
        expected = np.delete(expected, 3, axis=1)
    for taken, answers, bad in brokers(act):
        assert taken == places
        assert np.flatnonzero(bad).tolist() == refused
        assert np.array_equal(answers, expected)


def test_equal_events_of_a_cheat_do_not_hide_each_other() -> None:
    ann, bits = client(), FORM.event_rows(events(4))
    row = bits[1, : (1 << FORM.digit_bits[0]) - 1]
    row[np.flatnonzero(row == 0)[:2]] = 1
    bits[2] = bits[1]
    sent, wanted = share(ann, "event", bits), interests(ann, predicates(3))

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        party.subscribe(wanted[number])
        return party.publish(sent[number])[1].tolist()

    assert brokers(act) == [[False, True, True, False]] * 3


def test_a_cheat_would_read_another_interest() -> None:
    """Without the comparison, a difference in x_2 turns the answer by y_2 + y_0."""
    schema = Schema(x=UInt(1))
    form = FormulaDigits(schema, {"x": 1}, box_form(schema))
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    flips: list[Any] = []

    def no_masks(shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, dtype=np.uint64)

    for high in (0, 1):
        interest = form.fill(0, [0] * 64, [high] * 64, np.zeros(64, dtype=np.bool_))
        shares = RNG.integers(0, 2, (2, 64, 2), dtype=np.uint8)
        three = [lanes(part) for part in (*shares, shares[0] ^ shares[1] ^ interest)]
        event = form.event_rows(schema.encode({"x": [0]}))
        answers = []
        for change in (0, 1):
            seconds = [event, np.zeros_like(event), np.zeros_like(event)]
            whole = [whole_vectors(s, form.digit_bits, i == 0) for i, s in enumerate(seconds)]
            held = [(whole[i], whole[(i + 1) % 3]) for i in range(3)]
            # Broker 2 alone has another x_2.
            held[2] = (held[2][0] ^ np.uint8(change), held[2][1])
            pairs = [(three[i], three[(i + 1) % 3]) for i in range(3)]
            steps = [evaluation.steps(*sides, no_masks) for sides in zip(held, pairs, strict=True)]
            answers.append(unpacked(run_together(steps)[0][0], 64)[0])
        turned = answers[0] ^ answers[1]
        y = [unpacked(part, 64) for part in three]
        assert np.array_equal(turned, (y[2] ^ y[0]).sum(axis=0) % 2 == 1)
        flips.append(turned)
    assert all(0 < turned.sum() < 64 for turned in flips)


def test_strangers_and_repeated_hellos_are_refused() -> None:
    ann, stranger = client(), client()
    sent = share(stranger, "event", FORM.event_rows(events(2)))

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        with pytest.raises(DecodeError, match="known already"):
            party.greet(ann.hellos[number])
        with pytest.raises(DecodeError, match="not known: send its hello"):
            party.publish(sent[number])
        with pytest.raises(DecodeError, match="at least 52 bytes"):
            party.subscribe(sent[number][:, :20])
        return "refused"

    assert brokers(act) == ["refused"] * 3


def test_brokers_with_other_messages_part() -> None:
    ann = client()
    batches = [share(ann, "event", FORM.event_rows(events(2))) for _ in range(2)]

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        party.subscribe(interests(ann, [])[number])
        # Other heads are other rows to the two that compare them.
        return party.publish(batches[number == 1][number])

    results = brokers(act)
    parted = [isinstance(result, (NetworkError, PeerError)) for result in results]
    assert all(parted) or all(result[1].all() for result in results)


def test_sealed_messages_are_read_by_their_broker_alone() -> None:
    ann, predicate = client(), SCHEMA.parse("price > 9")
    clear = interests(ann, [predicate])[1]
    sealed = ann.seal("interest", clear)
    assert sealed.shape == (1, sealed_bytes(clear.shape[1]))
    body = clear[0, HEAD_BYTES:].tobytes()
    assert body not in sealed.tobytes()
    for number in range(3):
        keys = KEYS[number].open(number, ann.hellos[number], CONTEXT)
        part = sealed_part(number, sealed)
        message, good = opened(number, keys, "interest", part)
        assert good.all() and np.array_equal(message, part_of(number, clear))
        if number:
            bent = part.copy()
            bent[0, RNG.integers(bent.shape[1])] ^= 4
            # A head of another client is refused before.
            assert not opened(number, keys, "interest", bent)[1].any()
            other = sealed_part(3 - number, sealed)
            assert not opened(number, keys, "interest", other)[1].any()


def test_a_sealed_message_that_broker_0_alters_is_refused_alone() -> None:
    ann, chosen, count = client(), predicates(5), 6
    news = events(count)
    sealed = [
        ann.seal("interest", interests(ann, chosen)[1]),
        ann.seal("event", share(ann, "event", FORM.event_rows(news))[1]),
    ]
    parts = [[sealed_part(number, some).copy() for number in range(3)] for some in sealed]
    parts[0][1][2, -1] ^= 1  # for broker 1 alone
    for number in (1, 2):  # for both
        parts[1][number][4, HEAD_BYTES] ^= 1

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        table = party.new_table()
        given = np.array([7, 3, 64, 130, 0])
        lanes = party.subscribe(parts[0][number], table=table, chosen=given, sealed=True)
        return lanes, party.publish(parts[1][number], tables=[table], sealed=True)

    for lanes_, (answers, refused) in brokers(act):
        assert lanes_.tolist() == [7, 3, -1, 130, 0]
        assert refused.tolist() == [False] * 4 + [True, False]
        expected = np.zeros((count, 131), dtype=np.bool_)
        for row in (0, 1, 3, 4):
            expected[:, lanes_[row]] = chosen[row].evaluate(news)
        expected[4] = False
        assert np.array_equal(answers, expected)


@pytest.mark.parametrize("altered", [(2,), (1, 2)])
def test_sums_of_an_event_that_broker_0_alters_do_not_show_it(
    altered: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shares are no longer one-hot, and sums of 64 bits would tell one value from others."""
    ann, news, size = client(), events(4), 1 << FORM.digit_bits[0]
    bits = FORM.event_rows(news)
    sealed = ann.seal("event", share(ann, "event", bits)[1])
    parts = [sealed_part(number, sealed).copy() for number in range(3)]
    for number in altered:
        parts[number][:, HEAD_BYTES] ^= 1
    change = np.zeros(size, dtype=np.uint8)
    change[[0, -1]] = 1  # the last bit is the sum of the others
    seen: dict[str, Any] = {}

    def recorded(steps: Any) -> Any:
        done = yield from in_bytes(steps)
        seen["sums"] = done[0]
        return done

    class Check(EventCheck):
        def begin(self, masks: Any) -> Any:
            yield from super().begin(masks)
            seen["coin"] = self.coin

    monkeypatch.setattr("ccbps.shares.event_check.in_bytes", recorded)
    monkeypatch.setattr("ccbps.shares.party.EventCheck", Check)

    def act(party: Party, number: int) -> Any:
        party.greet(ann.hellos[number])
        if number == 0:
            own = party.shares("event", parts[0])[1]
            seen["x_1"] = whole_vectors(own, FORM.digit_bits, False)[:, :size]
        return party.publish(parts[number], sealed=True)[1].tolist()

    assert brokers(act) == [[True] * 4] * 3
    r, s = _vectors(seen["coin"], [1 << width for width in FORM.digit_bits])[0]
    for row, sums in enumerate(seen["sums"]):
        guesses = np.eye(size, dtype=np.uint8) ^ change
        expected = _weighted(guesses, r) & _weighted(guesses, s) ^ _weighted(guesses, r & s)
        if len(altered) == 1:
            first = seen["x_1"][row : row + 1]
            expected ^= _weighted(first, r) & _weighted(change[None], s)
            expected ^= _weighted(change[None], r) & _weighted(first, s)
        assert sums not in expected
