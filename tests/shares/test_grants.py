"""Grants: answers are interest and grant, views say nothing else, and nobody else makes a grant."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bytes, Words
from ccbps.errors import DecodeError, NetworkError, ParameterError, PeerError
from ccbps.forms.digits import BoxDigits
from ccbps.keys import ClientKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.predicates import Schema, UInt
from ccbps.shares import clients
from ccbps.shares.clients import (
    CLIENT,
    GRANT_HEAD_BYTES,
    GRANTEE,
    HEAD_BYTES,
    NUMBER,
    TAG_BYTES,
    BrokerKey,
    part_of,
    sealed_part,
)
from ccbps.shares.party import Party
from ccbps.shares.replicated import Evaluation, Shares, lanes, unpacked, whole_vectors
from ccbps.shares.ring import Ring
from ccbps.wire import Cause, Kind
from tests.support.effort import examples
from tests.support.three_brokers import recorded, together

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
MATCHER = ThreeBrokerMatch.box(SCHEMA, grants=True)
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]
RNG = np.random.default_rng(46)
AUTHORITY = ClientKey.generate(PUBLIC)


def authority() -> Any:
    return MATCHER.authority(AUTHORITY)


def brokers(
    act: Callable[[Party, int], Any], matcher: Any = MATCHER, *, block_lanes: int | None = None
) -> list[Any]:
    """Run a function for each of three brokers, and return results or errors."""
    hellos = matcher.authority(AUTHORITY).hellos

    def serve(number: int, lower: Any, upper: Any) -> Any:
        with Ring(number, lower, upper, matcher.digest) as ring:
            party = matcher.broker(number, KEYS[number], ring, authority=hellos[number])
            if block_lanes:
                party._block_lanes = party._grants.table._size = block_lanes
                party.table = party.new_table()
            return act(party, number)

    return together(serve)


def agreed(results: list[Any]) -> Any:
    """Return what all three brokers return."""
    assert not any(isinstance(result, Exception) for result in results), results
    for result in results[1:]:
        for a, b in zip(results[0], result, strict=True):
            assert np.array_equal(a, b)
    return results[0]


def drawn(count: int) -> tuple[Any, Any]:
    """Return records, and the same encoded."""
    records = {"price": RNG.integers(0, 256, count), "volume": RNG.integers(0, 64, count)}
    return records, SCHEMA.encode(records)


def meaning(texts: list[str], events: Any, grant: str | None) -> Any:
    allowed = np.zeros(events.count, dtype=np.bool_)
    if grant is not None:
        allowed = SCHEMA.parse(grant).evaluate(events)
    return np.stack([SCHEMA.parse(text).evaluate(events) & allowed for text in texts], axis=1)


# -- answers --------------------------------------------------------------------------------------

BOXES = st.tuples(
    *(st.tuples(st.integers(0, top), st.integers(0, top)) for top in (255, 63)), st.booleans()
)


def text_of(box: Any) -> str:
    (a, b), (c, d), negated = box
    price = f"price BETWEEN {min(a, b)} AND {max(a, b)}"
    return f"{'NOT ' * negated}{price} AND volume BETWEEN {min(c, d)} AND {max(c, d)}"


MADE = {
    (shape, reveal): make(reveal=reveal, grants=True)
    for reveal in ("brokers", "subscriber")
    for shape, make in {
        "box": lambda **options: ThreeBrokerMatch.box(SCHEMA, **options),
        "template": lambda **options: ThreeBrokerMatch(SCHEMA, "price < :p", **options),
        "hidden": lambda **options: ThreeBrokerMatch.hidden(SCHEMA, leaves=2, **options),
    }.items()
}


@pytest.mark.parametrize(("shape", "reveal"), MADE)
@given(interests=st.lists(BOXES, min_size=1, max_size=4), grant=BOXES, seed=st.integers(0, 99))
@settings(max_examples=examples(60))
def test_answers_are_interest_and_grant(
    shape: str, reveal: str, interests: list[Any], grant: Any, seed: int
) -> None:
    matcher, rng = MADE[shape, reveal], np.random.default_rng(seed)
    texts: list[Any] = [text_of(box) for box in interests]
    if shape == "hidden":
        texts = [f"{text_of((*box[:2], False))} OR price = 7" for box in interests]
    if shape == "template":
        texts = [{"p": box[0][0]} for box in interests]
    records = {"price": rng.integers(0, 256, 12), "volume": rng.integers(0, 64, 12)}
    events = SCHEMA.encode(records)
    allowed = SCHEMA.parse(text_of(grant)).evaluate(events)
    expected = np.stack([matcher.meaning(text, events) & allowed for text in texts], axis=1)
    answers = matcher.local().match_all(records, texts, grant=text_of(grant))
    assert np.array_equal(answers, expected)


def test_each_client_has_its_own_grant_and_a_later_one_counts() -> None:
    ann, bob, eve = (MATCHER.subscriber(PUBLIC) for _ in range(3))
    giver, publisher = authority(), MATCHER.publisher(PUBLIC)
    texts = {
        role: [f"price >= {n * 7 % 200} AND volume < {60 - n % 9}" for n in range(count)]
        for role, count in ((ann, 70), (bob, 130), (eve, 3))
    }
    both = "price < 128 AND volume > 5"
    first = giver.grant(both, to=[ann.client, bob.client])
    others = giver.grant("volume <> 9", to=eve.client)
    later = giver.grant("price > 99", to=bob.client)
    nothing = giver.grant(None, to=ann.client)
    own = {role: role.encode(texts[role]) for role in texts}
    records, events = drawn(40)
    sent = publisher.encode(records)

    def act(party: Party, number: int) -> Any:
        for role in (publisher, ann, bob, eve):
            party.greet(role.hellos[number])
        assert not party.grant(sealed_part(number, first, "grant")).any()
        assert not party.grant(sealed_part(number, others, "grant")).any()
        mixed = np.concatenate([own[role] for role in (ann, bob, eve)])
        assert party.subscribe(part_of(number, mixed)).tolist() == list(range(203))
        answers = [party.publish(part_of(number, sent))[0]]
        for grants in (later, nothing):
            assert not party.grant(sealed_part(number, grants, "grant")).any()
            party.table.remove(np.array([1, 72]))
            answers.append(party.publish(part_of(number, sent))[0])
        # A lane that is used again has the grant of its new client.
        again = party.subscribe(part_of(number, own[eve][:1]), chosen=np.array([1]))
        assert again.tolist() == [1]
        return [*answers, party.publish(part_of(number, sent))[0]]

    got = agreed(brokers(act, block_lanes=64))
    grants = [(both, both), (both, "price > 99"), (None, "price > 99")]
    for answers, (anns, bobs) in zip(got, grants, strict=False):
        parts = (texts[ann], anns), (texts[bob], bobs), (texts[eve], "volume <> 9")
        expected = np.concatenate([meaning(some, events, grant) for some, grant in parts], axis=1)
        if answers is not got[0]:
            expected[:, [1, 72]] = False
        assert expected.any() and np.array_equal(answers, expected)
    expected[:, [1]] = meaning(texts[eve][:1], events, "volume <> 9")
    assert np.array_equal(got[3], expected)


def test_answers_for_subscribers_only_are_interest_and_grant_for_each_client() -> None:
    matcher = MADE["box", "subscriber"]
    ann, bob, publisher = (
        make(PUBLIC) for make in (matcher.subscriber,) * 2 + (matcher.publisher,)
    )
    giver = matcher.authority(AUTHORITY)
    grants = giver.grant("price < 100", to=ann.client), giver.grant("volume > 30", to=bob.client)
    texts = ["TRUE", "price > 50", "volume < 40"]
    records, events = drawn(30)
    sent, own = publisher.encode(records), [role.encode(texts) for role in (ann, bob)]

    def act(party: Party, number: int) -> Any:
        for role in (publisher, ann, bob):
            party.greet(role.hellos[number])
        for some in grants:
            party.grant(sealed_part(number, some, "grant"))
        for messages in own:
            party.subscribe(part_of(number, messages))
        return party.publish_for_subscribers(part_of(number, sent))[0]

    answers = brokers(act, matcher)
    for role, messages, start, grant in (
        (ann, own[0], 0, "price < 100"),
        (bob, own[1], 3, "volume > 30"),
    ):
        parts = [type(a)(a.attempts, a.shares[:, start : start + 3]) for a in answers]
        opened = role.open(sent, messages, parts, publisher.commitments(sent))
        assert np.array_equal(opened.matched, meaning(texts, events, grant))


# -- what clients may not do ----------------------------------------------------------------------


def test_clients_without_a_grant_are_refused_alone() -> None:
    ann, bob, giver = MATCHER.subscriber(PUBLIC), MATCHER.subscriber(PUBLIC), authority()
    publisher = MATCHER.publisher(PUBLIC)
    grant, texts = giver.grant("price < 99", to=ann.client), ["TRUE", "price > 7"]
    mixed = np.concatenate([ann.encode(texts), bob.encode(texts)])
    sealed = np.concatenate([ann.seal(ann.encode(texts)), bob.seal(bob.encode(texts))])
    records, events = drawn(9)
    sent = publisher.encode(records)

    def act(party: Party, number: int) -> Any:
        for role in (publisher, ann, bob):
            party.greet(role.hellos[number])
        before = party.subscribe(part_of(number, mixed))
        party.grant(sealed_part(number, grant, "grant"))
        causes = party.examine("interest", part_of(number, mixed))
        assert causes.tolist() == [Cause.NONE] * 2 + [Cause.UNGRANTED] * 2
        refused = party.verify(sealed_part(number, sealed))
        lanes_ = party.subscribe(part_of(number, mixed))
        also = party.subscribe(sealed_part(number, sealed), sealed=True)
        return before, refused, lanes_, also, party.publish(part_of(number, sent))[0]

    before, refused, lanes_, also, answers = agreed(brokers(act))
    assert before.tolist() == [-1] * 4
    assert refused.tolist() == [False, False, True, True]
    assert lanes_.tolist() == [0, 1, -1, -1] and also.tolist() == [2, 3, -1, -1]
    assert np.array_equal(answers, np.tile(meaning(texts, events, "price < 99"), 2))


def bent(messages: Bytes, change: Callable[[Bytes], object]) -> Bytes:
    out = messages.copy()
    change(out)
    return out


def as_grant(sealed: Bytes, to: bytes) -> Bytes:
    """Return a sealed interest of the authority with the head of a grant."""
    head = np.frombuffer(to + (1 << 63).to_bytes(8, "little"), dtype=np.uint8)
    out = np.insert(sealed, [HEAD_BYTES] * 24, head, axis=1)
    out[:, 0] = Kind.GRANT
    return out


def other_matcher() -> Any:
    """Return a matcher whose messages have the same sizes."""
    return ThreeBrokerMatch.box(Schema(price=UInt(8), amount=UInt(6)), grants=True)


def attacks(ann: Any, bob: Any) -> dict[str, list[Bytes]]:
    """Return parts for three brokers by which Bob, or somebody on the way, would widen his grant.

    Bob has a grant of price < 9, numbered 5, had a wider one numbered 4, and Ann's is the widest.
    """
    giver = authority()
    widest, wider = (
        giver.grant("TRUE", to=role.client, number=n) for role, n in ((ann, 7), (bob, 4))
    )
    new = giver.grant("volume > 3", to=bob.client, number=8)
    name = np.frombuffer(bob.client, dtype=np.uint8)
    bobs = MATCHER.authority(PUBLIC)
    own = bobs.grant("TRUE", to=bobs.client, number=9)
    interest = MATCHER.subscriber(AUTHORITY)
    foreign = other_matcher()
    far = foreign.authority(AUTHORITY).grant("TRUE", to=bob.client, number=9)

    def put(place: slice, value: Any) -> Callable[[Bytes], object]:
        return lambda some: some.__setitem__((slice(None), place), value)

    authoritys = np.frombuffer(giver.client, dtype=np.uint8)
    digest = np.frombuffer(MATCHER.digest, dtype=np.uint8)[:6]
    noise = RNG.integers(0, 256, (1, new.shape[1] - GRANT_HEAD_BYTES), dtype=np.uint8)
    head = bent(new[:, :GRANT_HEAD_BYTES], put(slice(24, 52), 3))
    sent = {
        "another's": bent(widest, put(GRANTEE, name)),
        "earlier": wider,
        "earlier with a new number": bent(wider, put(NUMBER, 9)),
        "interest": as_grant(interest.seal(interest.encode("TRUE")), bob.client),
        "his own": own,
        "his own in the authority's name": bent(own, put(CLIENT, authoritys)),
        "noise": np.concatenate([head, noise], axis=1),
        "other matcher": far,
        "other matcher, head changed": bent(
            bent(far, put(slice(2, 8), digest)), put(CLIENT, authoritys)
        ),
        "event": bent(new, put(slice(0, 1), Kind.EVENT)),
        "parts swapped": np.concatenate(
            [
                new[:, :GRANT_HEAD_BYTES],
                *reversed(np.split(new[:, GRANT_HEAD_BYTES:], 2, axis=1)),
            ],
            axis=1,
        ),
    }
    out = {
        name: [sealed_part(n, messages, "grant") for n in range(3)]
        for name, messages in sent.items()
    }
    for party, place in ((0, 30), (0, 60), (0, 70), (1, 90), (2, 90), (1, -1), (2, -1), (1, 60)):
        parts = [sealed_part(n, new, "grant").copy() for n in range(3)]
        parts[party][:, place] ^= 1
        out[f"altered for broker {party} at {place}"] = parts
    return out


def test_nobody_but_the_authority_grants() -> None:
    ann, bob, publisher = (
        *(MATCHER.subscriber(PUBLIC) for _ in range(2)),
        MATCHER.publisher(PUBLIC),
    )
    giver, tried = authority(), attacks(ann, bob)
    grants = [
        giver.grant("TRUE", to=ann.client, number=7),
        giver.grant("price < 90", to=bob.client, number=4),
        giver.grant("price < 9", to=bob.client, number=5),
    ]
    good = giver.grant("price < 60", to=bob.client, number=8)
    texts = ["TRUE", "volume > 3"]
    own = {role: role.encode(texts) for role in (ann, bob)}
    records, events = drawn(40)
    sent = publisher.encode(records)

    def act(party: Party, number: int) -> Any:
        for role in (publisher, ann, bob):
            party.greet(role.hellos[number])
        for some in grants:
            assert not party.grant(sealed_part(number, some, "grant")).any()
        for role in (ann, bob):
            party.subscribe(part_of(number, own[role]))
        refused = [party.grant(parts[number]) for parts in tried.values()]
        answers = party.publish(part_of(number, sent))[0]
        # With a good one in the same batch, the good one alone counts.
        batch = [*(parts[number] for parts in tried.values()), sealed_part(number, good, "grant")]
        mixed = party.grant(np.concatenate(batch))
        return np.concatenate(refused), answers, mixed, party.publish(part_of(number, sent))[0]

    refused, answers, mixed, later = agreed(brokers(act))
    assert refused.all(), [name for name, no in zip(tried, refused, strict=True) if not no]
    assert mixed.tolist() == [True] * len(tried) + [False]
    for got, bobs in ((answers, "price < 9"), (later, "price < 60")):
        expected = [meaning(texts, events, grant) for grant in ("TRUE", bobs)]
        assert np.array_equal(got, np.concatenate(expected, axis=1))


def test_the_causes_are_told() -> None:
    ann, bob = (MATCHER.subscriber(PUBLIC) for _ in range(2))
    tried = attacks(ann, bob)

    def act(party: Party, number: int) -> Any:
        grants = party._grants
        assert grants is not None
        return {name: int(grants.examine(parts[number])[0]) for name, parts in tried.items()}

    causes = brokers(act)
    for cause in causes[1:]:
        assert cause["his own"] == Cause.KEY and cause["event"] == Cause.GRANT_KIND
        assert cause["other matcher"] == Cause.GRANT_MATCHER
        assert cause["another's"] == cause["interest"] == cause["noise"] == Cause.ALTERED
        assert cause["earlier with a new number"] == cause["parts swapped"] == Cause.ALTERED
    # Broker 0 has heads alone; the others refuse for it.
    assert causes[0]["noise"] == causes[0]["another's"] == Cause.NONE


def test_a_grant_is_no_interest_and_no_event() -> None:
    bob, giver, publisher = MATCHER.subscriber(PUBLIC), authority(), MATCHER.publisher(PUBLIC)
    grant = giver.grant("price < 9", to=bob.client)
    wide = giver.grant("TRUE", to=bob.client, number=0)
    body = np.delete(wide, range(HEAD_BYTES, GRANT_HEAD_BYTES), axis=1)
    size = (body.shape[1] - HEAD_BYTES) // 2
    clear = body[:, : HEAD_BYTES + size - TAG_BYTES].copy()
    clear[:, -1] &= (1 << MATCHER.form.rows % 8) - 1
    as_interest = bent(clear, lambda some: some.__setitem__((0, 0), Kind.INTEREST))
    his_head = bob.encode("price < 9")[:, :HEAD_BYTES].copy()
    his_head[:, 24:] = wide[:, 24:HEAD_BYTES]
    as_his = np.concatenate([his_head, clear[:, HEAD_BYTES:]], axis=1)
    records, events = drawn(60)
    sent = publisher.encode(records)

    def act(party: Party, number: int) -> Any:
        for role in (publisher, bob):
            party.greet(role.hellos[number])
        with pytest.raises(DecodeError, match="not an interest message"):
            party.subscribe(part_of(number, clear))
        party.grant(sealed_part(number, grant, "grant"))
        sealed = bent(body, lambda some: some.__setitem__((0, 0), Kind.INTEREST))
        refused = party.subscribe(sealed_part(number, sealed), sealed=True)
        # The authority itself has no grant.
        theirs = party.subscribe(part_of(number, as_interest))
        his = party.subscribe(part_of(number, as_his))
        return refused, theirs, his, party.publish(part_of(number, sent))[0]

    refused, theirs, his, answers = agreed(brokers(act))
    assert refused.tolist() == theirs.tolist() == [-1] and his.tolist() == [0]
    # Noise as an interest matches some events, but none that the grant does not allow.
    allowed = meaning(["TRUE"], events, "price < 9")
    assert not (answers & ~allowed).any()


def test_nobody_takes_the_name_of_the_authority_or_of_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ann, bob, giver = MATCHER.subscriber(PUBLIC), MATCHER.subscriber(PUBLIC), authority()
    forged = []
    for victim in (ann, giver):
        with monkeypatch.context() as patch:
            patch.setattr(clients, "_name_of", lambda point, name=victim.client: name)
            # All is right with these hellos but the name.
            forged.append(MATCHER.subscriber(PUBLIC).hellos)
        assert forged[-1][0][:16] == victim.client
        mixed = zip(victim.hellos, bob.hellos, strict=True)
        forged.append(tuple(own[:48] + other[48:] for own, other in mixed))

    def act(party: Party, number: int) -> Any:
        for hellos in forged:
            with pytest.raises(DecodeError, match="the hello is not for broker"):
                party.greet(hellos[number])
        with pytest.raises(DecodeError, match="known already"):
            party.greet(giver.hellos[number])
        return [True]

    assert agreed(brokers(act)) == [True]


def test_brokers_with_other_grants_part() -> None:
    bob, giver, publisher = MATCHER.subscriber(PUBLIC), authority(), MATCHER.publisher(PUBLIC)
    grants = [giver.grant(text, to=bob.client) for text in ("price < 9", "TRUE")]
    own, sent = bob.encode("TRUE"), publisher.encode(drawn(3)[0])

    def act(party: Party, number: int) -> Any:
        for role in (publisher, bob):
            party.greet(role.hellos[number])
        party.grant(sealed_part(number, grants[0], "grant"))
        party.subscribe(part_of(number, own))
        party.grant(sealed_part(number, grants[1], "grant"))
        if number == 1:
            assert party._grants is not None
            party._grants.table.blocks[0].heads[0, NUMBER] ^= 1
            party._grants.table.blocks[0]._digest = None
        return party.publish(part_of(number, sent))

    results = brokers(act)
    assert all(isinstance(result, NetworkError | PeerError) for result in results), results


def test_sizes_are_counted() -> None:
    three = [MATCHER.subscriber(PUBLIC) for _ in range(3)]
    giver, publisher, count = authority(), MATCHER.publisher(PUBLIC), 20
    grants = giver.grant("price < 90", to=[role.client for role in three])
    form = MATCHER.form
    assert MATCHER.size == form.program.gates + 1
    assert grants.shape == (3, 76 + 2 * (-(-form.rows // 8) + 16))
    own = np.concatenate([role.encode(["TRUE"] * 50) for role in three])
    sent = publisher.encode(drawn(count)[0])

    def act(party: Party, number: int) -> Any:
        for role in (publisher, *three):
            party.greet(role.hellos[number])
        party.grant(sealed_part(number, grants, "grant"))
        party.subscribe(part_of(number, own))
        before = party._joined.sent_bytes
        party.publish(part_of(number, sent))
        return [party._joined.sent_bytes - before]

    # Bits go in words of 64 lanes. The check of an event: a tag, two words and two bits; twice a
    # part of a coin.
    (got,) = agreed(brokers(act))
    pairs, granted = (MATCHER.size + 1) * 3 * 8, form.program.gates * 8
    assert got == count * (pairs + granted + 16 + 2 * 8) + 2 * (-(-count // 8) + 32)


def test_malformed_grants_are_refused() -> None:
    bob = MATCHER.subscriber(PUBLIC)
    grant = authority().grant("TRUE", to=bob.client)

    def act(party: Party, number: int) -> Any:
        with pytest.raises(DecodeError, match=f"sealed grants for broker {number} have"):
            party.grant(sealed_part(number, grant, "grant")[:, :-1])
        with pytest.raises(DecodeError, match="at least 52 bytes"):
            party.subscribe(np.zeros((1, 20), dtype=np.uint8))
        return [True]

    assert agreed(brokers(act)) == [True]
    for to in (b"short", [], ["name" * 4], [bob.client, b""]):
        if not to:
            assert len(authority().grant("TRUE", to=to)) == 0
            continue
        with pytest.raises(ParameterError, match="to must be"):
            authority().grant("TRUE", to=to)


# -- views ----------------------------------------------------------------------------------------

SMALL = BoxDigits(Schema(x=UInt(1)), {"x": 1}, {"x": 1})
SETS = {(): 0, ((0, 0),): 1, ((1, 1),): 2, ((0, 1),): 3}
EVALUATION = Evaluation(SMALL.program, SMALL.digit_bits, SMALL.tables, SMALL.table_rows)
BITS = 17
"""Bits of randomness of which all values are enumerated, besides an event's."""
ALL = np.unpackbits(
    np.arange(1 << BITS, dtype="<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little"
)


def view(broker: int, x: int, interests: Any, grant: Any, fault: str = "") -> bytes:
    """Count the views of a broker: one event meets interests of a client with a grant.

    Rows stand for the event's random shares, and lanes for those of grant and interests and for
    the masks. With two interests, masks that the broker knows are the same in all lanes.
    """
    taken, i, j = [0], broker, (broker + 1) % 3
    fixed = np.random.default_rng(broker)

    def random(count: int) -> Bytes:
        taken[0] += count
        return ALL[:, taken[0] - count : taken[0]]

    def shares(plain: Bytes) -> list[Bytes]:
        first, second = random(2), random(2)
        return [first, second, first ^ second ^ plain]

    def keys() -> list[Words]:
        known = len(interests) > 1
        bits = [
            np.full((len(ALL), 1), fixed.integers(2), np.uint8)
            if known and k in (i, j)
            else random(1)
            for k in range(3)
        ]
        return [lanes(bit)[None] for bit in bits]

    plain = SMALL.event_rows(SMALL.schema.encode({"x": [x]}))
    ours = np.array(list(product((0, 1), repeat=2)), dtype=np.uint8)
    sent = [ours[:, :1], ours[:, 1:], ours[:, :1] ^ ours[:, 1:] ^ plain]
    events = [whole_vectors(share, SMALL.digit_bits, k == 0) for k, share in enumerate(sent)]
    seen: list[Any] = []
    own: list[Bytes] = []

    def evaluated(bits: list[Bytes], masks: list[list[Words]], granted: Any, opened: bool) -> Any:
        words = [lanes(part) for part in bits]

        def steps(k: int) -> Any:
            n, left = (k + 1) % 3, list(masks)

            def drawn(shape: tuple[int, ...]) -> Words:
                some = left.pop(0)
                return np.broadcast_to(some[k] ^ some[n], shape)

            allowed = None if granted is None else granted[k]
            pairs = (events[k], events[n]), (words[k], words[n])
            return EVALUATION.steps(*pairs, drawn, opened=opened, granted=allowed)

        done, received = recorded([steps(k) for k in range(3)])
        seen.extend(part.reshape(4, -1) for part in received[i])
        own.extend([bits[i], bits[j]])
        for key in masks:
            own.extend(unpacked(key[k][0], len(ALL)).view(np.uint8).T for k in (i, j))
        return done

    masks = keys()
    results: list[Shares] = evaluated(
        shares(SMALL.interest_rows([{"x": grant}])), [masks], None, False
    )
    if fault == "opened":
        seen.append(results[0][0] ^ results[1][0] ^ results[2][0])
    for interest in interests:
        last = keys() if fault != "masks again" else masks
        if fault == "no masks":
            last = [np.zeros_like(key) for key in last]
        done = evaluated(
            shares(SMALL.interest_rows([{"x": interest}])), [keys(), last], results, True
        )
        answer = unpacked(done[i][0], len(ALL))
        assert (answer == (SETS[interest] & SETS[grant]) >> x & 1).all()
        seen.append(done[i][0])
    assert taken[0] <= BITS
    known = np.zeros(len(ALL), dtype=np.int64)
    for column in (column for part in own for column in part.reshape(len(ALL), -1).T):
        if column.any() and not column.all():
            known = known << 1 | column
    code = known << 2 | (sent[i] << 1 | sent[j])
    for words in seen:
        code <<= 1
        code |= unpacked(words, len(ALL))
    return sha256(np.bincount(code.reshape(-1)).astype(np.uint8)).digest()


def same_views(count: int, sets: Any, fault: str = "", broker: int = 0) -> bool:
    """Tell whether the views of a broker are the same for all inputs with the same answers."""
    views: dict[Any, set[bytes]] = {}
    for x, grant, *interests in product((0, 1), *[sets] * (1 + count)):
        answers = tuple((SETS[interest] & SETS[grant]) >> x & 1 for interest in interests)
        views.setdefault(answers, set()).add(view(broker, x, interests, grant, fault))
    assert len(views) == 2**count
    return all(len(some) == 1 for some in views.values())


SLOW = pytest.mark.slow


@pytest.mark.parametrize("broker", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
def test_views_say_the_answers_only(broker: int) -> None:
    """Not whether the interest or the grant forbids an event, nor whether they overlap."""
    assert same_views(1, SETS, broker=broker)


@pytest.mark.slow
@pytest.mark.parametrize("broker", range(3))
def test_views_of_two_interests_of_a_client_say_the_answers_only(broker: int) -> None:
    assert same_views(2, SETS, broker=broker)


@pytest.mark.parametrize("fault", ["opened", "no masks", "masks again"])
def test_views_that_say_more_are_noticed(fault: str) -> None:
    assert not same_views(1, [(), ((0, 1),)], fault)
