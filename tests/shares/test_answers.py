"""Answers for subscribers only: they open, nobody else learns them, alterations are faults."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from ccbps.arrays import Bytes, Words
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.forms.digits import BoxDigits
from ccbps.predicates import Schema, UInt
from ccbps.shares.answers import SealedAnswers, add_pads, attempt_names, commitments, opened_answers
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, Client
from ccbps.shares.party import Party
from ccbps.shares.replicated import Evaluation, lanes, unpacked, whole_vectors
from ccbps.shares.ring import Ring
from tests.reference import three_brokers
from tests.support.three_brokers import Three, recorded, run_together, share, together

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
ONE = dict.fromkeys(SCHEMA, 1)
FORM = BoxDigits(SCHEMA, {"price": 4, "volume": 3}, ONE)
CONTEXT = bytes(range(32))
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]
RNG = np.random.default_rng(8)


def client() -> Client:
    return Client(PUBLIC, CONTEXT)


def drawn(count: int) -> Any:
    values = {"price": RNG.integers(0, 256, count), "volume": RNG.integers(0, 64, count)}
    return SCHEMA.encode(values)


def published(one: Client, events: Any, bits: Bytes | None = None) -> Three:
    """Return messages of events with their payload keys."""
    heads = one.heads("event", len(events))
    plain = FORM.event_rows(events) if bits is None else bits
    keys = np.unpackbits(one.payload_keys(heads), axis=1, bitorder="little")
    return share(one, "event", np.concatenate([plain, keys], axis=1), heads)


def subscribed(one: Client, texts: list[str]) -> Three:
    rows = FORM.interest_rows([SCHEMA.parse(text).sets(FORM.intervals) for text in texts])
    return share(one, "interest", rows)


def brokers(act: Callable[[Party], Any]) -> list[Any]:
    def serve(number: int, lower: Any, upper: Any) -> Any:
        with Ring(number, lower, upper, CONTEXT) as ring:
            return act(Party(number, FORM, KEYS[number], ring, CONTEXT, 64, for_subscribers=True))

    results = together(serve)
    assert not any(isinstance(result, Exception) for result in results), results
    return results


def columns(answers: list[SealedAnswers], at: Any) -> list[SealedAnswers]:
    return [SealedAnswers(part.attempts, part.shares[:, at]) for part in answers]


def meaning(texts: list[str], events: Any) -> Any:
    return np.stack([SCHEMA.parse(text).evaluate(events) for text in texts], axis=1)


TEXTS = [f"price BETWEEN {low} AND {low + 70} AND volume <> {low % 64}" for low in range(0, 180, 2)]


def test_subscribers_open_their_answers_and_no_others() -> None:
    ann, bob, eve = client(), client(), client()
    texts = TEXTS[:80], ["price < 100", "volume >= 30", "price = 1 OR price <> 1"]
    events = drawn(20)
    sent = published(ann, events)
    wanted = subscribed(bob, texts[0]), subscribed(eve, texts[1])
    sizes: list[int] = []

    def act(party: Party) -> Any:
        number = party._number
        for one in (ann, bob, eve):
            party.greet(one.hellos[number])
        for messages in wanted:
            party.subscribe(messages[number])
        party.table.remove(np.array([5, 6]))
        before = party._joined.sent_bytes
        answers, refused = party.publish_for_subscribers(sent[number])
        sizes.append(party._joined.sent_bytes - before)
        assert not refused.any()
        with pytest.raises(ParameterError, match="for subscribers only: call publish_for_sub"):
            party.publish(sent[number])
        return answers

    answers = brokers(act)
    # A bit for each gate and lane, in words of 64 lanes. The check of an event: a tag, two words
    # and two bits; twice a part of a coin. No answer is opened, and products with keys go to
    # subscribers only.
    check = 20 * (16 + 2 * 8) + 2 * (3 + 32)
    assert sizes == [20 * FORM.program.gates * 128 // 8 + check] * 3
    assert {part.shares.shape for part in answers} == {(20, 83, 16)}
    promised = commitments(sent[0], ann.payload_keys(sent[0]))
    for one, some, at in ((bob, texts[0], np.arange(80)), (eve, texts[1], np.arange(80, 83))):
        own = wanted[one is eve][0]
        left = ~np.isin(at, [5, 6])
        parts = columns(answers, at[left])
        opened = opened_answers(one.keys, sent[0], own[left], parts, promised)
        expected = meaning(some, events)[:, left]
        assert expected.any() and not expected.all()
        assert np.array_equal(opened.matched, expected)
        keys = ann.payload_keys(sent[0])[:, None] * expected[:, :, None]
        assert np.array_equal(opened.keys, keys)
    for part in answers:
        assert not part.shares[:, [5, 6]].any()
    # Others do not even learn which of them match: everything is a fault.
    with pytest.raises(DecodeError, match=r"event 0: the answers do not fit .* \(and 19 more"):
        opened_answers(eve.keys, sent[0], wanted[1][0], columns(answers, slice(0, 3)), promised)


def test_events_that_are_refused_match_nothing() -> None:
    ann, events = client(), drawn(9)
    bits = FORM.event_rows(events)
    row = bits[4, : (1 << FORM.digit_bits[0]) - 1]
    row[np.flatnonzero(row == 0)[:2]] = 1
    sent, own = published(ann, events, bits), subscribed(ann, TEXTS)

    def act(party: Party) -> Any:
        party.greet(ann.hellos[party._number])
        party.subscribe(own[party._number])
        return party.publish_for_subscribers(sent[party._number])

    results = brokers(act)
    answers = [answer for answer, _ in results]
    assert [np.flatnonzero(refused).tolist() for _, refused in results] == [[4]] * 3
    promised = commitments(sent[0], ann.payload_keys(sent[0]))
    expected = meaning(TEXTS, events)
    assert expected[4].any()
    expected[4] = False
    assert np.array_equal(
        opened_answers(ann.keys, sent[0], own[0], answers, promised).matched, expected
    )


def one_batch() -> tuple[Client, Three, Three, Any, list[list[SealedAnswers]]]:
    """Return two attempts of a batch of events, for one client."""
    ann, events = client(), drawn(6)
    sent, own = published(ann, events), subscribed(ann, TEXTS[:40])

    def act(party: Party) -> Any:
        party.greet(ann.hellos[party._number])
        party.subscribe(own[party._number])
        return [party.publish_for_subscribers(sent[party._number])[0] for _ in range(2)]

    results = brokers(act)
    return ann, sent, own, events, [[parts[n] for parts in results] for n in range(2)]


def test_attempts_are_not_mixed() -> None:
    ann, sent, own, events, (first, second) = one_batch()
    promised = commitments(sent[0], ann.payload_keys(sent[0]))
    for answers in (first, second):
        opened = opened_answers(ann.keys, sent[0], own[0], answers, promised)
        assert np.array_equal(opened.matched, meaning(TEXTS[:40], events))
    mixed = [first[0], second[1], first[2]]
    with pytest.raises(DecodeError, match="event 0: the answers are of different attempts") as no:
        opened_answers(ann.keys, sent[0], own[0], mixed, promised)
    assert no.value.rows == tuple(range(6))
    # Not even by those who give them one name.
    renamed = [first[0], SealedAnswers(first[0].attempts, second[1].shares), first[2]]
    with pytest.raises(DecodeError, match="do not fit its commitment"):
        opened_answers(ann.keys, sent[0], own[0], renamed, promised)
    # Sealed shares of two attempts have nothing in common.
    for a, b in zip(first, second, strict=True):
        differ = np.bitwise_count(a.shares ^ b.shares).mean() / 8
        assert 0.45 < differ < 0.55


def test_a_broker_that_adds_to_its_share_makes_a_fault_not_a_match() -> None:
    ann, sent, own, events, (answers, _) = one_batch()
    expected = meaning(TEXTS[:40], events)
    promised = commitments(sent[0], ann.payload_keys(sent[0]))
    delta = np.arange(1, 17, dtype=np.uint8)
    for matches in (False, True):
        row, place = np.argwhere(expected == matches)[3]
        shares = answers[1].shares.copy()
        shares[row, place] ^= delta
        forged = [answers[0], SealedAnswers(answers[1].attempts, shares), answers[2]]
        # For a match and no match alike, so that the fault says nothing.
        with pytest.raises(DecodeError, match=f"event {row}: the answers do not fit") as no:
            opened_answers(ann.keys, sent[0], own[0], forged, promised)
        assert no.value.rows == (row,)
        # Without commitments, delta would be the key of an event that does not match.
        total = np.zeros_like(shares)
        for party, part in enumerate(forged):
            opened = part.shares.copy()
            held = {ann.keys.client: ann.keys}
            add_pads(party, held, sent[0], own[0], part.attempts, opened)
            total ^= opened
        key = ann.payload_keys(sent[0])[row] * np.uint8(matches) ^ delta
        assert np.array_equal(total[row, place], key)


def test_a_wrong_commitment_is_noticed_only_where_the_event_matches() -> None:
    """So a subscriber that lets its faults be seen shows its answers to the publisher."""
    ann, sent, own, events, (answers, _) = one_batch()
    expected = meaning(TEXTS[:40], events)
    wrong = commitments(sent[0], ann.payload_keys(sent[0])) ^ np.uint8(1)
    for place in range(40):
        parts = columns(answers, [place])
        faults: tuple[int, ...] = ()
        try:
            opened_answers(ann.keys, sent[0], own[0][[place]], parts, wrong)
        except DecodeError as fault:
            faults = fault.rows
        assert faults == tuple(np.flatnonzero(expected[:, place]))


def test_a_head_that_comes_twice_does_not_show_an_answer() -> None:
    """A publisher and a broker that passes answers on: one of two events never matches.

    Were both sealed by the same pads, the sum of all sealed shares of both would be m K.
    """
    ann, bob = client(), client()
    twice = SCHEMA.encode({"price": [255, 9], "volume": [63, 9]})
    first = published(ann, twice)
    body = first[1][:, HEAD_BYTES:]
    masks = ann.mask("event", first[0], body.shape[1])
    masks[:, -1] &= np.uint8((1 << ((FORM.event_bits + 128) % 8 or 8)) - 1)
    sent = np.concatenate([np.repeat(first[0][:1], 2, axis=0), body ^ masks ^ masks[0]], axis=1)
    own = subscribed(bob, ["price < 100"] * 30)

    def act(party: Party) -> Any:
        for one in (ann, bob):
            party.greet(one.hellos[party._number])
        party.subscribe(own[party._number])
        events = sent if party._number else sent[:, :HEAD_BYTES]
        return party.publish_for_subscribers(events)

    results = brokers(act)
    answers = [answer for answer, refused in results if not refused.any()]
    total = np.bitwise_xor.reduce([part.shares for part in answers])
    shown = total[0] ^ total[1]
    assert len(np.unique(shown, axis=0)) == 30
    held = {bob.keys.client: bob.keys}
    for party, part in enumerate(answers):
        add_pads(party, held, sent[:, :HEAD_BYTES], own[0], part.attempts, part.shares)
    total = np.bitwise_xor.reduce([part.shares for part in answers])
    assert total.any(axis=2).tolist() == [[False] * 30, [True] * 30]


def test_pads_differ_wherever_anything_does() -> None:
    ann, bob = client(), client()
    heads = np.concatenate([ann.heads("event", 3), bob.heads("event", 2)])
    own = np.concatenate([ann.heads("interest", 4), bob.heads("interest", 3)])
    held = {one.keys.client: one.keys for one in (ann, bob)}
    pads = []
    for party, coin in product(range(3), (b"a", b"b")):
        shares = np.zeros((5, 7, 16), dtype=np.uint8)
        add_pads(party, held, heads, own, attempt_names(coin, 5), shares)
        pads.append(shares.reshape(-1, 16))
        order = np.array([6, 1, 0, 3, 5, 2, 4])
        mixed = np.zeros_like(shares)
        add_pads(party, held, heads, own[order], attempt_names(coin, 5), mixed)
        assert np.array_equal(mixed, shares[:, order])
    assert len(np.unique(np.concatenate(pads), axis=0)) == 6 * 35
    # Lanes of clients that are not known are zero.
    shares = np.ones((5, 7, 16), dtype=np.uint8)
    add_pads(0, {ann.keys.client: ann.keys}, heads, own, attempt_names(b"a", 5), shares)
    assert not shares[:, 4:].any() and shares[:, :4].any(axis=2).all()


def test_payload_keys_follow_from_heads_and_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    ann = client()
    heads = ann.heads("event", 50)
    keys = ann.payload_keys(heads)
    assert np.array_equal(ann.payload_keys(heads[::-1]), keys[::-1])
    assert len(np.unique(keys, axis=0)) == 50 and keys.any(axis=1).all()
    assert not np.array_equal(client().payload_keys(heads), keys)

    def zeros(ciphers: Any, index: Any, rows: Bytes) -> Bytes:
        return np.zeros((len(rows), 16), dtype=np.uint8)

    monkeypatch.setattr("ccbps.shares.clients.row_tags", zeros)
    assert ann.payload_keys(heads).any(axis=1).all()


def test_answers_must_fit_one_another() -> None:
    ann, sent, own, _, (answers, _) = one_batch()
    promised = commitments(sent[0], ann.payload_keys(sent[0]))
    with pytest.raises(ParameterError, match="answers of three brokers are needed, got 2"):
        opened_answers(ann.keys, sent[0], own[0], answers[:2], promised)
    with pytest.raises(ShapeError, match="answers of broker 0 must be a uint8 array"):
        opened_answers(ann.keys, sent[0], own[0][:5], answers, promised)
    with pytest.raises(ShapeError, match="commitments must be"):
        opened_answers(ann.keys, sent[0], own[0], answers, promised[:, :16])


# -- views ------------------------------------------------------------------------------------

SMALL = BoxDigits(Schema(x=UInt(1)), {"x": 1}, {"x": 1})
SETS = {(): 0, ((0, 0),): 1, ((1, 1),): 2, ((0, 1),): 3}


def three(plain: Bytes, random: Bytes) -> list[Bytes]:
    return [random[:, :1], random[:, 1:2], random[:, :1] ^ random[:, 1:2] ^ plain]


def views(x: int, key: int, interest: Any, *, masked: bool) -> tuple[list[Any], Words]:
    """Count the views of each broker over all randomness, alone and with the subscriber.

    Rows stand for the random shares of an event and its key of one bit, and lanes for those of the
    interest and the masks of both steps.
    """
    ours = np.array(list(product((0, 1), repeat=4)), dtype=np.uint8)
    theirs = np.array(list(product((0, 1), repeat=10)), dtype=np.uint8)
    plain = SMALL.event_rows(SMALL.schema.encode({"x": [x]}))
    events = [
        whole_vectors(part, SMALL.digit_bits, i == 0)
        for i, part in enumerate(three(plain, ours[:, :2]))
    ]
    keys = three(np.array([[key]], dtype=np.uint8), ours[:, 2:])
    wide = [np.concatenate([k, np.zeros((16, 7), np.uint8)], axis=1) for k in keys]
    rows = SMALL.interest_rows([{"x": interest}])
    parts = theirs[:, :2], theirs[:, 2:4]
    bits = [*parts, parts[0] ^ parts[1] ^ rows]
    interests = [lanes(part) for part in bits]
    gate = [lanes(theirs[:, [4 + i]])[None] for i in range(3)]
    last = [theirs[:, 7 + i].astype(np.uint64)[None, :, None] * masked for i in range(3)]
    evaluation = Evaluation(SMALL.program, SMALL.digit_bits, SMALL.tables, SMALL.table_rows)

    def broker(i: int) -> Any:
        j, kinds = (i + 1) % 3, [gate, last]

        def masks(shape: tuple[int, ...]) -> Words:
            some = kinds.pop(0)
            return np.broadcast_to(some[i] ^ some[j], shape)

        pairs = (events[i], events[j]), (interests[i], interests[j])
        return evaluation.steps(*pairs, masks, keys=(wide[i], wide[j]))

    done, seen = recorded([broker(i) for i in range(3)])
    z = [part[0][:, :, 0].astype(np.uint8) for part in done]
    shape = z[0].shape
    out = []
    for i in range(3):
        assert len(seen[i]) == 1, "a message for each layer, and no opening"
        chosen = [i, (i + 1) % 3]
        own = [unpacked(seen[i][0][0], 1024).view(np.uint8)]
        own += [column for k in chosen for column in (events[k][:, [0]], keys[k])]
        own += [column for k in chosen for column in (*bits[k].T, theirs[:, 4 + k])]
        own += [theirs[:, 7 + k] * np.uint8(masked) for k in chosen]
        out.append([np.broadcast_to(column, shape).reshape(-1) for column in own])
    return out, np.array([part.reshape(-1) for part in z])


def counted(columns: Any) -> bytes:
    codes = np.stack(columns).astype(np.int64).T @ (1 << np.arange(len(columns)))
    return b"".join(part.tobytes() for part in np.unique(codes, return_counts=True))


@pytest.mark.parametrize("masked", [True, False])
def test_views_do_not_depend_on_answers(masked: bool) -> None:
    alone: list[set[bytes]] = [set(), set(), set()]
    with_subscriber: dict[int, list[set[bytes]]] = {n: [set(), set(), set()] for n in (0, 1)}
    for x, key, interest in product((0, 1), (0, 1), SETS):
        product_ = (SETS[interest] >> x & 1) * key
        brokers_, z = views(x, key, interest, masked=masked)
        assert (np.bitwise_xor.reduce(z) == product_).all()
        for i in range(3):
            alone[i].add(counted(brokers_[i]))
            with_subscriber[product_][i].add(counted([*brokers_[i], *z]))
    # A broker sees the same whatever the inputs; with the subscriber, it learns m K only.
    assert [len(some) for some in alone] == [1, 1, 1]
    found = [len(some) for part in with_subscriber.values() for some in part]
    assert (found == [1] * 6) == masked


def test_products_are_those_of_the_twin() -> None:
    rng = np.random.default_rng(4)
    m, k = rng.integers(0, 2, (3, 64), dtype=np.uint8), rng.integers(0, 256, (3, 16), dtype="u1")
    masks = rng.integers(0, 256, (3, 64, 16), dtype=np.uint8)
    evaluation = Evaluation(SMALL.program, SMALL.digit_bits, SMALL.tables, SMALL.table_rows)
    # The event is the value 0 for sure, and the interest's table of 0 is m.
    zero = [np.array([[int(i == 0), 0]], dtype=np.uint8) for i in range(3)]
    rows = [np.stack([lanes(part[:, None])[0], np.zeros(1, np.uint64)]) for part in m]
    steps = []
    for i in range(3):
        j = (i + 1) % 3
        queue = [np.zeros((1, 1, 1), np.uint64), (masks[i] ^ masks[j]).view("<u8")[None]]
        steps.append(
            evaluation.steps(
                (zero[i], zero[j]),
                (rows[i], rows[j]),
                lambda shape, queue=queue: queue.pop(0).reshape(shape),
                keys=(k[[i]], k[[j]]),
            )
        )
    got = [done[0][0].view(np.uint8) for done in run_together(steps)]
    # After the first step the shares of m are z of one table, without masks.
    held = three_brokers.product_shares([[int(i == 0)] * 64 for i in range(3)], m.tolist())
    for i, place in product(range(3), (0, 5, 15)):
        for bit in range(8):
            expected = three_brokers.times_key(
                [[part[lane] for part in held] for lane in range(64)],
                [int(part[place]) >> bit & 1 for part in k],
                (masks[:, :, place] >> bit & 1).tolist(),
            )
            assert (got[i][:, place] >> bit & 1).tolist() == [z[i] for z in expected]
