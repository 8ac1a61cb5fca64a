"""Check what a matcher says of itself: its text, its parameters, its card and its costs."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from ccbps import Bool, Schema
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    ParameterError,
    PredicateError,
)
from ccbps.leakage import Protects
from ccbps.matching import Answers, Cost, Keying, from_json
from ccbps.testing.cases import Case, check


@check
def matchers_survive_pickling_and_text(case: Case) -> None:
    matcher = case.matcher
    for again in (
        pickle.loads(pickle.dumps(matcher)),
        copy.deepcopy(matcher),
        type(matcher).from_json(matcher.to_json()),
    ):
        assert again == matcher and hash(again) == hash(matcher)
        assert again.fingerprint == matcher.fingerprint and repr(again) == repr(matcher)
        assert (again.event_bytes, again.interest_bytes) == (
            matcher.event_bytes,
            matcher.interest_bytes,
        )
        assert again.to_json() == matcher.to_json()
        for interest in case.interests:
            again.prepare(interest)


@check
def the_catalogue_finds_it_by_its_text(case: Case) -> None:
    found = from_json(case.matcher.to_json())
    assert type(found) is type(case.matcher)
    assert found == case.matcher


@check
def another_schema_makes_another_matcher(case: Case) -> None:
    matcher = case.matcher
    wider = Schema({**{name: matcher.schema[name] for name in matcher.schema}, "more": Bool()})
    try:
        other = type(matcher).from_parameters(wider, matcher.parameters())
    except CcbpsError:
        return
    assert other != matcher and other.fingerprint != matcher.fingerprint


@check
def bent_descriptions_are_refused(case: Case) -> None:
    fields = json.loads(case.matcher.to_json())
    kind = type(case.matcher)
    bent: list[Any] = [
        "",
        "[]",
        "null",
        "{" * 5000,
        json.dumps({**fields, "scheme": "nothing"}),
        case.matcher.to_json().replace('"ccbps"', '"ccbps": "matcher", "ccbps"', 1),
        json.dumps({**fields, "scheme_version": 99}),
        json.dumps({**fields, "scheme_version": float(fields["scheme_version"])}),
        json.dumps({**fields, "version": 2}),
        json.dumps({**fields, "version": True}),
        json.dumps({**fields, "ccbps": "schema"}),
        json.dumps({**fields, "parameters": []}),
        json.dumps({**fields, "schema": {}}),
        json.dumps({**fields, "more": 1}),
        json.dumps({**fields, "parameters": {**fields["parameters"], "nonsense": 1}}),
        json.dumps({name: value for name, value in fields.items() if name != "schema"}),
    ]
    for text in bent:
        with pytest.raises((DecodeError, ParameterError)):
            kind.from_json(text)
    for name in fields["parameters"]:
        left = {key: value for key, value in fields["parameters"].items() if key != name}
        with pytest.raises((DecodeError, ParameterError)):
            kind.from_json(json.dumps({**fields, "parameters": left}))
        odd: tuple[Any, ...] = "'; DROP", {"a": []}, [[[]]], -1, 1e300
        for value in odd:
            changed = {**fields, "parameters": {**fields["parameters"], name: value}}
            try:
                made = kind.from_json(json.dumps(changed))
            except (DecodeError, ParameterError, PredicateError):
                continue
            assert made != case.matcher


@check
def the_card_and_the_costs_are_whole(case: Case) -> None:
    matcher, card = case.matcher, case.matcher.leakage
    assert card.scheme.partition(",")[0] == type(matcher).__name__
    assert card.reuse == ("one-time" if matcher.keying is Keying.ROUNDS else "reusable")
    assert card.learns and card.assumption and card.hides
    assert card.protects <= set(Protects)
    assert (Protects.MATCH in card.protects) == (matcher.answers is Answers.SUBSCRIBER)
    assert card.answers == (matcher.answers is not Answers.SUBSCRIBER)
    if card.security == "perfect":
        assert {Protects.EVENT, Protects.EQUALITY_OF_EVENTS} <= card.protects
    if card.security == "broken":
        assert card.attacks and "[broken]" in repr(matcher)
    assert {cost.role for cost in matcher.costs} >= {"publisher", "subscriber"}
    for cost in matcher.costs:
        assert isinstance(cost, Cost) and cost.count > 0
    assert matcher.sizes.event > 0 and matcher.sizes.interest > 0
    text = matcher.explain()
    for part in (type(matcher).__name__, *card.learns, *(str(cost) for cost in matcher.costs)):
        assert " ".join(part.split()) in " ".join(text.split())
