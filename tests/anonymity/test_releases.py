"""Released records: classes, what subscriptions mean on them, versions, and attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Int, Keyword, Schema, SharedSeed, Text, UInt
from ccbps.anonymity import Anonymizer, Distinct, Diversity, Entropy, Recursive, Release
from ccbps.attacks import certainty, records_left
from ccbps.errors import ParameterError
from ccbps.matching import FormulaMatch, KeywordDictionaryMatch, TagMatch, ThreeBrokerMatch
from ccbps.predicates.codes import unpack

SCHEMA = Schema(age=UInt(7), city=Category(["Bonn", "Graz", "Linz"], nullable=True), ill=UInt(2))
ILL = ["ill"]

records = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.integers(0, 127),
            "city": st.sampled_from(["Bonn", "Graz", "Linz", None]),
            "ill": st.integers(0, 3),
        }
    ),
    max_size=40,
)
rules = st.sampled_from([None, Distinct(2), Entropy(1.6), Recursive(3, 2)])


def codes_of(release: Release) -> dict[str, list[int]]:
    return {name: unpack(codes) for name, codes in release.events.codes.items()}


@given(records, st.integers(1, 5), rules, st.integers(1, 9))
def test_k_rows_are_alike_and_hold_their_own_values(
    rows: list[dict[str, Any]], k: int, rule: Diversity | None, more: int
) -> None:
    anonymizer = Anonymizer(SCHEMA, k, sensitive=ILL, diversity=rule)
    release = anonymizer.release(rows)
    check(release, rows, k, rule)
    coarser = release.derive(k + more)
    check(coarser, rows, k + more, rule)
    # Whole classes are merged, and rows are in the same order.
    if coarser.events.count:
        assert coarser.events.count == release.events.count
        for number in np.unique(release.classes):
            assert len(np.unique(coarser.classes[release.classes == number])) == 1


def check(release: Release, rows: list[dict[str, Any]], k: int, rule: Diversity | None) -> None:
    plain = (
        {name: unpack(codes) for name, codes in SCHEMA.encode(rows).codes.items()} if rows else {}
    )
    out = codes_of(release)
    alike: dict[tuple[int, ...], list[int]] = {}
    widths = []
    for at, row in enumerate(release.rows.tolist()):
        for name in ("age", "city"):
            low, high = out[f"{name}_low"][at], out[f"{name}_high"][at]
            assert low <= plain[name][row] <= high
            widths.append((high - low) / (SCHEMA[name].size - 1))
        assert out["ill"][at] == plain["ill"][row]
        key = tuple(out[f"{n}_{e}"][at] for n in ("age", "city") for e in ("low", "high"))
        alike.setdefault(key, []).append(out["ill"][at])
    for ills in alike.values():
        assert len(ills) >= k
        assert rule is None or rule.allows([ills.count(ill) for ill in set(ills)])
    report = release.report
    assert (report.records, report.suppressed) == (len(rows), len(rows) - len(release.rows))
    assert report.suppression == (report.suppressed / len(rows) if rows else 0)
    assert report.loss == pytest.approx(np.mean(widths) if widths else 0)
    sizes = np.bincount(release.classes)
    assert (report.classes, report.over) == (len(sizes), sum(s for s in sizes if s > k))
    assert report.smallest == (min(sizes) if len(sizes) else 0)
    ills = [row["ill"] for row in rows]
    if len(rows) >= k and (rule is None or rule.allows([ills.count(n) for n in set(ills)])):
        assert report.suppressed == 0


PREDICATES = [
    "age < 30",
    "age >= 64 AND ill = 2",
    "age BETWEEN 20 AND 29 OR age BETWEEN 60 AND 70",
    "city = 'Graz' AND age > 50",
    "city IS NULL",
    "city IS NOT NULL AND age <> 40",
    "NOT (city = 'Bonn' OR age < 12) AND ill IN (0, 3)",
    "TRUE",
]


@given(records, st.integers(1, 4), st.sampled_from(PREDICATES))
def test_a_rewritten_subscription_misses_nothing(
    rows: list[dict[str, Any]], k: int, text: str
) -> None:
    """Possible is exact, class by class; certain never says too much, and of a box all."""
    release = Anonymizer(SCHEMA, k, sensitive=ILL).release(rows)
    if not release.events.count:
        return
    predicate, out = SCHEMA.parse(text), codes_of(release)
    possible = release.anonymizer.rewrite(text).evaluate(release.events)
    certain = release.anonymizer.rewrite(predicate, certain=True).evaluate(release.events)
    assert not (certain & ~predicate.evaluate(rows)[release.rows]).any()
    for at in range(release.events.count):
        every = [
            {"age": age, "city": city, "ill": out["ill"][at]}
            for age in range(out["age_low"][at], out["age_high"][at] + 1)
            for city in [None, "Bonn", "Graz", "Linz"][
                out["city_low"][at] : out["city_high"][at] + 1
            ]
        ]
        truth = predicate.evaluate(every)
        assert possible[at] == truth.any()
        assert certain[at] <= truth.all()
        if " OR " not in text and "<>" not in text:
            assert certain[at] == truth.all()


@pytest.mark.parametrize("name", ["formula", "tag", "keyword", "three"])
def test_a_matcher_encodes_a_release(name: str) -> None:
    rng = np.random.default_rng(6)
    release = Anonymizer(SCHEMA, 3, sensitive=ILL).release(
        {
            "age": rng.integers(0, 128, 20),
            "city": rng.choice(["Bonn", "Graz", "Linz"], 20).tolist(),
            "ill": rng.integers(0, 4, 20),
        }
    )
    schema, events = release.anonymizer.released, release.events
    texts = ["age < 30", "age >= 64 AND ill = 2", "city = 'Graz' AND age > 50"]
    interests = [release.anonymizer.rewrite(text) for text in texts]
    expected = np.stack([interest.evaluate(events) for interest in interests], axis=1)
    assert 0 < expected.sum() < expected.size
    if name == "formula":
        matcher, seed = FormulaMatch.box(schema), SharedSeed.generate()
        for at, interest in enumerate(interests):
            rounds = range(100 * at, 100 * at + len(events))
            sent = matcher.publisher(seed).encode(events, rounds=rounds)
            kept = matcher.subscriber(seed).encode([interest] * len(events), rounds=rounds)
            assert matcher.broker().match(sent, kept).tolist() == expected[:, at].tolist()
        return
    if name == "three":
        brokers = ThreeBrokerMatch.box(schema).local()
        assert brokers.match_all(events, interests).tolist() == expected.tolist()
        return
    points = {n: [*range(0, 128, 8)] for n in ("age_low", "age_high")}
    points |= {n: ["Bonn", "Graz", "Linz"] for n in ("city_low", "city_high")}
    one = TagMatch(schema) if name == "tag" else KeywordDictionaryMatch(schema, points=points)
    server = one.key_server()
    sent = one.publisher(server.publisher_key()).encode(events)
    kept = one.subscriber(server.subscriber_key("alice")).encode(interests)
    answers = one.broker(server.broker_key()).match_all(sent, kept)
    assert (answers >= expected).all()
    assert name == "keyword" or answers.tolist() == expected.tolist()


def test_a_release_that_is_handed_out_has_no_rows() -> None:
    rng = np.random.default_rng(9)
    values = {"x": rng.integers(0, 1000, 50)}
    own = Anonymizer(Schema(x=UInt(10)), 3).release(values)
    public = own.public
    assert public.rows.tolist() == [*range(50)]
    assert (np.diff(public.classes) >= 0).all()
    assert public.report.loss == pytest.approx(own.report.loss)
    assert public.report.over == own.report.over
    assert public.derive(7).classes.tolist() == sorted(own.derive(7).classes.tolist())
    order = np.argsort(own.classes, kind="stable")
    assert codes_of(public)["x_low"] == [codes_of(own)["x_low"][row] for row in order]


def test_values_are_not_shown() -> None:
    release = Anonymizer(SCHEMA, 1, sensitive=ILL).release([{"age": 99, "city": "Graz", "ill": 3}])
    assert repr(release) == "<Release: 1 of 1 records>"
    assert "loss=0.0" in repr(release.report)
    assert repr(release.anonymizer) == "<Anonymizer: k=1 over age, city>"


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (SCHEMA, {"sensitive": "ill"}, "list of names"),
        (SCHEMA, {"sensitive": ["no"]}, "no attribute 'no'"),
        (SCHEMA, {"sensitive": [*SCHEMA]}, "at least one attribute"),
        (SCHEMA, {"diversity": Distinct(2)}, "name them"),
        (SCHEMA, {"method": "optimal"}, "one identifying attribute, got 3"),
        (SCHEMA, {"method": "best"}, "method must be"),
        (Schema(a=Keyword(16)), {}, "'a' cannot become a range"),
        (Schema(a=Text(20)), {}, "'a' cannot become a range: it has"),
    ],
)
def test_what_is_refused(schema: Schema, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Anonymizer(schema, 2, **options)


def test_other_refusals() -> None:
    with pytest.raises(ParameterError, match="attribute 'a_low': rename"):
        _ = Anonymizer(Schema(a=UInt(2), a_low=UInt(2)), 2).released
    release = Anonymizer(SCHEMA, 2, sensitive=ILL).release([])
    with pytest.raises(ParameterError, match="a finer release needs the records"):
        release.derive(1)
    with pytest.raises(ParameterError, match="never matches"):
        release.anonymizer.rewrite("age < 3 AND age > 5")
    wide = Schema(a=UInt(9), b=UInt(9))
    text = " AND ".join(f"{n} IN ({', '.join(map(str, range(0, 40, 2)))})" for n in "ab")
    with pytest.raises(ParameterError, match="more than 64 boxes"):
        Anonymizer(wide, 2).rewrite(text)


# -- attacks ---------------------------------------------------------------------------------------


def test_two_receivers_of_versions_learn_the_finer_one_only() -> None:
    """60 values of 1,000, k = 3 and 5; independent versions intersect in single rows."""
    schema = Schema(x=UInt(10))
    rng = np.random.default_rng(5)
    values = {"x": np.sort(rng.integers(0, 1000, 60))}
    fine = Anonymizer(schema, 3).release(values)
    derived, independent = fine.derive(5), Anonymizer(schema, 5).release(values)
    alone = records_left([fine]).tolist()
    assert records_left([fine, derived]).tolist() == alone
    assert records_left([fine, independent]).min() < 3
    # A step further, and from the derived version alone, it is the same.
    assert records_left([fine, derived, derived.derive(9)]).tolist() == alone
    with pytest.raises(ParameterError, match="at least one release"):
        records_left([])


def test_versions_are_derived_in_a_chain() -> None:
    """Versions for 5 and 9 that are both derived from that for 3 give classes of 3 away."""
    values = {"x": np.sort(np.random.default_rng(6).integers(0, 1000, 90))}
    fine = Anonymizer(Schema(x=UInt(10)), 3).release_classes(values, runs_of(90, 3))
    assert records_left([fine.derive(5), fine.derive(9)]).min() == 3
    chain = [*fine.versions(5, 9)]
    assert records_left(chain).tolist() == records_left(chain[:1]).tolist()
    assert records_left(chain).min() >= 5
    with pytest.raises(ParameterError):
        fine.versions(9, 5)


def runs_of(count: int, k: int) -> np.ndarray:
    """Classes of the check program: k sorted rows each, the rest with the last."""
    return np.minimum(np.arange(count) // k, count // k - 1)


def test_loss_of_versions() -> None:
    """.038 for k = 3; .088 merged and .068 independent for k = 5; the check's classes."""
    schema, losses = Schema(x=UInt(10)), []
    for seed in range(60):
        values = {"x": np.sort(np.random.default_rng(seed).integers(0, 1000, 60))}
        fine = Anonymizer(schema, 3).release_classes(values, runs_of(60, 3))
        other = Anonymizer(schema, 5).release_classes(values, runs_of(60, 5))
        losses.append([r.report.loss for r in (fine, fine.derive(5), other)])
        assert losses[-1][0] < losses[-1][2] < losses[-1][1]
    # The domain here has 1,024 values.
    means = np.mean(losses, axis=0) * 1023 / 1000
    assert means == pytest.approx([0.038, 0.088, 0.068], abs=0.01)


@pytest.mark.parametrize("by_broker", [True, False])
def test_the_order_of_records_does_not_tell_finer_classes_or_arrival(by_broker: bool) -> None:
    schema = Schema(age=UInt(7), mark=UInt(8))
    rng = np.random.default_rng(1)
    ages, marks = np.arange(128), rng.permutation(128)
    fine = Anonymizer(schema, 4, sensitive=["mark"]).release({"age": ages, "mark": marks})
    coarse = (fine.public if by_broker else fine).derive(16).public
    age_of = np.empty(128)
    age_of[marks] = ages
    for number in range(8):
        inside = age_of[coarse.events.codes["mark"][0][coarse.classes == number].astype(int)]
        assert len(inside) == 16
        # The receiver takes the first records of a class for the youngest.
        assert abs(np.corrcoef(np.arange(16), inside)[0, 1]) < 0.6


def test_homogeneity_gives_a_sensitive_value_away_without_a_rule() -> None:
    """Old people all have illness 3: their class says so, unless a rule asks for variety."""
    rng = np.random.default_rng(8)
    age = rng.integers(0, 128, 400)
    rows = {"age": age, "ill": np.where(age > 100, 3, rng.integers(0, 3, 400))}
    schema = Schema(age=UInt(7), ill=Int(4))

    def known(diversity: Diversity | None) -> float:
        anonymizer = Anonymizer(schema, 5, sensitive=ILL, diversity=diversity)
        return float(certainty(anonymizer.release(rows)).max())

    assert known(None) == 1
    assert known(Distinct(2)) < 1
    assert known(Entropy(2)) <= 0.9
    assert known(Recursive(2, 2)) < 2 / 3


def test_a_record_that_is_hidden_says_nothing_about_who_it_is() -> None:
    anonymizer = Anonymizer(SCHEMA, 5, sensitive=ILL)
    one = anonymizer.hidden([{"age": 99, "city": "Graz", "ill": 3}])
    other = anonymizer.hidden([{"age": 1, "city": None, "ill": 3}])
    assert codes_of(one) == codes_of(other)
    assert one.report.loss == 1
    assert (one.report.over, one.report.smallest) == (1, 1)
    assert anonymizer.rewrite("age = 7").evaluate(one.events).tolist() == [True]


@pytest.mark.slow
def test_a_million_records() -> None:
    rng = np.random.default_rng(2)
    schema = Schema(a=UInt(16), b=UInt(16), ill=UInt(4))
    count = 1_000_000
    rows = {
        "a": rng.integers(0, 1 << 16, count),
        "b": rng.integers(0, 1 << 16, count),
        "ill": rng.integers(0, 16, count),
    }
    release = Anonymizer(schema, 10, sensitive=ILL, diversity=Distinct(3)).release(rows)
    assert release.report.suppressed == 0
    assert release.report.smallest >= 10
    assert release.report.loss < 0.01
