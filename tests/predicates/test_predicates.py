"""Predicates: the language and its errors, binding, the code form's fixed shape, and boxes."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import json
import logging
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import (
    DecodeError,
    ParameterError,
    PredicateError,
    PredicateSyntaxError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.predicates import (
    AllOf,
    AnyOf,
    AtLeastOf,
    Bool,
    Box,
    Category,
    Decimal,
    Events,
    Form,
    HammingWithin,
    InRange,
    Int,
    Keyword,
    Predicate,
    Schema,
    Text,
    Timestamp,
    UInt,
    iter_leaves,
)
from ccbps.predicates.codes import in_range, pack
from ccbps.predicates.expression import AtLeast, Not
from ccbps.predicates.form import ALWAYS, NEVER
from ccbps.predicates.syntax import MAX_TEXT
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.strategies import Drawn, predicates, record, rows, schemas, small_types

SCHEMA = Schema(
    issue=Category(["IBM", "IBN", "SAP"]),
    price=UInt(8),
    volume=UInt(8, nullable=True),
    note=Text(4),
    word=Keyword(64),
    day=Timestamp("day", "2024-01-01", "2024-12-31"),
    flag=Bool(),
    maybe=Bool(nullable=True),
)


ROW: dict[str, Any] = {
    "issue": "IBM",
    "price": 120,
    "volume": None,
    "note": "abc",
    "word": "hello",
    "day": "2024-05-01",
    "flag": True,
    "maybe": None,
}


def keeps(text: str) -> bool:
    """Whether a predicate keeps the record; all three readings must agree."""
    predicate = SCHEMA.parse(text)
    events = SCHEMA.encode([ROW])
    meaning = bool(predicate.evaluate(events)[0])
    assert bool(predicate.true_form().evaluate(events)[0]) == meaning
    with contextlib.suppress(UnsupportedPredicateError):
        assert bool(predicate.box().evaluate(events)[0]) == meaning
    return meaning


@given(schemas(small_types(), max_attributes=3), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_alternatives_are_the_predicate(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    held = np.zeros(events.count, dtype=np.bool_)
    for sets in predicate.alternatives():
        inside = np.ones(events.count, dtype=np.bool_)
        for name, allowed in sets.items():
            assert allowed
            ranges = [in_range(events.codes[name], low, high) for low, high in allowed]
            inside &= np.any(ranges, axis=0)
        held |= inside
    assert held.tolist() == predicate.evaluate(events).tolist()


# -- what never matches ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("issue = 'ibm'", True),
        ("issue = 'IBM'", False),
        ("issue IN ('ibm', 'X')", True),
        ("issue IN ('ibm', 'IBM')", False),
        ("issue = 'ibm' AND (price < 3 OR flag)", True),
        ("issue = 'ibm' OR price < 3", False),
        ("issue = 'ibm' AND hamming(price, 3) <= 2", True),
        ("(price < 3 OR flag) AND hamming(price, 3) <= 2", False),
        ("(price < 3 AND price > 5) OR (flag AND NOT flag)", True),
        ("price < 3 AND NOT price BETWEEN 0 AND 9", True),
        ("price = 1000 OR price < 0", True),
        ("day = '2023-12-31'", True),
        ("day = TIMESTAMP '2024-05-01 12:00'", True),
        ("price IS NULL", True),
        ("volume IS NULL", False),
        ("volume = NULL", True),
        ("at_least(2, price < 3, price > 5)", True),
        ("issue LIKE 'x%'", True),
        ("FALSE", True),
        ("TRUE", False),
    ],
)
def test_a_predicate_says_that_it_never_matches(text: str, never: bool) -> None:
    assert SCHEMA.parse(text).never_matches is never


@given(data=st.data())
def test_what_never_matches_keeps_no_event(data: st.DataObject) -> None:
    values = st.integers(-1, 4)
    schema = Schema(a=UInt(2), b=UInt(2, nullable=True))
    events = schema.encode([{"a": a, "b": b} for a in range(4) for b in (None, *range(4))])

    def leaf() -> str:
        name = data.draw(st.sampled_from("ab"))
        return f"{name} {data.draw(st.sampled_from(['=', '<', '>', '!=']))} {data.draw(values)}"

    text = leaf()
    for _ in range(data.draw(st.integers(0, 4))):
        joined = f"{text} {data.draw(st.sampled_from(['AND', 'OR']))} {leaf()}"
        text = data.draw(st.sampled_from([f"({joined})", f"NOT ({joined})"]))
    predicate = schema.parse(text)
    # Two attributes are few enough for every alternative to be followed.
    assert predicate.never_matches is not predicate.evaluate(events).any()


def test_what_never_matches_is_asked_of_bound_predicates() -> None:
    template = SCHEMA.parse("issue = :issue")
    with pytest.raises(ParameterError, match="call bind first"):
        _ = template.never_matches
    assert template.bind(issue="ibm").never_matches
    assert not template.bind(issue="IBM").never_matches


def test_what_is_no_box_names_a_matcher_that_takes_any_formula() -> None:
    with pytest.raises(UnsupportedPredicateError, match=r"FormulaMatch\(schema, template\)"):
        SCHEMA.parse("price < 3 OR flag").box()


# -- the language -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("issue = 'IBM' AND price < 121 AND day >= DATE '2024-05-01'", True),
        ("ISSUE == 'IBM' and \"price\" <> 121", True),
        ("120 >= price", True),
        ("120 > price", False),
        ("119 < price AND 'IBM' = issue", True),
        ("price BETWEEN 120 AND 1e9", True),
        ("price NOT BETWEEN 120 AND 1000", False),
        ("price between -5 and 1000", True),
        ("issue LIKE 'IB%' AND note LIKE 'abc' AND note NOT LIKE 'abcd%'", True),
        ("note LIKE '%'", True),
        ("NOT note LIKE 'ab%'", False),
        ("word IN ('x', 'hello') AND word != 'x'", True),
        ("volume IS NULL AND price IS NOT NULL", True),
        ("volume < 5 OR volume >= 5", False),
        ("NOT (volume < 5)", False),
        ("maybe OR flag", True),
        ("maybe OR NOT flag", False),
        ("flag = TRUE AND NOT flag = FALSE AND FALSE < flag", True),
        ("TRUE AND NOT FALSE", True),
        ("NULL OR TRUE", True),
        ("NULL OR FALSE", False),
        ("day = '2024-05-01' AND day < TIMESTAMP '2024-05-01 00:00:01'", True),
        ("day >= CAST('2024-05-01' AS DATE) AND day < '2024-05-02'::timestamp", True),
        ("day = CAST('2024-05-01 13:00' AS DATE)", True),
        ("day = CAST('2024-05-01 13:00' AS TIMESTAMP)", False),
        ("day = TIMESTAMP_NTZ '2024-05-01 00:00-08:00'", True),
        ("day = TIMESTAMP_NTZ '2024-05-01 00:00:00.000 +02'", True),
        ("day = CAST('2024-05-01 00:00:00Z' AS TIMESTAMP_NTZ)", True),
        ("day = TIMESTAMP_LTZ '2024-05-01 00:00:00-08:00'", False),
        ("day < TIMESTAMP_NTZ '2024-05-01 12:00' AND day >= TIMESTAMP_NTZ '2024-05-01'", True),
        ("at_least(2, price = 120, flag, volume = 3)", True),
        ("AT_LEAST(3, price = 120, flag, volume = 3)", False),
        ("NOT at_least(3, price = 120, flag, volume = 3)", False),
        ("NOT at_least(2, price = 1, NOT flag, volume = 3)", True),
        ("hamming(price, 121) <= 1", True),
        ("hamming(price, 121) < 1", False),
        ("hamming(price, 121) < 0 OR hamming(price, 255) <= 99", True),
        ("1 >= hamming(price, 121)", True),
        ("NOT hamming(price, 121) <= 1", False),
        ("((price)) = (120) -- a comment", True),
        ("price = 120.0 AND price < 120.5 AND price > 119.999;", True),
        ("volume NOT IN (1, NULL)", False),
        ("price NOT IN (1, NULL)", False),
        ("price IN (120, NULL)", True),
    ],
)
def test_the_language(text: str, kept: bool) -> None:
    assert keeps(text) == kept


def test_names_match_exactly_then_without_case() -> None:
    schema = Schema(Price=UInt(4), price=UInt(4), volume=UInt(4))
    row = {"Price": 1, "price": 2, "volume": 3}
    assert schema.parse("Price = 1 AND price = 2 AND VOLUME = 3").evaluate([row])[0]
    with pytest.raises(UnknownAttributeError, match="ambiguous between Price, price"):
        schema.parse("PRICE = 1")


def test_hamming_counts_all_64_bits() -> None:
    schema = Schema(x=UInt(64))
    row = {"x": 2**64 - 1}
    assert schema.parse("hamming(x, 0) <= 64").evaluate([row])[0]
    assert not schema.parse("hamming(x, 0) <= 63").evaluate([row])[0]
    assert schema.parse(f"hamming(x, {2**64 - 2}) <= 1").evaluate([row])[0]


def test_codes_of_several_limbs_compare() -> None:
    schema = Schema(note=Text(12), word=Keyword(128, nullable=True), x=UInt(64, nullable=True))
    batch = [
        {"note": "abcdefghijkl", "word": "w", "x": 2**64 - 1},
        {"note": "abcdefghijk", "word": None, "x": None},
        {"note": "", "word": "v", "x": 0},
    ]
    for text, kept in [
        ("note > 'abcdefghijk'", [True, False, False]),
        ("note LIKE 'abcdefghij%'", [True, True, False]),
        ("note <= 'abcdefghijkl0'", [True, True, True]),
        ("word = 'w'", [True, False, False]),
        ("word != 'w'", [False, False, True]),
        ("x > 18446744073709551614", [True, False, False]),
        ("x >= 0", [True, False, True]),
        ("x < 0 OR x IS NULL", [False, True, False]),
    ]:
        predicate, events = schema.parse(text), schema.encode(batch)
        assert predicate.evaluate(events).tolist() == kept
        assert predicate.true_form().evaluate(events).tolist() == kept


# -- private constants that do not matter -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "same"),
    [
        ("(volume < :a) IS NULL OR volume = :b", "a b", "volume IS NULL OR volume = :b"),
        ("NOT (volume IN (:a, :b)) IS NULL AND flag", "a b", "volume IS NOT NULL AND flag"),
        ("(NOT volume = :a) IS NULL", "a", "volume IS NULL"),
        ("isnull(volume BETWEEN :a AND :b)", "a b", "volume IS NULL"),
        ("isnotnull(price < :a) AND volume = :b", "a b", "TRUE AND volume = :b"),
        ("volume IN (NULL, :a) IS TRUE OR (price = :b) IS NULL", "a b", "volume = :a"),
        ("(volume BETWEEN NULL AND :a) IS FALSE", "a", "volume > :a"),
    ],
)
def test_no_private_name_is_lost(text: str, names: str, same: str) -> None:
    """Whether a condition is NULL does not depend on a private constant: none is NULL itself."""
    events = SCHEMA.encode(
        {
            "issue": ["IBM"] * 4, "price": [0, 1, 2, 3], "volume": [None, 1, 2, 3],
            "note": [""] * 4, "word": [""] * 4, "day": ["2024-01-01"] * 4,
            "flag": [True, False, True, True], "maybe": [None] * 4,
        }
    )  # fmt: skip
    predicate, plain = SCHEMA.parse(text), SCHEMA.parse(same)
    assert predicate.private_names == tuple(names.split())
    values = {"a": 2, "b": 3}
    bound = predicate.bind(**{name: values[name] for name in predicate.private_names})
    wanted = plain.bind(**{name: values[name] for name in plain.private_names}).evaluate(events)
    assert bound.evaluate(events).tolist() == wanted.tolist()
    assert bound.true_form().evaluate(events).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "join",
    [
        lambda p, q: ~p, lambda p, q: p & q, lambda p, q: p | q, lambda p, q: p ^ q,
        lambda p, q: p and q, lambda p, q: p or q, lambda p, q: not p, lambda p, q: p & "flag",
        lambda p, q: "flag" | p,
    ],
)  # fmt: skip
def test_python_does_not_join_predicates(join: Any) -> None:
    """`p and q` would be q, and `not p` False, without a word."""
    with pytest.raises(ParameterError, match="write AND, OR and NOT there"):
        join(SCHEMA.parse("price < 3"), SCHEMA.parse("flag"))


# -- errors -----------------------------------------------------------------------------------

SYNTAX, TYPE = PredicateSyntaxError, PredicateTypeError
UNKNOWN, UNSUPPORTED = UnknownAttributeError, UnsupportedPredicateError


@pytest.mark.parametrize(
    ("text", "kind", "marked", "message"),
    [
        ("", SYNTAX, "", "empty"),
        ("  \n ", SYNTAX, "", "empty"),
        ("-- nothing", SYNTAX, "", "empty"),
        ("price §<", SYNTAX, "<", "missing"),
        ("price < 3 §4", SYNTAX, "4", "unexpected"),
        ("(price < 3 AND (flag§)", SYNTAX, ")", "Expecting"),
        ("price < 3§; flag", SYNTAX, "; flag", "one condition"),
        ("issue = §'IBM", SYNTAX, "'IBM", "never closed"),
        ("price < 3 §/* x", SYNTAX, "/*", "never closed"),
        ("§SELECT 1", SYNTAX, "SELECT", "after WHERE"),
        ("§where price < 3", SYNTAX, "where", "after WHERE"),
        ("flag AND §prise < 3", UNKNOWN, "prise", "issue, price.*closest is 'price'"),
        ("flag\n  AND (§zzz IS NULL)", UNKNOWN, "zzz", "schema has issue, price"),
        ("issue = §IBM", UNKNOWN, "IBM", "single quotes"),
        ('issue = §"IBM"', UNKNOWN, '"IBM"', "single quotes"),
        ('issue IN (§"IBM")', UNKNOWN, '"IBM"', "single quotes"),
        ("§`prise` < 3", UNKNOWN, "`prise`", "closest is 'price'"),
        ("price < 3 AND §`flag", SYNTAX, "`flag", "never closed"),
        ("price <=> §flag", UNSUPPORTED, "flag", "not compared with one another"),
        ("price <=> §'x'", TYPE, "'x'", "numbers"),
        ("isnull(§3)", UNSUPPORTED, "3", "needs an attribute"),
        ("§isnotnull(price, flag)", TYPE, "isnotnull", "takes an attribute"),
        ("price < §'x'", TYPE, "'x'", r"'price' \(UInt\).*numbers"),
        ("price < §'12'", TYPE, "'12'", "numbers"),
        ("§price = TRUE", TYPE, "price", "numbers"),
        ("price IN (1, §'x')", TYPE, "'x'", "numbers"),
        ("price BETWEEN 1 AND §'x'", TYPE, "'x'", "numbers"),
        ("price < §1e99999999999999999999", TYPE, "1e9", "number"),
        ("price < §1e-99999", TYPE, "1e-9", "decimals"),
        ("issue < §3", TYPE, "3", r"'issue' \(Category\).*strings"),
        ("issue < -§3", TYPE, "3", "strings"),
        ("issue = DATE §'2024-01-01'", TYPE, "'2024", "strings"),
        ("note = §3", TYPE, "3", r"'note' \(Text\).*strings"),
        ("word = §3", TYPE, "3", r"'word' \(Keyword\).*strings"),
        ("word < §'a'", TYPE, "'a'", "only takes =, != and IN"),
        ("word LIKE §'a%'", TYPE, "'a%'", "only takes"),
        ("word BETWEEN §'a' AND 'b'", TYPE, "'a'", "only takes"),
        ("price LIKE §'1%'", TYPE, "'1%'", "Text or Category"),
        ("note LIKE §3", TYPE, "3", "string pattern"),
        ("flag = §1", TYPE, "1", "TRUE and FALSE"),
        ("day > §'yesterday'", TYPE, "'yesterday'", "ISO"),
        ("day > §'2024-02-30'", TYPE, "'2024-02-30'", "no such date"),
        ("day > §5", TYPE, "5", "ISO"),
        ("day < §'2024-01-03 12:00:00'", UNSUPPORTED, "'2024", "DATE '2024-01-31', or TIMESTAMP"),
        ("day IN (§'2024-01-03 00:00+02:00')", UNSUPPORTED, "'2024", "time of day"),
        ("day = §to_date('soon')", TYPE, "to_date", "ISO"),
        ("day = §to_date('03.01.2024', 'dd.MM')", UNSUPPORTED, "to_date", "without a format"),
        ("day = §date(:x)", UNSUPPORTED, "date", "take one string"),
        ("day > TIMESTAMP_NTZ §'soon'", TYPE, "'soon'", "ISO"),
        ("price = §128Y", TYPE, "128Y", "8, 16 or 64 bits"),
        ("price = §2.5L", TYPE, "2.5L", "whole"),
        ("price = §1e400D", TYPE, "1e400D", "binary float"),
        ("note = §3L", TYPE, "3L", "strings"),
        ("price = 3 §L", SYNTAX, "L", "unexpected"),
        ("hamming(price, 3) <= §1L", TYPE, "1L", "public"),
        ("day > DATE §'soon'", TYPE, "'soon'", "ISO"),
        ("day > §'2024-01-01T25:00'", TYPE, "'2024", "time of day"),
        ("flag OR §price", TYPE, "price", "not a condition"),
        ("flag OR §5", TYPE, "5", "not a condition"),
        ("flag OR §'x'", TYPE, "'x'", "not a condition"),
        ("§flag OR :x", TYPE, "flag", "not a condition"),
        ("at_least(§0, flag)", TYPE, "0", "from 1 to n"),
        ("at_least(§2, flag)", TYPE, "2", "from 1 to n"),
        ("§at_least(:k, flag)", TYPE, "at_least", "public"),
        ("§at_least()", TYPE, "at_least", "from 1 to n"),
        ("hamming(issue, §3) <= 1", TYPE, "3", "UInt"),
        ("hamming(price, §256) <= 1", TYPE, "256", "0..255"),
        ("hamming(price, §1.5) <= 1", TYPE, "1.5", "0..255"),
        ("§hamming(price, 1) <= :t", TYPE, "hamming", "public"),
        ("hamming(price, 1) <= §'x'", TYPE, "'x'", "public"),
        ("§hamming(price) <= 1", TYPE, "hamming", "takes an attribute"),
        ("hamming(volume, §3) <= 1", UNSUPPORTED, "3", "without NULL"),
        ("§hamming(price, 3)", UNSUPPORTED, "hamming", "limit"),
        ("§hamming(price, 3) = 1", UNSUPPORTED, "hamming", "only compared"),
        ("price > 18 §& flag", UNSUPPORTED, "&", "& is not supported; write AND"),
        ("(price > 18) §&& (flag)", UNSUPPORTED, "&&", "write AND"),
        ("price > 18 §| price < 3", UNSUPPORTED, "|", "write OR"),
        ("price > 18 §|| price < 3", UNSUPPORTED, "||", "write OR"),
        ("flag AND §~(price > 18)", UNSUPPORTED, "~", "write NOT"),
        ("price §=> 5", UNSUPPORTED, "=>", "write >="),
        ("price §=< 5", UNSUPPORTED, "=<", "=< is not supported; write <="),
        ("flag AND price §>< 5", UNSUPPORTED, "><", "write <>"),
        ("price §=! 5", UNSUPPORTED, "=!", "write <>"),
        ("price §=== 5", UNSUPPORTED, "===", "write ="),
        ("price §\u2264 5", UNSUPPORTED, "\u2264", "write <="),
        ("price §\u2260 5", UNSUPPORTED, "\u2260", "write <>"),
        ("flag §\u2227 price < 5", UNSUPPORTED, "\u2227", "write AND"),
        ("flag AND §\u00acflag", UNSUPPORTED, "\u00ac", "write NOT"),
        ("note §~ 'a.*'", UNSUPPORTED, "~", "write LIKE 'prefix%'"),
        ("flag OR note = '~' AND §~flag", UNSUPPORTED, "~", "write NOT"),
        ("price < §1_000", SYNTAX, "1_000", "in digits alone"),
        ("flag AND price < §10k", SYNTAX, "10k", "in digits alone"),
        ("price < §:1", SYNTAX, ":1", ":name, and its name begins with a letter"),
        ("price < §%s", SYNTAX, "%s", "a private constant is written :name"),
        ("price < §$limit", UNKNOWN, "$limit", "a private constant is written :name"),
        ("volume = §None", UNKNOWN, "None", "found with IS NULL"),
        ("§price IS 3", UNSUPPORTED, "price", "values are compared with ="),
        ("§1 < price < 3", UNSUPPORTED, "1", "AND.*BETWEEN"),
        ("§price < {limit}", UNSUPPORTED, "price", ":name"),
        ("§price + 1 < 3", UNSUPPORTED, "price", r"arithmetic \(\+\)"),
        ("day < §2024-01-31", UNSUPPORTED, "2024", "dates written in single quotes"),
        ("flag AND (§abs(price) < 3)", UNSUPPORTED, "abs", "ABS"),
        ("flag AND (§foo(price) < 3)", UNSUPPORTED, "foo", "foo"),
        ("flag AND §foo(price)", UNSUPPORTED, "foo", "functions"),
        ("price < §abs(3)", UNSUPPORTED, "abs", "ABS"),
        ("price = §volume", UNSUPPORTED, "volume", "not compared"),
        ("§1 = 1", UNSUPPORTED, "1", "needs an attribute"),
        ("§NULL IS NULL", UNSUPPORTED, "NULL", "needs an attribute"),
        ("price IS NULL AND NULL = §3", UNSUPPORTED, "3", "needs an attribute"),
        ("§price IS NULL IS NULL", UNSUPPORTED, "price", "IS"),
        ("§price IS TRUE", TYPE, "price", "not a condition"),
        ("(§flag AND price > 3) IS NULL", UNSUPPORTED, "flag", "about one attribute"),
        ("(§price = NULL) IS NULL", UNSUPPORTED, "price", "without NULL"),
        ("price > §2 IS NULL", UNSUPPORTED, "2", "in parentheses"),
        ("(§price > 2) = TRUE", UNSUPPORTED, "price", "IS TRUE"),
        ("isnull(§isnull(volume))", UNSUPPORTED, "isnull", "function"),
        ("§price IN (SELECT 1)", UNSUPPORTED, "price", "IN"),
        ("§price IN :xs", UNSUPPORTED, "price", "IN needs a list"),
        ("§issue IN 'IBM'", UNSUPPORTED, "issue", "IN needs a list"),
        ("price IN (§volume)", UNSUPPORTED, "volume", "not compared"),
        ("§flag OR CASE WHEN flag THEN TRUE END", UNSUPPORTED, "flag", "CASE"),
        ("§flag AND EXISTS(SELECT 1)", UNSUPPORTED, "flag", "EXISTS"),
        ("§note ILIKE 'a%'", UNSUPPORTED, "note", "ILIKE.*LIKE 'prefix%'"),
        ("§note RLIKE 'a'", UNSUPPORTED, "note", "REGEXP_LIKE.*LIKE 'prefix%'"),
        ("flag AND §startswith(note, 'a')", UNSUPPORTED, "startswith", "LIKE 'prefix%'"),
        ("§note LIKE 'a%' ESCAPE '!'", UNSUPPORTED, "note", "ESCAPE"),
        ("note LIKE §'%a'", UNSUPPORTED, "'%a'", "final %"),
        ("note LIKE §'a%%'", UNSUPPORTED, "'a%%'", "final %"),
        ("note LIKE §'a_%'", UNSUPPORTED, "'a_%'", "final %"),
        ("note = §'a\\x'", UNSUPPORTED, "'a", "backslash.*Spark.*:name"),
        ("note IN ('b', §'a\\')", UNSUPPORTED, "'a", "backslash"),
        ("issue != §'a\\\\%'", UNSUPPORTED, "'a", "backslash"),
        ("note LIKE §'a\\x%'", UNSUPPORTED, "'a", "backslash"),
        ("note LIKE §'a\\%'", UNSUPPORTED, "'a\\%'", "backslash"),
        ("§price = ?", UNSUPPORTED, "price", ":name"),
        ("§price < -:x", UNSUPPORTED, "price", "sign"),
        ("t.§price = 3", UNSUPPORTED, "price", "dot"),
        ("flag AND §price = @x", UNSUPPORTED, "price", ":name"),
        ("§price BETWEEN SYMMETRIC 1 AND 2", UNSUPPORTED, "price", "symmetric"),
        ("day > CAST(§'2024-01-01' AS TEXT)", UNSUPPORTED, "'2024", "DATE, TIMESTAMP or"),
        ("price > CAST(§3 AS DATE)", UNSUPPORTED, "3", "DATE, TIMESTAMP or"),
        ("§day > CURRENT_DATE", UNSUPPORTED, "day", "CURRENT_DATE"),
    ],
)
def test_every_error_has_its_class_and_place(
    text: str, kind: type[PredicateError], marked: str, message: str
) -> None:
    place = text.find("§")
    plain = text.replace("§", "")
    with pytest.raises(PredicateError, match=f"(?s){message}") as caught:
        SCHEMA.parse(plain)
    assert type(caught.value) is kind
    assert caught.value.text == plain
    assert caught.value.position is not None
    assert 0 <= caught.value.position <= len(plain)
    if place >= 0 and marked:
        assert caught.value.position == place
        assert plain[place:].startswith(marked)


def test_strings_may_be_in_double_quotes() -> None:
    for text, plain in [
        ('issue = "IBM"', "issue = 'IBM'"),
        ('"IBM" = `issue` OR note = \'a"b\'', "'IBM' = `issue` OR note = 'a\"b'"),
        ('note IN ("it\'s", "a""b")', "note IN ('it''s', 'a\"b')"),
        ('flag /* "no string" */', 'flag /* "no string" */'),
    ]:
        predicate = SCHEMA.parse(text, double_quoted_strings=True)
        assert predicate.text == plain
        assert predicate.expression == SCHEMA.parse(plain).expression


def test_places_are_right_in_texts_with_double_quotes() -> None:
    for text, kind, marked in [
        ('issue = "IBM" AND prise < 3', UnknownAttributeError, "prise"),
        ('issue = "IBM" AND price < "3"', PredicateTypeError, "'3'"),
        ('issue = "IBM" AND "price" = 3', UnsupportedPredicateError, "'price'"),
        ('issue = "IBM', PredicateSyntaxError, '"IBM'),
        ('note = "a\\x"', UnsupportedPredicateError, "'a"),
    ]:
        with pytest.raises(PredicateError) as caught:
            SCHEMA.parse(text, double_quoted_strings=True)
        assert type(caught.value) is kind
        place = caught.value.position
        assert place is not None and caught.value.text[place:].startswith(marked)
        assert len(caught.value.text) == len(text)


def test_a_name_in_double_quotes_is_no_string_unasked() -> None:
    for text in ('issue = "IBM"', 'issue = "note"'):
        with pytest.raises(PredicateError, match="double_quoted_strings=True"):
            SCHEMA.parse(text)
    assert SCHEMA.parse('"price" = 3').box().ranges["price"] == (3, 3)
    with pytest.raises(PredicateError, match="in backticks"):
        SCHEMA.parse('"price" = 3', double_quoted_strings=True)


def test_private_constants_may_have_backslashes() -> None:
    records = {name: ["x"] for name in ("a", "b")}
    schema = Schema(a=Text(4), b=Keyword(64))
    template = schema.parse("a != :x AND b != :y")
    assert template.bind(x="\\u00", y="C:\\x").evaluate(records).all()


def test_a_reserved_word_is_explained() -> None:
    schema = Schema(when=UInt(4), price=UInt(4))
    with pytest.raises(PredicateSyntaxError, match="written `when`"):
        schema.parse("price = 1 AND when = 3")
    assert schema.parse('"when" = 3').evaluate([{"when": 3, "price": 0}])[0]


def test_a_predicate_is_text() -> None:
    with pytest.raises(PredicateSyntaxError, match="string of SQL"):
        SCHEMA.parse(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "flag" + ")" * 5000,
        "NOT " * 5000 + "flag",
        "at_least(1, " * 500 + "flag" + ")" * 500,
        "CASE WHEN " * 500,
        "price = " + "- " * 500 + "3",
        "price IN " + "(" * 500 + "1" + ")" * 500,
    ],
)
def test_pathological_nesting_is_a_syntax_error(text: str) -> None:
    with pytest.raises(PredicateSyntaxError, match="nested"):
        SCHEMA.parse(text)


def test_recursion_in_the_parser_is_a_syntax_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from ccbps.predicates import syntax

    monkeypatch.setattr(syntax, "_MAX_NESTING", 10**6)
    with pytest.raises(PredicateSyntaxError, match="nested too deeply"):
        SCHEMA.parse("(" * 5000 + "flag" + ")" * 5000)


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(["NULL"] * 10_000),
        " = ".join(["NULL"] * 10_000),
        f"price IN ({', '.join(['NULL'] * 10_000)})",
        f"NULL IN ({', '.join(['NULL'] * 10_000)})",
        f"price IN ({', '.join([':x'] * 10_000)})",
    ],
)
def test_places_are_found_in_long_texts(text: str) -> None:
    # In time linear in the text: with squares of it, this would not end.
    outcome: Predicate | PredicateError
    try:
        outcome = SCHEMA.parse(text)
    except PredicateError as error:
        outcome = error
    assert outcome.text == text


LONG = "1" * (MAX_TEXT - 100)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"price < INTERVAL '{LONG}'", "INTERVAL is not supported"),
        (f"price < INTERVAL '1 {' ' * len(LONG)}'", "INTERVAL is not supported"),
        (f"price < INTERVAL price DAY '{LONG}'", "INTERVAL is not supported"),
        (f"price < '{LONG}' + INTERVAL '1' day", "INTERVAL is not supported"),
        (f"price < INTERVAL {LONG}", "not supported"),
        (f"price < {LONG}", "a number is written with at most 1,000 characters"),
        (f"price < -{LONG}.5", "a number is written with at most 1,000 characters"),
        (f"price < {LONG}L", "a number is written with at most 1,000 characters"),
        (f"price < 1e{LONG}", "a number is written with at most 1,000 characters"),
        (f"at_least({LONG}, price = 1)", "public whole number"),
        (f"price{LONG} < 3", "unknown attribute"),
        ("price < 3" + " " * MAX_TEXT, "at most 131,072 characters, got 131,081"),
        ('price < "3"' + " " * MAX_TEXT, "at most 131,072 characters, got 131,083"),
        ("(" * MAX_TEXT + "price", "at most 131,072 characters"),
    ],
)
@pytest.mark.parametrize("double", [False, True])
def test_long_texts_are_refused_in_linear_time(text: str, problem: str, double: bool) -> None:
    # The parser would look for minutes for units in strings beside INTERVAL.
    error = refused(PredicateError, problem, SCHEMA.parse, text, double_quoted_strings=double)
    assert error.text == (text if len(text) <= MAX_TEXT else "")
    template = f'{{"ccbps": "predicate", "version": 1, "schema": {json.dumps(SCHEMA.describe())}'
    json_text = f'{template}, "text": {json.dumps(text)}}}'
    assert len(str(refused(DecodeError, "", Predicate.from_json, json_text))) < 500


def test_an_attribute_may_be_called_interval() -> None:
    schema = Schema(interval=UInt(8), t=Text(100))
    same = schema.parse("`interval` < 3 AND t = 'a'").expression
    assert schema.parse("interval   < 3 AND t = 'a'").expression == same
    text = "a" * 101
    refused(
        UnsupportedPredicateError,
        "may be written `interval`",
        schema.parse,
        f"interval < 3 AND t = '{text}'",
    )
    assert not schema.parse(f"`interval` < 3 AND t = '{text}'").evaluate(
        {"interval": [2], "t": ["a"]}
    )


def test_names_are_guessed_in_little_time() -> None:
    # A guess takes the square of a name's length, and a schema may come from anybody.
    schema = Schema({"ab" * 50_000: UInt(4), **{f"{'ab' * 90}{i}": UInt(4) for i in range(5_000)}})
    refused(UnknownAttributeError, "unknown attribute", schema.parse, "ba" * 50_000 + " < 3")


def test_long_chains_are_not_deep() -> None:
    chain = SCHEMA.parse(" AND ".join(f"price != {number % 200}" for number in range(2000)))
    assert isinstance(chain.expression, AtLeast) and len(chain.expression.parts) == 2000
    assert chain.box().ranges["price"] == (200, 255)
    members = SCHEMA.parse(f"price IN ({', '.join(str(number) for number in range(5000))})")
    assert members.box().ranges["price"] == (0, 255)


def test_parsing_is_silent(capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    for text in ("DROP TABLE x", "price = 1", "SHOW x", "foo bar baz"):
        with contextlib.suppress(PredicateError):
            SCHEMA.parse(text)
    out, err = capsys.readouterr()
    assert (out, err, caplog.records) == ("", "", [])


# -- private constants ------------------------------------------------------------------------

TEMPLATE = (
    "price BETWEEN :low AND :high AND issue = :issue AND note LIKE :pattern AND day < :day "
    "AND hamming(price, :centre) <= 3 AND price > :low"
)
VALUES: dict[str, Any] = {
    "low": 3,
    "high": 200,
    "issue": "IBM",
    "pattern": "a%",
    "day": datetime.date(2024, 6, 1),
    "centre": 121,
}


def test_bind_makes_a_subscription_of_a_template() -> None:
    template = SCHEMA.parse(TEMPLATE)
    assert template.private_names == ("low", "high", "issue", "pattern", "day", "centre")
    bound = template.bind(**VALUES)
    assert bound.private_names == template.private_names
    assert template.unbound_names == template.private_names and bound.unbound_names == ()
    assert bound.evaluate([ROW, {**ROW, "price": 3}]).tolist() == [True, False]
    assert template.bind(**{**VALUES, "low": 121}).evaluate([ROW]).tolist() == [False]


@pytest.mark.parametrize("use", ["evaluate", "box", "form"])
def test_unbound_templates_are_only_shapes(use: str) -> None:
    template = SCHEMA.parse("price < :limit")
    events = SCHEMA.encode([])
    act = {
        "evaluate": lambda: template.evaluate(events),
        "box": template.box,
        "form": lambda: template.true_form().evaluate(events),
    }[use]
    with pytest.raises(ParameterError, match=r"limit|'price' is not bound"):
        act()


def test_bind_wants_exactly_the_private_names() -> None:
    template = SCHEMA.parse("price < :limit")
    with pytest.raises(ParameterError, match="lacks limit"):
        template.bind()
    with pytest.raises(ParameterError, match=r"has no other.*: limit"):
        template.bind(limit=3, other=4)
    with pytest.raises(ParameterError, match=r"has no limit.*: none"):
        SCHEMA.parse("price < 3").bind(limit=3)


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("§price < :x", "classified", TYPE),
        ("§price < :x", None, TYPE),
        ("§price < :x", True, TYPE),
        ("§price < :x", float("nan"), TYPE),
        ("§price < :x", float("inf"), TYPE),
        ("§volume IN (3, :x)", None, TYPE),
        ("price < 3 OR §issue = :x", 7_654_321, TYPE),
        ("§price BETWEEN 3 AND :x", "classified", TYPE),
        ("§day = :x", "classified", TYPE),
        ("§note = :x", "classi\0fied", TYPE),
        ("§note LIKE :x", "classified_", UNSUPPORTED),
        ("§note LIKE :x", 7_654_321, TYPE),
        ("§hamming(price, :x) <= 3", 7_654_321, TYPE),
        ("§maybe = :x", 1, TYPE),
    ],
)
def test_bind_checks_types_and_keeps_the_secret(
    text: str, value: Any, kind: type[PredicateError]
) -> None:
    place = text.index("§")
    plain = text.replace("§", "")
    with pytest.raises(PredicateError) as caught:
        SCHEMA.parse(plain).bind(x=value)
    assert type(caught.value) is kind
    assert (caught.value.text, caught.value.position) == (plain, place)
    assert ":x" in str(caught.value)
    assert ("cannot be NULL" in str(caught.value)) == (value is None)
    assert "classi" not in str(caught.value) and "7654321" not in str(caught.value)
    # Nor does the chain of exceptions, which a traceback prints.
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_operators_are_checked_before_constants_are_known() -> None:
    for text in ("word < :x", "price LIKE :x", "hamming(note, :x) <= 1"):
        with pytest.raises(PredicateTypeError):
            SCHEMA.parse(text)


@pytest.mark.parametrize(
    "value", [np.uint8(120), np.float64(120), decimal.Decimal("120.0"), 120.0, 120]
)
def test_bind_takes_numbers_of_any_make(value: Any) -> None:
    bound = SCHEMA.parse("price = :x").bind(x=value)
    assert bound.true_form() == InRange("price", 120, 120, equal=True, negated=False)


def test_reprs_show_names_only() -> None:
    predicate = SCHEMA.parse("issue = 'IBM' AND price < 123 AND hamming(price, 99) <= 2")
    assert repr(predicate) == "<Predicate over issue, price>"
    assert repr(SCHEMA.parse("TRUE")) == "<Predicate over no attribute>"
    for shown in (repr(predicate.expression), repr(predicate.true_form()), str(predicate)):
        assert "IBM" not in shown and "123" not in shown and "99" not in shown
    assert repr(SCHEMA.parse("price < 123").box()) == "<Box over 8 attributes>"


def test_a_predicate_survives_pickling() -> None:
    bound = pickle.loads(pickle.dumps(SCHEMA.parse("price < :x").bind(x=5)))
    assert bound.true_form() == InRange("price", 0, 4, equal=False, negated=False)


# -- code form --------------------------------------------------------------------------------


def leaf(name: str, low: int | None, high: int | None, equal: bool, negated: bool) -> InRange:
    return InRange(name, low, high, equal=equal, negated=negated)


def equal(name: str, code: int | None, *, negated: bool = False) -> InRange:
    return leaf(name, code, code, True, negated)


def any_of(*parts: Form, disjoint: bool = False) -> AnyOf:
    return AnyOf(parts, disjoint)


def all_of(*parts: Form) -> AllOf:
    return AllOf(parts)


NOT_NULL = leaf("volume", 1, 256, False, False)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("price = 3", equal("price", 3)),
        ("price = 999", leaf("price", 1, 0, True, False)),
        ("price != 3", equal("price", 3, negated=True)),
        ("price < 0", leaf("price", 0, -1, False, False)),
        ("price > 255", leaf("price", 256, 255, False, False)),
        ("price < :x", leaf("price", 0, None, False, False)),
        ("price >= :x", leaf("price", None, 255, False, False)),
        ("volume <= :x", leaf("volume", 1, None, False, False)),
        ("volume > 3", leaf("volume", 5, 256, False, False)),
        ("price = :x", equal("price", None)),
        ("price BETWEEN 1 AND :x", leaf("price", None, None, False, False)),
        ("price BETWEEN 5 AND 3", leaf("price", 1, 0, False, False)),
        ("price NOT BETWEEN 3 AND 5", leaf("price", 3, 5, False, True)),
        ("NOT volume > 3", all_of(NOT_NULL, leaf("volume", 5, 256, False, True))),
        ("volume != 3", all_of(NOT_NULL, equal("volume", 4, negated=True))),
        ("volume IS NULL", equal("volume", 0)),
        ("volume IS NOT NULL", NOT_NULL),
        ("price IS NULL", NEVER),
        ("price IS NOT NULL", ALWAYS),
        ("price = NULL", NEVER),
        ("NOT price = NULL", NEVER),
        ("NOT NULL", NEVER),
        ("price IN (1, 3, 1)", any_of(equal("price", 1), equal("price", 3), disjoint=True)),
        ("volume NOT IN (1)", all_of(NOT_NULL, equal("volume", 2, negated=True))),
        ("volume NOT IN (1, NULL)", NEVER),
        ("note LIKE :x", InRange("note", None, None, equal=False, negated=False, prefix=True)),
        ("flag", equal("flag", 1)),
        ("NOT flag", equal("flag", 1, negated=True)),
        ("hamming(price, 7) < 3", HammingWithin("price", 7, 2, negated=False)),
        ("NOT hamming(price, :x) <= 99", HammingWithin("price", None, 8, negated=True)),
        (
            "NOT (price = 1 AND NOT flag)",
            any_of(equal("price", 1, negated=True), equal("flag", 1)),
        ),
        (
            "NOT at_least(2, price = 1, flag, price = 2, maybe IS NULL)",
            AtLeastOf(3, (equal("price", 1, negated=True), equal("flag", 1, negated=True),
                          equal("price", 2, negated=True), leaf("maybe", 1, 2, False, False))),
        ),
        (
            "NOT at_least(1, price = 1, flag)",
            all_of(equal("price", 1, negated=True), equal("flag", 1, negated=True)),
        ),
        ("NOT price BETWEEN NULL AND 5", any_of(NEVER, leaf("price", 0, 5, False, True))),
    ],
)  # fmt: skip
def test_lowering(text: str, form: Form) -> None:
    assert SCHEMA.parse(text).true_form() == form


def test_a_private_duplicate_changes_no_public_constant() -> None:
    template = SCHEMA.parse("price IN (:x, 5, :y)")
    form = template.bind(x=5, y=5).true_form()
    assert isinstance(form, AnyOf)
    bounds = [(part.low, part.high) for part in form.parts if isinstance(part, InRange)]
    assert bounds == [(5, 5), (1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        # The public constants as ranges, ascending, and then the private ones as they come.
        (
            "price IN (7, 3, :x, 5, 4, 9, 8, :y, 300)",
            any_of(leaf("price", 3, 5, False, False), leaf("price", 7, 9, False, False),
                   equal("price", None), equal("price", None), disjoint=True),
        ),
        (
            "volume NOT IN (1, 3, 2, 9)",
            all_of(NOT_NULL, leaf("volume", 2, 4, False, True), equal("volume", 10, negated=True)),
        ),
        ("issue IN ('SAP', 'IBM', 'IBN')", AnyOf((leaf("issue", 0, 2, False, False),), True)),
        ("price IN (300, 999)", NEVER),
        ("price NOT IN (300, 999)", ALWAYS),
        ("volume NOT IN (999)", all_of(NOT_NULL)),
        ("price IN (:x, 300)", any_of(equal("price", None), disjoint=True)),
    ],
)  # fmt: skip
def test_public_constants_of_a_list_become_ranges(text: str, form: Form) -> None:
    assert SCHEMA.parse(text).true_form() == form


def shape(form: Form, public: Form | None = None) -> Any:
    """Everything about a form but the bounds that are private in the template `public`."""
    public = form if public is None else public
    if isinstance(form, InRange):
        assert isinstance(public, InRange)
        low = None if public.low is None else form.low
        high = None if public.high is None else form.high
        return ("range", form.attribute, low, high, form.equal, form.negated)
    if isinstance(form, HammingWithin):
        assert isinstance(public, HammingWithin)
        value = None if public.value is None else form.value
        return ("hamming", form.attribute, value, form.limit, form.negated)
    detail = getattr(form, "k", getattr(form, "disjoint", None))
    pairs = zip(form.children, public.children, strict=True)
    return (type(form).__name__, detail, [shape(child, twin) for child, twin in pairs])


@st.composite
def drawn_predicates(draw: st.DrawFn) -> Drawn:
    return draw(predicates(draw(schemas())))


@given(drawn=drawn_predicates())
@settings(max_examples=examples(300))
def test_private_constants_fill_bounds_and_change_nothing_else(drawn: Drawn) -> None:
    template = drawn.schema.parse(drawn.text)
    assert set(template.private_names) == set(drawn.private)
    public, bound = template.true_form(), template.bind(**drawn.private).true_form()
    assert shape(bound, public) == shape(public)
    for node in iter_leaves(bound):
        if isinstance(node, InRange):
            kind = drawn.schema[node.attribute]
            assert node.low is not None and node.high is not None
            assert node.low <= node.high + 1
            assert node.low >= 0 and node.high <= kind.highest
            if node.equal:
                assert node.low == node.high or (node.low, node.high) == (1, 0)
            if node.low > node.high:  # empty: canonical, or next to the end of the codes
                assert (node.low, node.high) in {
                    (1, 0),
                    (kind.lowest, kind.lowest - 1),
                    (kind.highest + 1, kind.highest),
                }


@given(data=st.data(), schema=schemas())
@settings(max_examples=examples(100))
def test_disjoint_alternatives_never_hold_together(data: st.DataObject, schema: Schema) -> None:
    drawn = data.draw(predicates(schema))
    batch = schema.encode([record(row) for row in data.draw(rows(schema))])
    pending: list[Form] = [schema.parse(drawn.text).bind(**drawn.private).true_form()]
    while pending:
        node = pending.pop()
        pending.extend(node.children)
        if isinstance(node, AnyOf) and node.disjoint:
            held = np.sum([part.evaluate(batch) for part in node.parts], axis=0)
            assert (held <= 1).all()


# -- boxes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUE", {}),
        ("FALSE", {"issue": (1, 0)}),
        ("price = 999", {"issue": (1, 0)}),
        ("price < 5 AND price > 5", {"issue": (1, 0)}),
        ("issue = 'SAP' AND price < 120", {"issue": (2, 2), "price": (0, 119)}),
        ("issue LIKE 'IB%'", {"issue": (0, 1)}),
        ("issue <> 'SAP'", {"issue": (0, 1)}),
        ("issue IN ('IBN', 'IBM')", {"issue": (0, 1)}),
        ("price >= 0", {}),
        ("volume >= 0", {"volume": (1, 256)}),
        ("volume >= 0 OR volume IS NULL", {}),
        ("volume IS NULL", {"volume": (0, 0)}),
        ("NOT (price < 5 OR price > 9)", {"price": (5, 9)}),
        ("price < 5 OR (price < 9 AND flag AND NOT flag)", {"price": (0, 4)}),
        ("(flag AND price < 5) OR (NOT flag AND price < 5)", {"price": (0, 4)}),
        ("(price < 5 OR flag) AND price < 5", {"price": (0, 4)}),
        ("at_least(2, price > 2, price < 9, price = 5)", {"price": (3, 8)}),
        ("at_least(1, flag, NOT flag)", {}),
        ("flag AND maybe", {"flag": (1, 1), "maybe": (2, 2)}),
    ],
)
def test_box_ranges(text: str, expected: dict[str, tuple[int, int]]) -> None:
    full = {name: (0, SCHEMA[name].size - 1) for name in SCHEMA}
    assert SCHEMA.parse(text).box().ranges == {**full, **expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flag AND §price != 3", "'price' needs more than one interval"),
        ("§price IN (1, 3)", "'price' needs more than one interval"),
        ("NOT §price BETWEEN 3 AND 5 AND flag", "'price' needs more than one interval"),
        ("note = 'x' AND (§price < 3 OR flag)", r"several attributes \('price', 'flag'\)"),
        ("flag AND §hamming(price, 3) <= 2", "Hamming distance on attribute 'price'"),
        (f"at_least(4, {', '.join(['flag'] * 9)})", "ways to choose"),
    ],
)
def test_what_is_not_a_box_says_why(text: str, message: str) -> None:
    plain = text.replace("§", "")
    with pytest.raises(UnsupportedPredicateError, match=message) as caught:
        SCHEMA.parse(plain).box()
    assert "conjunction of intervals" in str(caught.value)
    assert caught.value.text == plain
    if "§" in text:
        assert caught.value.position == text.index("§")


@pytest.mark.parametrize(
    ("text", "intervals", "example"),
    [
        ("price IN (1, 3)", "(2: 1, 3)", "price IN (:v1, :v2)"),
        (
            "price IN (2, 9, 1, 3)",
            "(2: 1 to 3, 9)",
            "price BETWEEN :low1 AND :high1 OR price BETWEEN :low2 AND :high2",
        ),
        ("issue IN ('SAP', 'IBM') AND price < 9", "(2: 'IBM', 'SAP')", "issue IN (:v1, :v2)"),
        (
            f"price IN ({', '.join(str(2 * i) for i in range(90))})",
            "(90: 0, 2, 4, 6, 8 and 85 more)",
            "price IN (:v1, ..., :v90)",
        ),
        ("price < 5 OR price > 7", "(2)", "price BETWEEN :low1 AND :high1 OR "),
        # Values of private constants are not in the text, and not in the error.
        ("price IN (:x, 3, :y)", "(3)", "price IN (:v1, ..., :v3)"),
    ],
)
def test_several_intervals_are_told_with_a_template_that_takes_them(
    text: str, intervals: str, example: str
) -> None:
    predicate = SCHEMA.parse(text)
    if predicate.private_names:
        predicate = predicate.bind(x=177, y=199)
    with pytest.raises(UnsupportedPredicateError) as caught:
        predicate.box()
    assert f"needs more than one interval {intervals}; " in caught.value.reason
    assert f'here with "{example}' in caught.value.reason
    assert "177" not in str(caught.value) and "199" not in str(caught.value)
    # What may be logged names no attribute and no constant.
    for word in ("price", "issue", "'IBM'", "85", ":v1"):
        assert word not in caught.value.summary


def test_the_named_template_takes_what_the_box_refused() -> None:
    schema = Schema(price=UInt(8))
    with pytest.raises(UnsupportedPredicateError, match="price IN") as caught:
        schema.parse("price IN (1, 3)").box()
    template = caught.value.reason.split('"')[1]
    bound = schema.parse(template).bind(v1=1, v2=3)
    assert bound.evaluate(schema.encode({"price": [0, 1, 2, 3]})).tolist() == [0, 1, 0, 1]


def every_event(schema: Schema) -> Events:
    """All combinations of codes of a small schema."""
    combinations = list(itertools.product(*(range(schema[name].size) for name in schema)))
    columns = zip(*combinations, strict=True)
    codes = {name: pack(list(column), 1) for name, column in zip(schema, columns, strict=True)}
    return Events(schema, len(combinations), codes)


@given(data=st.data(), schema=schemas(small_types(), max_attributes=3))
@settings(max_examples=examples(300))
def test_box_is_found_exactly_when_there_is_one(data: st.DataObject, schema: Schema) -> None:
    drawn = data.draw(predicates(schema, private=False, hamming=False))
    predicate = schema.parse(drawn.text)
    events = every_event(schema)
    kept = predicate.evaluate(events)
    assert np.array_equal(kept, predicate.true_form().evaluate(events))
    volume = 0
    if kept.any():
        volume = 1
        for code in events.codes.values():
            volume *= int(code[0, kept].max() - code[0, kept].min()) + 1
    if volume == np.count_nonzero(kept):
        assert np.array_equal(predicate.box().evaluate(events), kept)
    else:
        with pytest.raises(UnsupportedPredicateError):
            predicate.box()


CORNERS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)


@given(corners=st.lists(st.tuples(CORNERS, CORNERS), min_size=2, max_size=5))
@settings(max_examples=examples(200))
def test_a_union_of_rectangles_is_a_box_when_it_fills_one(corners: list[Any]) -> None:
    schema = Schema(a=UInt(2), b=UInt(2))
    predicate = schema.parse(
        " OR ".join(
            f"(a BETWEEN {a[0]} AND {a[1]} AND b BETWEEN {b[0]} AND {b[1]})" for a, b in corners
        )
    )
    cells = {
        (x, y) for a, b in corners for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)
    }
    columns, lines = {x for x, _ in cells}, {y for _, y in cells}
    spans = [(min(side), max(side)) for side in (columns, lines)]
    if len(cells) == (spans[0][1] - spans[0][0] + 1) * (spans[1][1] - spans[1][0] + 1):
        assert list(predicate.box().ranges.values()) == spans
    else:
        with pytest.raises(UnsupportedPredicateError):
            predicate.box()


def test_a_pinwheel_is_a_box_although_no_two_blades_merge() -> None:
    schema = Schema(a=UInt(3), b=UInt(3))
    blades = ["a<=1 AND b=0", "a=2 AND b<=1", "a IN (1,2) AND b=2", "a=0 AND b IN (1,2)"]
    whole = " OR ".join(f"({blade})" for blade in [*blades, "a=1 AND b=1"])
    assert schema.parse(whole).box().ranges == {"a": (0, 2), "b": (0, 2)}
    with pytest.raises(UnsupportedPredicateError, match="several attributes"):
        schema.parse(" OR ".join(f"({blade})" for blade in blades)).box()


def test_a_box_checks_itself() -> None:
    schema = Schema(a=UInt(2), b=UInt(2))
    assert Box(schema, {"a": (1, 0), "b": (0, 3)}).evaluate(schema.encode([])).shape == (0,)
    for ranges in ({"a": (0, 3)}, {"b": (0, 3), "a": (0, 3)}, {"a": (0, 4), "b": (0, 3)}):
        with pytest.raises(ParameterError):
            Box(schema, ranges)


def test_not_keeps_its_place() -> None:
    expression = SCHEMA.parse("flag AND NOT (price = 3)").expression
    assert isinstance(expression, AtLeast) and isinstance(expression.parts[1], Not)
    assert expression.parts[1].position == 14


def test_decimal_constants_are_never_floats() -> None:
    schema = Schema(x=Decimal(0, 1, "0.1"), y=Int(64))
    assert schema.parse("x < 0.3").box().ranges["x"] == (0, 2)
    assert schema.parse("x <= 0.30000000000000000001").box().ranges["x"] == (0, 3)
    low = schema.parse("y > 9007199254740992.5").box().ranges["y"][0]
    assert low - 2**63 == 9007199254740993


def test_nothing_of_a_predicate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema(sym=Text(8))
    with caplog.at_level(0), pytest.raises(PredicateError):
        schema.parse("sym -> 'SECRET[' = 1")
    assert "SECRET" not in caplog.text
    logging.getLogger("sqlglot").warning("of somebody else")
    assert "of somebody else" in caplog.text


def test_summaries_repeat_no_word_of_the_text() -> None:
    schema = Schema(n=UInt(8))
    for text in (
        "n = SECRET",
        "SECRET(n) = 1",
        "n IN (SELECT n FROM 73519)",
        "n IN (SELECT 1 |> SECRET)",
        "n < 3 AND",
        "n = 'SECRET'",
        "n = SUM(SECRET)",
    ):
        with pytest.raises(PredicateError) as refusal:
            schema.parse(text)
        summary = refusal.value.summary
        assert summary and not any(word in summary for word in ("SECRET", "73519", "SUM"))
