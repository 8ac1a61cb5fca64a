"""Labels: the lattice, stamps that nobody else can change, and rights to change a label."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps.access import Body, Label, Party, Stamp
from ccbps.errors import DecodeError, ParameterError, RefusedError, SerializationError
from ccbps.keys import SigningKey
from ccbps.records import read, write
from tests.support.altered import altered
from tests.support.refusals import refused

SUBSETS: list[set[str]] = [set(), {"a"}, {"b"}, {"a", "b"}]
LABELS = [Label(secrecy, integrity) for secrecy, integrity in product(SUBSETS, SUBSETS)]
"""All labels of two secrecy tags and two integrity tags."""
TAGS = st.frozensets(st.sampled_from("abcd"))
ANY = st.builds(Label, TAGS, TAGS)


def passes(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except RefusedError:
        return False
    return True


# -- lattice -------------------------------------------------------------------------------------


def test_flow_is_an_order_and_join_its_least_upper_bound() -> None:
    assert len({*LABELS}) == 16
    for m, n in product(LABELS, LABELS):
        assert m.flows_to(n) == (m.secrecy <= n.secrecy and n.integrity <= m.integrity)
        assert (m.flows_to(n) and n.flows_to(m)) == (m == n)
        join = m.join(n)
        assert join == n.join(m) and join in LABELS
        above = [other for other in LABELS if m.flows_to(other) and n.flows_to(other)]
        assert join in above and all(join.flows_to(other) for other in above)
        # The greatest lower bound exists, too, so labels are a lattice.
        below = [other for other in LABELS if other.flows_to(m) and other.flows_to(n)]
        assert sum(all(low.flows_to(other) for low in below) for other in below) == 1
    for m, n, other in product(LABELS, LABELS, LABELS):
        assert m.join(n).join(other) == m.join(n.join(other))
        if m.flows_to(n) and n.flows_to(other):
            assert m.flows_to(other)


@given(st.lists(ANY, min_size=1, max_size=5), ANY)
def test_a_derived_event_flows_where_all_inputs_do(inputs: list[Label], reader: Label) -> None:
    derived = Label.derived(inputs)
    assert derived.flows_to(reader) == all(label.flows_to(reader) for label in inputs)


@given(ANY, ANY, TAGS, TAGS)
def test_without_rights_labels_only_rise(
    old: Label, new: Label, declassify: frozenset[str], endorse: frozenset[str]
) -> None:
    party = Party(bytes(32), Label(), declassify, endorse)
    has_rights = (
        old.secrecy - new.secrecy <= declassify and new.integrity - old.integrity <= endorse
    )
    assert passes(Party(bytes(32)).check_change, old, new) == old.flows_to(new)
    assert passes(party.check_change, old, new) == has_rights


@given(ANY, ANY)
def test_a_party_reads_what_flows_to_it(label: Label, own: Label) -> None:
    assert passes(Party(bytes(32), own).check_read, label) == label.flows_to(own)


def test_nothing_is_derived_from_nothing() -> None:
    refused(ParameterError, "at least one label", Label.derived, [])


@given(ANY)
def test_labels_have_one_wire_form(label: Label) -> None:
    content = label.to_bytes()
    assert Label.from_bytes(content) == label
    for other in altered(content):
        try:
            assert Label.from_bytes(other).to_bytes() == other != content
        except DecodeError:
            continue


@pytest.mark.parametrize("tags", ["tag", [1], [[]], [""], ["x" * 65], None, map(str, range(65))])
def test_what_is_no_set_of_tags_is_refused(tags: Any) -> None:
    many = [*tags] if isinstance(tags, map) else tags
    refused(ParameterError, "secrecy must be", Label, many)
    refused(ParameterError, "integrity must be", Label, [], many)


# -- stamps --------------------------------------------------------------------------------------

KEYS = {name: SigningKey.generate() for name in ("ward", "desk", "lab", "eve")}
PARTIES = {
    "ward": Party(KEYS["ward"].identity, Label({"patient"})),
    "desk": Party(KEYS["desk"].identity, Label({"patient"}), declassify={"patient"}),
    "lab": Party(KEYS["lab"].identity, Label({"patient"}), endorse={"checked"}),
    "eve": Party(KEYS["eve"].identity),
}
BODY = Body.of(b"pulse 70", b"chart")
PATIENT = Label({"patient"})
STAMP = Stamp.sign(KEYS["ward"], "event", "ward", 7, "vitals", BODY, PATIENT, privacy=2)


def test_a_stamp_keeps_its_label() -> None:
    assert STAMP.check(PARTIES) == STAMP.label == PATIENT
    again = read(Stamp, write(STAMP), refusal="none")
    assert again == STAMP and again.check(PARTIES) == PATIENT


def test_rights_change_labels_and_each_change_is_checked() -> None:
    checked = Label({"patient"}, {"checked"})
    stamp = STAMP.relabel("lab", KEYS["lab"], checked)
    assert stamp.check(PARTIES) == checked
    public = Label(set(), {"checked"})
    assert stamp.relabel("desk", KEYS["desk"], public).check(PARTIES) == public
    # Neither does the other's work, and nobody needs a right to raise a label.
    refused(RefusedError, "endorse", STAMP.relabel("desk", KEYS["desk"], checked).check, PARTIES)
    refused(RefusedError, "declassify", stamp.relabel("lab", KEYS["lab"], public).check, PARTIES)
    raised = Label({"patient", "trial"})
    assert STAMP.relabel("eve", KEYS["eve"], raised).check(PARTIES) == raised


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "subscription"}, {"owner": "desk"}, {"number": 8}, {"topic": "trial"},
        {"origin": Label()}, {"origin": Label({"patient"}, {"checked"})}, {"privacy": 0},
        {"commitment": Body.of(b"pulse 70").commitment}, {"signature": bytes(64)},
    ],
)  # fmt: skip
def test_a_broker_that_alters_a_stamp_is_refused(change: dict[str, Any]) -> None:
    error = refused(RefusedError, "not signed by", replace(STAMP, **change).check, PARTIES)
    assert error.reason == "label"


def test_steps_are_of_one_stamp_in_one_order() -> None:
    other = Stamp.sign(KEYS["ward"], "event", "ward", 8, "vitals", BODY, PATIENT)
    declassified = STAMP.relabel("desk", KEYS["desk"], Label())
    moved = replace(other, steps=declassified.steps)
    refused(RefusedError, "not changed by 'desk'", moved.check, PARTIES)
    twice = declassified.relabel("eve", KEYS["eve"], Label({"trial"}))
    for steps in (twice.steps[::-1], twice.steps[1:], (*twice.steps, twice.steps[0])):
        refused(RefusedError, "not changed by", replace(STAMP, steps=steps).check, PARTIES)
    # Cut off, a declassification is undone: the label is stricter.
    assert replace(twice, steps=twice.steps[:0]).check(PARTIES) == PATIENT
    claimed = replace(declassified.steps[0], signer="eve")
    refused(RefusedError, "not changed by 'eve'", replace(STAMP, steps=(claimed,)).check, PARTIES)


def test_a_broker_that_strips_a_label_cannot_send_the_content_as_its_own() -> None:
    stripped = Stamp.sign(KEYS["ward"], "event", "ward", 9, "vitals", BODY, Label())
    refused(RefusedError, "declassify", stripped.check, PARTIES)
    # With the right, or without ever having been cleared, a party may.
    for name in ("desk", "eve"):
        own = Stamp.sign(KEYS[name], "event", name, 9, "vitals", BODY, Label())
        assert own.check(PARTIES) == Label()
    endorsed = Stamp.sign(KEYS["eve"], "event", "eve", 9, "vitals", BODY, Label(set(), {"checked"}))
    refused(RefusedError, "endorse", endorsed.check, PARTIES)


def test_strangers_are_refused() -> None:
    refused(RefusedError, "no party", STAMP.check, {})
    stepped = STAMP.relabel("mallory", KEYS["eve"], Label({"patient", "x"}))
    refused(RefusedError, "no party", stepped.check, PARTIES)


def test_labels_are_changed_a_bounded_number_of_times() -> None:
    stamp = STAMP
    for number in range(16):
        stamp = stamp.relabel("eve", KEYS["eve"], Label({"patient", str(number % 2)}))
    refused(ParameterError, "steps", stamp.relabel, "eve", KEYS["eve"], PATIENT)


def test_malformed_stamps_are_one_error() -> None:
    content = write(STAMP.relabel("eve", KEYS["eve"], Label({"patient", "x"})))
    accepted = 0
    for other in altered(content):
        try:
            stamp = read(Stamp, other, refusal="no stamp")
        except DecodeError:
            continue
        accepted += 1
        refused(RefusedError, "", stamp.check, PARTIES)
    assert accepted > 300  # signatures and commitments are any bytes


# -- commitments ---------------------------------------------------------------------------------


def test_commitments_bind_and_do_not_show_equal_contents() -> None:
    assert Body.of(b"x").commitment != Body.of(b"x").commitment
    salt = bytes(32)
    bodies = [Body(salt, b"ab", b"c"), Body(salt, b"a", b"bc"), Body(salt, b"abc"), Body(salt, b"")]
    assert all(m.commitment != n.commitment for m, n in combinations(bodies, 2))


def test_bodies_do_not_print_or_pickle() -> None:
    assert repr(BODY) == "<Body>"
    refused(SerializationError, "holds a secret", BODY.__reduce__)
