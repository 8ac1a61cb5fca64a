"""Leakage cards are data, and read as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.leakage import FROM_ANSWERS, LeakageCard, Protects
from ccbps.matching import (
    SCHEMES,
    Answers,
    BranchingMatch,
    FormulaMatch,
    FSGPMatch,
    Matcher,
    OFSGPMatch,
    PublicFunctionMatch,
    UGPMatch,
)

SCHEMA = Schema(price=UInt(8), volume=UInt(4))
CARD = LeakageCard(
    scheme="Example",
    adversary="the broker",
    hides=("the event", "the predicate"),
    protects=frozenset({Protects.EVENT, Protects.FORMULA}),
    learns=("the answer",),
    security="computational",
    assumption="AES",
    reuse="reusable",
    hazards=("a key is published",),
)


MATCHERS = [
    FormulaMatch.box(SCHEMA),
    FormulaMatch(SCHEMA, "price < :p"),
    BranchingMatch.box(SCHEMA),
    BranchingMatch(SCHEMA, "price < :p"),
    FSGPMatch(SCHEMA, 1),
    OFSGPMatch(SCHEMA, 1),
    OFSGPMatch(SCHEMA, 1, group="S5"),
    PublicFunctionMatch.hamming(4, limit=1),
    PublicFunctionMatch.hamming(4),
    UGPMatch(Schema(x=UInt(1)), 0),
]


@pytest.mark.parametrize("card", [CARD, *(matcher.leakage for matcher in MATCHERS)])
def test_card_survives_json(card: LeakageCard) -> None:
    data = json.loads(json.dumps(card.to_dict()))
    assert set(data) == {*LeakageCard.__struct_fields__}
    restored: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in data.items()
    }
    restored["protects"] = frozenset(Protects[name] for name in restored["protects"])
    assert LeakageCard(**restored) == card


def test_card_reads_as_text_with_everything_in_it() -> None:
    text = " ".join(str(CARD).split())
    for name, value in structs.asdict(CARD).items():
        # The attacks, `hides`, and hazards show these.
        if name in ("answers", "protects", "with_client"):
            continue
        for part in value if isinstance(value, tuple) else (value,):
            assert part in text
    assert "known attacks: from answers" in text
    unanswered = structs.replace(CARD, answers=False, attacks=())
    assert "known attacks: none" in " ".join(str(unanswered).split())


def test_card_without_hazards_says_so() -> None:
    card = structs.replace(CARD, hazards=(), attacks=("known plaintext",))
    assert "void if: -" in " ".join(str(card).split())
    assert "known attacks: known plaintext" in " ".join(str(card).split())


def test_card_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        CARD.security = "perfect"  # type: ignore[misc]


def test_branching_cards_tell_box_and_template_apart() -> None:
    box = BranchingMatch.box(SCHEMA).leakage
    template = BranchingMatch(SCHEMA, "price < :p").leakage
    assert box.security == template.security == "perfect"
    assert box.reuse == template.reuse == "one-time"
    assert any("which attributes" in text for text in box.hides)
    assert not any("which attributes" in text for text in template.hides)
    assert any("template" in text for text in template.learns)
    assert not any("template" in text for text in box.learns)


def test_group_cards_tell_what_of_a_subscription_is_public() -> None:
    fixed, public = OFSGPMatch(SCHEMA, 1).leakage, PublicFunctionMatch.hamming(4).leakage
    assert any("depth 1" in text for text in fixed.learns)
    assert any("everything about the predicate" in text for text in fixed.hides)
    assert any("the circuit" in text for text in public.learns)
    assert not any("predicate" in text for text in public.hides)
    assert any("y, t" in text for text in public.hides)


def test_attacks_from_answers_stand_on_a_card_once_and_last() -> None:
    card = structs.replace(CARD, attacks=("frequency: of values",))
    assert card.attacks == ("frequency: of values", *FROM_ANSWERS)
    assert structs.replace(card, scheme="Another").attacks == card.attacks
    assert structs.replace(CARD, answers=False, attacks=()).attacks == ()


def test_only_a_broker_that_sees_no_answers_is_spared_attacks_from_answers() -> None:
    schema, spared = Schema(x=UInt(1)), []
    for scheme in SCHEMES:
        texts = ("x = 1", "hamming(x, :y) <= 0")
        matchers = [m for text in texts for m in scheme.propose(schema, schema.parse(text))]
        assert matchers, scheme
        for matcher in matchers:
            assert matcher.leakage.answers == (scheme.answers is not Answers.SUBSCRIBER)
            if matcher.leakage.attacks[-2:] != FROM_ANSWERS:
                spared.append(scheme.__name__)
    assert spared == ["ObliviousTopicMatch"]


@pytest.mark.parametrize("matcher", MATCHERS, ids=repr)
def test_cards_of_all_matchers_are_of_one_time_messages(matcher: Matcher) -> None:
    card = matcher.leakage
    assert card.scheme == type(matcher).__name__
    assert (card.security, card.reuse, card.attacks) == ("perfect", "one-time", FROM_ANSWERS)
    assert any("used for two events" in hazard for hazard in card.hazards)
    assert any("colludes" in hazard for hazard in card.hazards)
