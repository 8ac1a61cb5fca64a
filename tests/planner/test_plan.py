"""Plans: bytes against messages, the order, refusals, and answers of every candidate."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ccbps
from ccbps import Category, Schema, UInt
from ccbps.algebra import prime_order
from ccbps.attacks import placing
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import BrokenSchemeWarning, ParameterError
from ccbps.leakage import WITH_CLIENT
from ccbps.matching import SCHEMES, Answers, Keying, Matcher, MembershipMatch, Traffic
from ccbps.matching.contract import estimate
from ccbps.matching.contract.estimate import Seconds, random_events
from ccbps.matching.contract.parties import Party
from ccbps.planner import Candidate, Plain, Plan, Refusal
from ccbps.planner.candidates import interest_of, ways
from ccbps.planner.leaks import EVERYTHING, Leak, fronts
from ccbps.planner.tables import duration_text
from ccbps.planner.timings import Timings
from ccbps.predicates import Predicate
from ccbps.shares.answers import COMMITMENT_BYTES
from ccbps.shares.clients import HEAD_BYTES
from ccbps.shares.ring import Ring

BATCH_BYTES = 64
STOCK = Schema(issue=UInt(16), price=UInt(16), volume=UInt(20))
STOCK_TEXT = "issue = 5 AND price < 300 AND volume > 1000"
QUOTES = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(6))
WORDS = Schema(x=UInt(8))
CASES = [
    (QUOTES, "issue = 'IBM' AND price < 20"),
    (QUOTES, "issue = 'IBM' AND price = 5"),
    (QUOTES, "price < 5 OR NOT issue = 'IBM'"),
    (QUOTES, "issue = :issue AND price < :limit"),
    (WORDS, "hamming(x, :y) <= 2"),
    (WORDS, "x IN (3, 7, 9)"),
]
VALUES: dict[str, Any] = {"issue": "SAP", "limit": 9, "y": 200}


def parsed(schema: Schema, text: str) -> Predicate:
    predicate = schema.parse(text)
    return predicate.bind(**{name: VALUES[name] for name in predicate.private_names})


def planned(schema: Schema = STOCK, predicate: Any = STOCK_TEXT, **options: Any) -> Plan:
    settings = {"events": 10**5, "subscriptions": 10**3, "timing": 0, "brokers": 3, **options}
    return ccbps.plan(schema, predicate, **settings)


def total(found: Plan, scheme: str, **parameters: Any) -> int:
    (each,) = {
        each.total_bytes
        for each in found.candidates
        if type(each.matcher).__name__ == scheme
        and each.matcher is not None
        and parameters.items() <= each.matcher.parameters().items()
    }
    return each


# -- bytes ----------------------------------------------------------------------------------------


def sent(way: Matcher | Plain, predicate: Predicate, events: int, count: int) -> Traffic:
    """Return the bytes of messages that all roles encode."""
    batch = random_events(way.schema, events)
    if isinstance(way, Plain):
        messages = way.encode(batch).nbytes
        deliveries = messages * count if way.traffic(1, 1).deliveries else 0
        return Traffic(messages, count * way.interest_bytes, deliveries=deliveries)
    interest = interest_of(way, predicate)
    if way.keying is Keying.SESSION:
        return sent_in_sessions(way, predicate, events, count)
    party = Party(way)
    if way.keying is Keying.ROUNDS:
        rounds = np.repeat(np.arange(events), count)
        labels = [f"subscription {number}" for number in range(count)] * events
        if way.answers is Answers.ROUND:
            published = party.publisher.encode(batch, range(events))
        else:
            rows = batch.take(rounds)
            published = party.publisher.encode(rows, rounds, pairs=labels)
        asked = party.subscriber.encode([interest] * len(rounds), rounds, pairs=labels)
        return Traffic(published.nbytes, asked.nbytes)
    published = party.publisher.encode(batch)
    asked = party.subscriber.encode([interest] * count)
    if way.keying is Keying.SERVER:
        return Traffic(published.nbytes, asked.nbytes)
    # Brokers 1 and 2 get messages, broker 0 heads.
    to_brokers = [2 * side.nbytes + len(side) * HEAD_BYTES for side in (published, asked)]
    between, deliveries = passed_on(party, published, asked)
    if deliveries:
        commitments = party.publisher.commitments(published)
        assert commitments.nbytes == events * COMMITMENT_BYTES
        to_brokers[0] += commitments.nbytes
        deliveries += count * commitments.nbytes
    return Traffic(*to_brokers, between, deliveries)


def passed_on(party: Party, published: Any, asked: Any) -> tuple[int, int]:
    """Return the bytes of masked sums between brokers, and of answers to subscribers."""
    rings: list[Ring] = []
    made = Ring.__init__

    def noted(ring: Ring, *arguments: Any, **options: Any) -> None:
        made(ring, *arguments, **options)
        rings.append(ring)

    answers: list[Any] = []
    worked = type(party.broker)._worked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ring, "__init__", noted)

        def kept(brokers: Any, *arguments: Any) -> Any:
            answers.extend(worked(brokers, *arguments))
            return answers

        patch.setattr(type(party.broker), "_worked", kept)
        party.broker.match_messages(published, asked)
    # What brokers compare of a whole batch is not counted: a coin, sums, and marks of events.
    batch = BATCH_BYTES + 2 * -(-len(published) // 8)
    between = sum(ring.sent_bytes - batch for ring in rings)
    if party.matcher.answers is Answers.TOGETHER and not hasattr(answers[0], "shares"):
        return between, 0
    each = sum(part.attempts.nbytes * len(asked) + part.shares.nbytes for part in answers)
    return between, each


def sent_in_sessions(way: Any, predicate: Predicate, events: int, count: int) -> Traffic:
    """Return the bytes of a publisher of one topic with so many subscribers."""
    publisher = way.new_publisher([predicate])
    requests, sessions = 0, 0
    for _ in range(count):
        subscriber = way.new_subscriber()
        publisher.admit(subscriber.identity)
        subscriber.trust(publisher.identity)
        request = subscriber.encode([predicate])
        answer = publisher.answer(request)
        requests, sessions = requests + request.nbytes, sessions + answer.nbytes
    messages = publisher.encode(random_events(way.schema, events, predicate)).nbytes
    return Traffic(sessions + messages, requests, deliveries=sessions + count * messages)


@pytest.mark.parametrize(("schema", "text"), CASES)
def test_predicted_bytes_are_those_of_messages(schema: Schema, text: str) -> None:
    predicate = parsed(schema, text)
    found = ccbps.plan(schema, predicate, events=3, subscriptions=2, brokers=3, timing=0, topics=1)
    assert len(found.candidates) > 5
    for each in found.candidates:
        assert sent(each.way, predicate, 3, 2) == each.traffic, each.name


@pytest.mark.slow
@pytest.mark.parametrize(("events", "count"), [(1, 1), (5, 65), (40, 3)])
def test_predicted_bytes_are_those_of_messages_for_any_load(events: int, count: int) -> None:
    predicate = parsed(STOCK, STOCK_TEXT)
    load = {"events": events, "subscriptions": count}
    for each in planned(predicate=predicate, topics=1, **load).candidates:
        if each.way.event_bytes < 10**5:
            assert sent(each.way, predicate, events, count) == each.traffic, each.name


def test_totals_of_the_stock_box() -> None:
    # 149 and 148 bytes a pair without headers and nonces; these are messages as they travel.
    found = planned()
    assert total(found, "FormulaMatch", hidden=None) == 10**8 * (81 + 84)
    assert total(found, "BroadcastMatch", hidden=None, window=1) == 10**5 * 840 + 10**8 * 168
    assert total(found, "BroadcastMatch", hidden=None, window=2) == 10**5 * 424 + 10**8 * 193


@pytest.mark.parametrize(("subscriptions", "window"), [(1, 2), (16, 2), (17, 1), (1000, 1)])
def test_window_2_is_shorter_up_to_16_subscriptions(subscriptions: int, window: int) -> None:
    found = planned(subscriptions=subscriptions)
    totals = {w: total(found, "BroadcastMatch", hidden=None, window=w) for w in (1, 2)}
    assert min(totals, key=totals.__getitem__) == window
    best: Any = found.best("BroadcastMatch")
    if subscriptions > 1:  # window 3 and 4 are better still for few
        assert best.window in ({1} if window == 1 else {2, 3, 4})


@pytest.mark.skipif(
    "GarbledMatch" not in {scheme.__name__ for scheme in SCHEMES},
    reason="the catalogue has no garbled circuits",
)
@pytest.mark.parametrize(
    ("bits", "garbled"),
    [
        (12, False),
        pytest.param(20, False, marks=pytest.mark.slow),
        (24, True),
        pytest.param(32, True, marks=pytest.mark.slow),
    ],
)
def test_garbled_circuits_are_smaller_for_long_distances(bits: int, garbled: bool) -> None:
    """Formulas repeat what circuits share: that costs more from some 22 bits on."""
    schema = Schema(x=UInt(bits))
    predicate = schema.parse(f"hamming(x, :y) <= {bits // 4}").bind(y=5)
    found = planned(schema, predicate, subscriptions=10)
    kinds = [type(each.matcher).__name__ for each in found.candidates]
    taken = [kind for kind in dict.fromkeys(kinds) if kind in ("FormulaMatch", "GarbledMatch")]
    totals = {kind: total(found, kind) for kind in taken}
    assert (min(totals, key=totals.__getitem__) == "GarbledMatch") == garbled
    box = planned()
    assert total(box, "GarbledMatch") > total(box, "FormulaMatch", hidden=None)


# -- the order ------------------------------------------------------------------------------------


def test_what_shows_less_comes_first_then_bytes() -> None:
    found = planned(QUOTES, "issue = 'IBM' AND price < 20")
    candidates = found.candidates
    for place, later in enumerate(candidates):
        for earlier in candidates[:place]:
            assert not later.leaks < earlier.leaks, (later.name, earlier.name)
    for front in fronts([(each, each.leaks) for each in candidates]):
        places = [candidates.index(each) for each in front]
        ordered = [candidates[place].total_bytes for place in sorted(places)]
        assert ordered == sorted(ordered)
        assert sorted(places) == [*range(min(places), max(places) + 1)]


def test_leaks_that_are_allowed_do_not_count() -> None:
    allowed = {"match", "formula", "attributes"}
    found = planned(allow_leaks=allowed)
    totals = [each.total_bytes for each in found.candidates]
    assert totals == sorted(totals)
    names = {leak.name for each in found.candidates for leak in each.leaks}
    assert names <= allowed
    assert any("the broker: values of events" in each.refused[0] for each in found.refused)


def test_sets_are_compared_by_inclusion() -> None:
    a, b, c = (Leak("broker", fact) for fact in ("match", "formula", "event"))
    sets = [("abc", {a, b, c}), ("c", {c}), ("ab", {a, b}), ("none", set()), ("a", {a})]
    given = [(name, frozenset(leaks)) for name, leaks in sets]
    assert fronts(given) == [["none"], ["c", "a"], ["ab"], ["abc"]]


# -- refusals -------------------------------------------------------------------------------------


def test_every_scheme_and_alternative_is_listed_or_refused_for_a_reason() -> None:
    for schema, text in CASES:
        found = planned(schema, parsed(schema, text))
        names = {type(each.way).__name__ for each in (*found.candidates, *found.refused)}
        names |= {each.name for each in found.others}
        assert {scheme.__name__ for scheme in SCHEMES} <= names
        assert all(each.refused for each in found.refused)
        assert all(each.reason for each in found.others)


@pytest.mark.parametrize(
    ("options", "scheme", "reason"),
    [
        ({"hide": ["constants"]}, "TagMatch", "constants of subscriptions"),
        ({"hide": ["subscribers:event"]}, "SubscribersFilter", "the subscribers: values of events"),
        ({"security": "perfect"}, "BroadcastMatch", "its security is computational"),
        ({}, "AspeMatch", "its security is broken"),
        ({"brokers": 1}, "ThreeBrokerMatch", "needs 3 brokers"),
        ({"budget_bytes": 10**9}, "FormulaMatch", "takes 16,500,000,000 bytes"),
    ],
)
def test_refusals_say_why(options: Any, scheme: str, reason: str) -> None:
    found = planned(**options)
    refused = [each for each in found.refused if type(each.way).__name__ == scheme]
    assert refused
    assert all(reason in "; ".join(each.refused) for each in refused)
    assert scheme not in {type(each.way).__name__ for each in found.candidates}
    assert reason in found.explain()


def test_broken_schemes_are_listed_on_demand_and_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = planned(security="broken")
        names = [each.name for each in found.candidates]
        assert any("[broken]" in name for name in names)
        with pytest.raises(BrokenSchemeWarning):
            next(scheme for scheme in SCHEMES if scheme.__name__ == "AdditiveMaskMatch")(STOCK)
    # They show the data itself, as a trusted broker does, and nothing shows more.
    assert found.candidates[-1].leaks == EVERYTHING


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"events": 0}, "events"),
        ({"subscriptions": 1.5}, "subscriptions"),
        ({"hide": "match"}, "hide must be a collection"),
        ({"hide": ["price"]}, "hide must be names among event"),
        ({"allow_leaks": ["them:match"]}, "allow_leaks must be names"),
        ({"hide": ["match"], "allow_leaks": ["match"]}, "both name match"),
        ({"security": "good"}, "security"),
        ({"brokers": 2}, "brokers"),
        ({"budget_bytes": -1}, "budget_bytes"),
        ({"timing": -1}, "timing"),
        ({"predicate": 5}, "predicate"),
        ({"schema": 5}, "schema"),
    ],
)
def test_arguments_are_checked(options: Any, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        planned(**options)


def test_best_is_ready_to_use_or_says_why_there_is_none() -> None:
    allowed = ["match", "formula"]
    found = planned(brokers=1, allow_leaks=allowed, security="perfect")
    matcher = found.best()
    assert type(matcher).__name__ == "FormulaMatch"
    matcher.prepare(STOCK_TEXT)
    with pytest.raises(ParameterError, match=r"TagMatch: shows"):
        found.best("TagMatch")
    with pytest.raises(ParameterError, match="scheme"):
        found.best("NoMatch")
    with pytest.raises(ParameterError, match="more bytes or brokers"):
        planned(budget_bytes=0).best()


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [*CASES[:2], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[2:])],
)
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_answers_of_every_candidate_are_the_predicate_s(
    schema: Schema, text: str, data: st.DataObject
) -> None:
    predicate = parsed(schema, text)
    codes = {
        name: data.draw(
            st.lists(st.integers(0, schema[name].size - 1), min_size=4, max_size=4), label=name
        )
        for name in schema
    }
    arrays = {name: np.array([column], dtype=np.uint64) for name, column in codes.items()}
    events = ccbps.predicates.Events(schema, 4, arrays)
    for way in ways(schema, predicate):
        if isinstance(way, Refusal) or way.event_bytes > 10**4:
            continue
        if isinstance(way, Plain):
            assert way.answers(way.encode(events)).tolist() == predicate.evaluate(events).tolist()
            continue
        if way.leakage.security == "broken":
            continue  # their keys take long to make, and they are refused
        interest = interest_of(way, predicate)
        meaning = way.meaning(interest, events)
        assert not (predicate.evaluate(events) & ~meaning).any()
        batch = events
        if way.keying is Keying.SESSION:
            party = Party(way, [interest])
            batch = events.take(party.publisher.serves(events))
        answers = answered(way, interest, batch)
        if getattr(way, "false_positive_rate", 0.0):  # left to chance
            assert not (way.meaning(interest, batch) & ~answers).any()
        else:
            assert answers.tolist() == way.meaning(interest, batch).tolist(), repr(way)


def answered(way: Matcher, interest: Any, events: Any) -> Any:
    """Return the answers to one interest."""
    party = Party(way, [interest] if way.keying is Keying.SESSION else [])
    if way.keying is Keying.SESSION:
        return party.subscriber.open(party.publisher.encode(events)).matched.reshape(-1)
    if way.keying is Keying.ROUNDS:
        rounds = range(len(events))
        column = DictionaryColumn([interest], np.zeros(len(events), dtype=np.intp))
        asked = party.subscriber.encode(column, rounds)
        return party.broker.match(party.publisher.encode(events, rounds), asked)
    asked, published = party.subscriber.encode([interest]), party.publisher.encode(events)
    match = getattr(party.broker, "match_messages", None) or party.broker.match_all
    return match(published, asked)[:, 0]


# -- seconds --------------------------------------------------------------------------------------


def test_seconds_are_measured_once_and_kept(tmp_path: Path) -> None:
    options: Any = {"brokers": 1, "events_per_second": 10.0, "timings": tmp_path}
    limits = {"hide": ["constants", "attributes"], "security": "perfect", "budget_bytes": 10**11}
    first = planned(QUOTES, "issue = 'IBM' AND price < 20", timing=0.01, **limits, **options)
    timed = [each for each in first.candidates if each.seconds is not None]
    assert 1 <= len(timed) < len(first.candidates)
    for each in timed:
        assert each.seconds is not None
        assert each.cores is not None
        assert each.seconds.total > 0
        assert each.cores.publisher == pytest.approx(each.seconds.publisher / 10**5 * 10)
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_text())
    assert timed[0].matcher is not None
    assert any(name.startswith(timed[0].matcher.fingerprint) for name in kept)
    again = planned(QUOTES, "issue = 'IBM' AND price < 20", timing=0, **limits, **options)
    assert {each.name: each.seconds for each in again.candidates} == {
        each.name: each.seconds for each in first.candidates
    }


def test_a_folder_of_timings_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = Timings(tmp_path)
    timings.put("a", {("publisher", "event"): 1.0})
    timings.save()
    assert Timings(tmp_path).get("a") == {("publisher", "event"): 1.0}
    timings.path.write_text("{")
    with pytest.raises(ParameterError, match="it is damaged; delete it"):
        Timings(tmp_path)
    monkeypatch.setenv("CCBPS_CACHE", str(tmp_path))
    assert Timings().get("a") is None, "the user's own folder is a convenience"
    (tmp_path / "file").write_text("")
    blocked = Timings(tmp_path / "other")
    blocked.path = tmp_path / "file" / "rates"
    blocked.put("a", {})
    with pytest.raises(ParameterError, match="name a folder"):
        blocked.save()


@pytest.mark.parametrize(("call", "unit", "most"), [(1e-2, 2e-5, 1024), (0, 1e-6, 8192)])
def test_what_a_call_takes_is_told_from_what_a_row_takes(
    call: float, unit: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def prepare(count: int) -> Callable[[], object]:
        return lambda: clock.append(clock[-1] + call + count * unit)

    monkeypatch.setattr(estimate, "process_time", lambda: clock[-1])
    assert estimate.work_of(prepare, most) == pytest.approx((call, unit))


def test_a_call_counts_once_for_each_batch() -> None:
    batch = estimate.BATCH
    rates: dict[Any, float] = {
        ("publisher", "events"): 1.0,
        ("subscriber", "interests"): 1.0,
        ("broker", "pairs"): 1.0,
    }
    assert estimate.seconds_of(rates, 5, 3) == Seconds(1, 1, 3)
    assert estimate.seconds_of(rates, 2 * batch, 3) == Seconds(2, 1, 6)
    assert estimate.cores_of(rates, batch / 2, 3) == Seconds(0.5, 0, 1.5)


def test_a_matcher_estimates_itself() -> None:
    matcher = planned(QUOTES, "issue = 'IBM' AND price < 20").best("FormulaMatch")
    guess = matcher.estimate(events=10, subscriptions=3)
    assert (guess.rounds, guess.seconds) == (30, None)
    assert guess.traffic == matcher.traffic(10, 3)
    timed = matcher.estimate(events=10, subscriptions=3, interest="price < 20")
    assert isinstance(timed.seconds, Seconds)
    with pytest.raises(ParameterError, match="events"):
        matcher.estimate(events=0, subscriptions=3)


def test_a_template_without_values_has_no_seconds() -> None:
    found = planned(QUOTES, "price < :limit", timing=1)
    assert found.candidates
    assert all(each.seconds is None for each in found.candidates)
    assert {"call bind first" in each.reason for each in found.others if "broker" in each.name} == {
        True
    }


# -- text and picture -----------------------------------------------------------------------------


def test_a_plan_shows_no_constants_of_the_predicate() -> None:
    found = planned(QUOTES, parsed(QUOTES, "issue = :issue AND price < :limit"))
    shown = found.explain() + repr(found) + json.dumps(found.to_dict())
    assert "SAP" not in shown.replace(QUOTES.to_json(), "")


def test_the_table_says_how_fast_answers_add_up() -> None:
    """To whom the broker's answers are told; not for three brokers that learn none."""
    text = "issue = 'IBM' AND price < 20"
    found = planned(QUOTES, text, brokers=3, events_per_second=10, security="broken")
    learning, others = [], []
    for each in (*found.candidates, *found.refused):
        names = {leak.name for leak in each.leaks}
        (learning if "match" in names and "data" not in names else others).append(each)
    assert {each.placing for each in learning} == {placing(parsed(QUOTES, text))}
    assert {each.placing for each in others} == {None}
    assert any(each.matcher is not None for each in others)
    known = learning[0].placing
    assert known is not None
    content = json.loads(json.dumps(learning[0].to_dict()))["from_answers"]
    assert content["seconds"] == known.events / 10
    assert f"after at most {known.chosen} chosen events" in found.explain()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 seconds"), (90, "90 seconds"), (600, "10 minutes"), (1e6, "12 days")],
)
def test_times_are_written_in_their_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_table_says_that_parameters_may_follow_from_constants() -> None:
    def members(text: str) -> int:
        found = planned(QUOTES, text, hide={"constants"}).best("MembershipMatch")
        assert isinstance(found, MembershipMatch)
        return found.members

    few, many = "price IN (1, 2)", "price IN (1, 2, 3)"
    assert members(few) < members(many)
    assert "parameters may follow from the constants" in planned(QUOTES, few).explain()


def test_the_table_says_what_voids_a_card() -> None:
    # Of two candidates that show the same, one may depend on every subscriber, and one on a pair.
    found = planned(allow_leaks={"match", "formula"})
    hazard = "the broker colludes with anyone who holds the seed"
    for each in found.candidates:
        said = any(hazard in text for text in each.to_dict()["hazards"])
        assert said == (each.needs.startswith("one seed for the publisher and all"))
    assert hazard in found.explain()


# What cards say in words of a broker that works together with one client.
SAID_OF_CLIENTS = {
    "nothing": ("also together with any clients",),
    "pairs": ("colludes with one of the two clients", "clients other than those of the matching"),
    "others": (
        "colludes with anyone who holds the seed",
        "every client has the keys",
        "anyone who has a group's key",
        "a client colludes with the broker",
        "the broker colludes with a client",
        "the broker colludes with one client",
        "broker and one user: together they",
        "the key is given to subscribers",
    ),
}


def test_cards_say_in_words_what_a_broker_learns_with_a_client() -> None:
    seen, schemes = set(), set()
    for schema, text in CASES:
        for way in ways(schema, parsed(schema, text)):
            if isinstance(way, Matcher):
                card = way.leakage
                words = " ".join((card.adversary, *card.hazards, *card.attacks))
                said = {
                    kind
                    for kind, phrases in SAID_OF_CLIENTS.items()
                    if any(phrase in words for phrase in phrases)
                }
                assert said == {card.with_client}, way
                seen.add(card.with_client)
                schemes.add(type(way))
    assert seen == {*WITH_CLIENT}
    assert len(schemes) > len(SCHEMES) - 3


def test_the_table_says_what_a_broker_learns_with_a_client() -> None:
    found = planned()
    shown = found.explain(every=True)
    for each in found.candidates:
        assert f"at most: {WITH_CLIENT[each.with_client]}" in shown
        assert each.to_dict()["with_client"] == each.with_client
    (broker,) = {e.with_client for e in found.candidates if e.way.name == "one trusted broker"}
    assert broker == "others"


def test_the_table_lists_one_candidate_of_each_kind() -> None:
    found = planned()
    short, full = found.explain().splitlines(), found.explain(every=True).splitlines()
    assert len(short) < len(full)
    rows = [line for line in full if line.startswith(tuple(" 0123456789"))]
    assert all(any(each.name in line for line in rows) for each in found.candidates)
    assert len({each.name for each in found.candidates}) == len(found.candidates)


def test_a_plan_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = planned(QUOTES, "issue = 'IBM' AND price < 20", brokers=1)
    picture = found.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000
    (axes,) = picture.axes
    lines = {line.get_label(): line for line in axes.lines}
    for each in found.candidates:
        if each.name in lines:
            xs, ys = (list(map(int, part)) for part in lines[each.name].get_data())
            assert 1000 in xs
            assert ys[xs.index(1000)] == each.total_bytes
            assert all(a <= b for a, b in pairwise(ys))


def test_candidates_are_plain_data() -> None:
    each: Candidate = planned().candidates[0]
    content = json.loads(json.dumps(each.to_dict()))
    assert content["bytes"]["total"] == each.total_bytes
    assert content["leaks"] == sorted(leak.name for leak in each.leaks)


def test_matchers_whose_extra_is_missing_are_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prime_order._group.cache_clear()
    monkeypatch.setitem(sys.modules, "coincurve", None)
    found = ccbps.plan(QUOTES, "issue = 'IBM'", events=10, subscriptions=2, timing=0)
    monkeypatch.undo()
    reasons = {each.name: each.reason for each in found.others}
    assert "pip install 'ccbps[groups]'" in reasons["KeywordMatch"]
    assert found.matchers


@pytest.mark.parametrize("missing", ["matplotlib", "matplotlib.figure"])
def test_a_plan_that_cannot_be_drawn_names_the_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ccbps.plan(QUOTES, "issue = 'IBM'", events=10, subscriptions=2, timing=0)
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ImportError, match=r"Plan.plot needs matplotlib.*pip install 'ccbps\[plot\]'"
    ):
        found.plot()
