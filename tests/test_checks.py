"""Argument checks: what passes, in which type, and what each message says."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

import ccbps
from ccbps import Decimal, Schema, UInt, checks
from ccbps.errors import ParameterError, ShapeError


class Level(IntEnum):
    HIGH = 7


@given(st.integers(), st.integers() | st.none(), st.integers() | st.none())
def test_whole_numbers_pass_between_their_bounds(
    value: int, low: int | None, high: int | None
) -> None:
    inside = (low is None or low <= value) and (high is None or value <= high)
    try:
        assert checks.whole("n", value, low, high) == value
        assert inside
    except ParameterError:
        assert not inside


@pytest.mark.parametrize("kind", [int, np.int8, np.uint64, np.intp, Level])
def test_every_kind_of_integer_becomes_an_int(kind: Any) -> None:
    returned = checks.whole("n", kind(7), 7, 7)
    assert returned == 7 and type(returned) is int


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float64(1), "1", None, b"1", [1]])
def test_whole_refuses_what_is_no_integer(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"^n must be a whole number, got "):
        checks.whole("n", value)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, None, "a whole number of bits, got None; ask"),
        (1, None, "a whole number of bits, at least 1, got None; ask"),
        (None, 2000, "a whole number of bits, at most 2,000, got None; ask"),
        (1, 2000, "a whole number of bits from 1 to 2,000, got None; ask"),
    ],
)
def test_whole_says_its_bounds(low: int | None, high: int | None, said: str) -> None:
    with pytest.raises(ParameterError) as error:
        checks.whole("n", None, low, high, unit="bits", hint="ask")
    assert str(error.value) == f"n must be {said}"


def test_numbers_are_finite_and_bounded() -> None:
    assert checks.number("rate", np.float32(0.5), 0, 1) == 0.5
    assert type(checks.number("rate", np.int64(1))) is float
    for value in (True, "1", None, np.nan, np.inf, -np.inf, 10**400, 1.1, -0.1):
        with pytest.raises(ParameterError, match=r"^rate must be a finite number from 0 to 1, got"):
            checks.number("rate", value, 0, 1)
    assert checks.number("delay", np.float32(np.inf), 0, endless=True) == np.inf
    for value in (np.array([np.inf, 1]), np.array(np.inf), -np.inf, np.nan, 10**400):
        with pytest.raises(ParameterError, match=r"^delay must be a finite number, at least 0"):
            checks.number("delay", value, 0, endless=True)


def test_long_numbers_are_cut_off_in_errors() -> None:
    for value, shown in ((10**5000, "a number of very many digits"), (10**4000, r"10{199}\.\.\.")):
        with pytest.raises(ParameterError, match=f"^depth must be .* from 0 to 8, got {shown}$"):
            checks.whole("depth", value, 0, 8)
        with pytest.raises(ParameterError, match=f"got {shown}"):
            UInt(value)
        with pytest.raises(ParameterError, match=f"got {shown}"):
            Decimal(0, value, 1)


def test_flags_are_booleans() -> None:
    assert checks.flag("exact", np.True_) is True
    for value in (0, 1, "True", None):
        with pytest.raises(ParameterError, match=r"^exact must be True or False, got "):
            checks.flag("exact", value)


def test_choices_are_told_apart_by_type() -> None:
    assert checks.choice("r", 3, (2, 3)) == 3
    for value in (True, 1.0, "1", [1]):
        with pytest.raises(ParameterError, match=r"^r must be 1, 2 or 3, got "):
            checks.choice("r", value, (1, 2, 3))
    with pytest.raises(ParameterError, match=r"^r must be 1, got 2; take less$"):
        checks.choice("r", 2, (1,), hint="take less")


def test_instances_show_their_class_alone() -> None:
    assert checks.instance("schema", "x", (str, bytes)) == "x"
    with pytest.raises(ParameterError, match=r"^schema must be a str or an int, got bytes$"):
        checks.instance("schema", b"secret", (str, int))


def test_texts_are_not_empty() -> None:
    assert checks.text("name", "alice", 5) == "alice"
    for value, said in [
        (b"alice", "text, got bytes"),
        ("", "text of 1 to 5 characters, got 0"),
        ("secret", "text of 1 to 5 characters, got 6"),
    ]:
        with pytest.raises(ParameterError, match=f"^name must be {said}$"):
            checks.text("name", value, 5)
    with pytest.raises(ParameterError, match=r"^name must be text of at least 1 character, got 0$"):
        checks.text("name", "")
    assert checks.text("name", "zoë \U0001f600") == "zoë \U0001f600"
    with pytest.raises(ParameterError, match="half of a surrogate pair"):
        checks.text("name", "\ud83d")


def test_octets_are_never_shown() -> None:
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab")):
        assert checks.octets("key", value, 2) == b"ab"
    for wrong, said in [("secret", "2 bytes, got str"), (b"secret", "2 bytes, got 6")]:
        with pytest.raises(ParameterError, match=f"^key must be {said}$"):
            checks.octets("key", wrong, 2)
    with pytest.raises(ParameterError, match=r"^key must be bytes, got str$"):
        checks.octets("key", "secret")


@pytest.mark.parametrize(
    ("dtype", "shape", "wanted", "fits"),
    [
        (np.uint8, (2, 3), ("rows", 3), True),
        (np.uint8, (2, 3), ("n", "n"), False),
        (np.uint8, (3, 3), ("n", "n"), True),
        (np.uint8, (3,), ("n", 3), False),
        (np.uint8, (3, 3, 3), ("n", 3), False),
        (np.int8, (2, 3), ("rows", 3), False),
        (np.uint8, (2, 4), ("rows", 3), False),
    ],
)
def test_arrays_have_one_type_and_shape(
    dtype: Any, shape: tuple[int, ...], wanted: tuple[int | str, ...], fits: bool
) -> None:
    rows = np.zeros(shape, dtype)
    if fits:
        assert checks.array("rows", rows, np.uint8, wanted) is rows
        return
    with pytest.raises(ShapeError, match=r"^rows must be a uint8 array of shape \("):
        checks.array("rows", rows, np.uint8, wanted)


def test_fields_are_exactly_these() -> None:
    assert checks.fields("parameters", {"a": 1, "b": 2}, "ab") == {"a": 1, "b": 2}
    for value, came in [({"a": 1}, "a"), ({}, "none"), ([], "list"), ({"a": 1, 2: 2}, "2, a")]:
        said = rf"^parameters must be a mapping with the keys a, b, got {came}$"
        with pytest.raises(ParameterError, match=said):
            checks.fields("parameters", value, "ab")
    with pytest.raises(ParameterError, match=r"^parameters must be an empty mapping, got a$"):
        checks.fields("parameters", {"a": 1}, ())


@pytest.fixture(scope="module")
def kinds() -> set[type]:
    """All classes of the library."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(ccbps.__path__, "ccbps.", onerror=lambda _: None)
        if not re.search(r"\.(spark|testing|cli|__main__)\b", module.name)
    ]
    return {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }


def test_values_show_tools_no_more_than_they_print(kinds: set[type]) -> None:
    # Tools that print tracebacks ask for the fields by another way than repr().
    values = {kind for kind in kinds if issubclass(kind, Struct)}
    discreet = {kind for kind in values if kind.__repr__ is not Struct.__repr__}
    assert len(values) > 60
    assert len(discreet) > 20
    assert not {kind for kind in discreet if kind.__rich_repr__ is Struct.__rich_repr__}
    form = Schema(price=UInt(16)).parse("price < 120").true_form()
    assert form.__rich_repr__() == [("attribute", "price"), ("equal", False), ("negated", False)]


def test_objects_print_before_they_have_attributes(kinds: set[type]) -> None:
    # A check may end a constructor half-way, and a logger print the locals of the traceback.
    made = {
        kind
        for kind in kinds
        if "__init__" in vars(kind) and not is_dataclass(kind) and not inspect.isabstract(kind)
        and kind.__repr__ is not object.__repr__ and not issubclass(kind, BaseException | Enum)
    }  # fmt: skip
    assert len(made) > 60
    for kind in made:
        with suppress(TypeError):  # of a class that is made in another way, such as a dict
            assert repr(object.__new__(kind)).startswith("<")
