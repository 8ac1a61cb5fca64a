"""Every scheme of the catalogue does what `ccbps.testing` asks of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt, matching
from ccbps.errors import PredicateError
from ccbps.matching import SCHEMES, Answers, Keying, Matcher, broken
from ccbps.matching.schemes import page
from ccbps.testing import OFFERS, Case, cases, conformance_tests
from ccbps.testing.cases import CHECKS, proposed
from tests.support.effort import examples
from tests.support.strategies import (
    Const,
    Drawn,
    Node,
    domain,
    predicates,
    record,
    rows,
    schemas,
    small_types,
)

DOCS = Path(__file__).parents[2] / "docs"
BUDGET = 0.5
"""Seconds of random schemas for each scheme, about."""


LONG: tuple[type[Matcher], ...] = (
    matching.CommutativeMatch,
    matching.FSGPMatch,
    matching.KeywordFilterMatch,
    *(scheme for scheme in SCHEMES if scheme.__name__ in broken.__all__),
)
"""Schemes whose conformance is tested with the slow tests: they are broken, or like another one."""

TestCatalogue = conformance_tests(*(scheme for scheme in SCHEMES if scheme not in LONG))
TestRest = pytest.mark.slow(conformance_tests(*LONG))
TestWhatCardsPromise = pytest.mark.slow(conformance_tests(*SCHEMES, thorough=True))


def topics(schema: Schema) -> st.SearchStrategy[Drawn]:
    """A value for every attribute; or all within some bits of a private value, of the first."""
    values = st.tuples(*(domain(schema[name]).map(Const) for name in schema))
    leaves = values.map(
        lambda row: tuple(
            Node("compare", name, (one,), detail=("=", False))
            for name, one in zip(schema, row, strict=True)
        )
    )
    equal = leaves.map(lambda parts: Drawn(schema, Node("and", parts=parts)))
    first = schema.names[0]
    if not isinstance(schema[first], UInt) or schema[first].nullable or len(schema) > 1:
        return equal
    near = st.builds(
        lambda value, limit: Drawn(
            schema, Node("hamming", first, (Const(value, "p0"),), detail=limit), {"p0": value}
        ),
        domain(schema[first]),
        st.integers(0, 3),
    )
    return st.one_of(equal, near)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_random_schemas_and_predicates_against_plaintext(scheme: type[Matcher]) -> None:
    """As many as the scheme is fast."""
    known = next(case for offer in OFFERS for case in cases(scheme, [offer]))
    start = time.process_time()
    known = Case(known.matcher, known.interests, known.records)  # with keys of its own
    CHECKS["answers are the plaintext meaning"](known)
    once = time.process_time() - start
    # Few attributes of few bits, as some schemes enumerate.
    small = schemas(small_types(), max_attributes=2)

    seen: list[Matcher] = []

    @settings(
        max_examples=max(3, min(examples(40), int(BUDGET / (once + 0.01)))),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        tiny = st.integers(1, 3).map(lambda bits: Schema(x=UInt(bits)))
        some = st.one_of(tiny, small, small if once > 0.05 else schemas(max_attributes=3))
        formulas = "=" in known.matcher.operators
        schema = data.draw(some if formulas else tiny)
        others = predicates(schema) if formulas else st.nothing()
        drawn = data.draw(st.one_of(topics(schema), others))
        wanted = schema.parse(drawn.text)
        made_for = proposed(scheme, schema, wanted)
        assume(made_for)
        matcher = made_for[0]
        assume(matcher.event_bytes < 1 << 16)
        seen.append(matcher)
        names = matcher.private_names
        bound = wanted.bind(**drawn.private)
        interest = bound if names is None else {name: drawn.private[name] for name in names}
        try:
            matcher.prepare(interest)
        except PredicateError:
            assume(False)
        records = [record(row) for row in data.draw(rows(schema, max_size=5))]
        case = Case(matcher, [interest], records)
        assert case.party.answers(case.records, [interest]).tolist() == case.meaning.tolist()
        exact = bound.evaluate(schema.encode(case.records))
        assert not (exact & ~case.meaning[:, 0]).any()

    run()
    assert seen


def test_the_catalogue_lists_each_scheme_once_with_a_page() -> None:
    names = [scheme.name for scheme in SCHEMES]
    assert len(set(names)) == len(names)
    exported = {name for name in matching.__all__ if name.endswith("Match")}
    assert not exported & {*broken.__all__}
    assert exported | {*broken.__all__} == {scheme.__name__ for scheme in SCHEMES}
    for scheme in SCHEMES:
        path = DOCS / "matchers" / f"{page(scheme)}.md"
        assert path.is_file(), f"{scheme.__name__} has no page: write docs/matchers/{path.name}"
        assert scheme.keying in Keying and scheme.answers in Answers
    pages = {path.stem for path in (DOCS / "matchers").glob("*.md")} - {"index"}
    assert pages == {page(scheme) for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_a_matcher_lists_what_its_users_need(scheme: type[Matcher]) -> None:
    matcher = next(case for offer in OFFERS for case in cases(scheme, [offer])).matcher
    shown = [name for name in dir(matcher) if not name.startswith("_")]
    assert {"publisher", "subscriber", "broker", "leakage", "explain"} <= set(shown)
    assert len(shown) == len(set(shown)) <= 15 and all(hasattr(matcher, name) for name in shown)
    assert ("key_server" in shown) == (scheme.keying is Keying.SERVER)
