"""The conformance test finds faults: each that is planted here makes its check fail."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import structs

from ccbps import Schema, SharedSeed, wire
from ccbps.arrays import Bytes
from ccbps.ciphers.row_mac import RowMac
from ccbps.dictionary import pair_column
from ccbps.encodings.broadcast import window_slots
from ccbps.encodings.group import GroupEncoding
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching import (
    Answers,
    BranchingMatch,
    BroadcastMatch,
    Broker,
    FormulaMatch,
    KeywordMatch,
    Matcher,
    OFSGPMatch,
    Publisher,
    RoleKey,
    Table,
    TruthTableMatch,
)
from ccbps.matching.broken import AdditiveMaskMatch, AspeMatch, additive_mask
from ccbps.matching.contract import access, broker, key_server, roles, table
from ccbps.matching.contract.access import KeyAccess, RoundAccess
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.matcher import _made_again
from ccbps.matching.contract.scheme import Draw, Scheme, ServerScheme, Sizes
from ccbps.testing import OFFERS, Case, Subject, cases, proofs, server_checks
from ccbps.testing.cases import CHECKS, NULLABLE, PLAIN, TINY
from ccbps.testing.secrecy import SCHEME_CHECKS
from ccbps.testing.views import Exact
from ccbps.testing.wiring import Leak, Method
from ccbps.wire import TAG_BYTES, Cause, Kind
from tests.support.affine_scheme import AffineMatch
from tests.support.toy_scheme import ToyMatch

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
FAULTS: dict[str, tuple[Plant, str]] = {}


def wrapped(patch: Patch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around(real, *arguments)`."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: around(real, *a, **k))


def fault(check: str, owner: Any = None, name: str = "") -> Callable[..., Any]:
    """Register a fault under its name, with spaces, and with the check that finds it.

    The function is called in place of one of the owner's, which it is given first. Without an
    owner it plants the fault itself.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def plant(patch: Patch) -> None:
            if owner is None:
                function(patch)
            else:
                wrapped(patch, owner, name, function)

        FAULTS[function.__name__.replace("_", " ")] = plant, check
        return function

    return register


# -- messages -------------------------------------------------------------------------------------

OTHER_MATCHER = "messages of another matcher are refused in rounds"


@fault(OTHER_MATCHER, broker, "check_round_headers")
def a_broker_of_pairs_ignores_the_fingerprint(
    real: Any, events: Any, interests: Any, fingerprint: bytes
) -> Any:
    # Whatever all pairs have in common is right.
    sums, causes = (events ^ interests)[:, 1:], real(events, interests, fingerprint)
    return np.where((sums == sums[:1]).all() & (causes == Cause.PAIRING), Cause.NONE, causes)


def hidden_by(real: Any, kind: Kind, fingerprint: bytes, part: bytes) -> Any:
    """Return the mask of a side's header, with another part of the fingerprint."""
    chosen = np.frombuffer(part, dtype=np.uint8)
    return np.concatenate([real(kind, fingerprint)[:1], chosen])


@fault(OTHER_MATCHER, wire, "_unmasked")
def both_sides_add_the_same_part_of_the_fingerprint(real: Any, kind: Kind, name: bytes) -> Any:
    return hidden_by(real, kind, name, name[:7])


@fault(OTHER_MATCHER, wire, "_unmasked")
def only_interests_have_a_part_of_the_fingerprint(real: Any, kind: Kind, name: bytes) -> Any:
    return hidden_by(real, kind, name, bytes(7) if kind is Kind.EVENT else name[:7])


@fault(OTHER_MATCHER, wire, "_unmasked")
def only_events_have_a_part_of_the_fingerprint(real: Any, kind: Kind, name: bytes) -> Any:
    return hidden_by(real, kind, name, bytes(7) if kind is Kind.INTEREST else name[:7])


@fault("messages of another kind or version are refused", broker, "check_round_headers")
def a_broker_of_pairs_ignores_the_version(
    real: Any, events: Any, interests: Any, fingerprint: bytes
) -> Any:
    events, interests = events.copy(), interests.copy()
    for heads in (events, interests):
        heads[:, 0] = heads[:, 0] & 15 | wire.ROUND_VERSION << 4
    return real(events, interests, fingerprint)


@fault("messages of another matcher are refused", access, "check_key_headers")
def a_broker_of_tables_ignores_the_fingerprint(real: Any, heads: Any, wanted: Any) -> Any:
    heads = heads.copy()
    heads[:, 2:8] = wanted[2:8]
    return real(heads, wanted)


@fault("messages of another epoch are refused", access, "check_key_headers")
def a_broker_ignores_the_epoch(real: Any, heads: Any, wanted: Any) -> Any:
    causes = real(heads, wanted)
    return np.where(causes == Cause.EPOCH, Cause.NONE, causes).astype(np.uint8)


@fault("answers are the plaintext meaning", AdditiveMaskMatch, "match")
def answers_are_inverted(real: Any, *arguments: Any) -> Any:
    return ~real(*arguments)


@fault("answers are the plaintext meaning", roles, "interest_column")
def all_interests_count_as_equal(real: Any, interests: Any) -> Any:
    column = real(interests)
    return type(column)(column.values, np.zeros_like(column.index)) if len(column) else column


@fault("answers are the plaintext meaning", additive_mask, "box_ranges")
def null_is_a_small_number(real: Any, schema: Any, box: Any) -> Any:
    ranges = real(schema, box)
    ranges[ranges[:, 0] == 1, 0] = 0
    return ranges


@fault("equal interests are prepared once", roles, "interest_column")
def equal_interests_are_prepared_again(real: Any, interests: Any) -> Any:
    column = real(interests)
    values = [column.values[place] for place in column.index]
    return type(column)(values, np.arange(len(values), dtype=np.intp))


@fault("altered messages are refused", RowMac, "check")
def macs_are_not_checked(real: Any, mac: Any, rows: Any, tags: Any) -> Any:
    return np.ones(len(rows), dtype=np.bool_)


@fault("altered messages are refused", RowMac, "tags")
def macs_cover_the_header_only(real: Any, mac: Any, rows: Any) -> Any:
    return real(mac, rows[:, :16])


@fault("altered messages are refused", RowMac, "tags")
def macs_skip_the_middle(real: Any, mac: Any, rows: Bytes) -> Any:
    rows = np.array(rows)
    rows[:, 40:-1] = 0
    return real(mac, rows)


@fault("out is written and must fit", roles, "output")
def out_is_passed_over(real: Any, out: Any, shape: Any) -> Any:
    return real(None, shape)


@fault("randomness makes messages differ", RoundAccess, "open")
def all_rounds_share_the_same_masks(real: Any, *arguments: Any) -> Draw:
    draw = real(*arguments)

    def shared(start: int, stop: int, piece: int = 0) -> Bytes:
        rows = np.array(draw.shared(start, stop, piece))
        rows[:] = (np.arange(rows.shape[1]) * 37 % 251).astype(np.uint8)
        return rows

    return Draw(draw.fresh, shared, draw.tags)


@fault("what the scheme refuses the broker refuses", KeyAccess, "examine")
def a_broker_does_not_ask_the_scheme(real: Any, self: Any, messages: Bytes, side: Any) -> Bytes:
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(type(self._scheme), "check", Scheme.check)
        causes: Bytes = real(self, messages, side)
    return causes


# -- descriptions ---------------------------------------------------------------------------------


@fault("matchers survive pickling and text")
def a_description_forgets_the_parameters(patch: Patch) -> None:
    forgetful = classmethod(lambda cls, schema, parameters: cls.box(schema))
    patch.setattr(BranchingMatch, "from_parameters", forgetful)


@fault("another schema makes another matcher", Scheme, "describe")
def a_fingerprint_forgets_the_parameters(real: Any, scheme: Scheme) -> dict[str, Any]:
    return {**real(scheme), "parameters": {}, "layout": None, "schema": []}


@fault("the card and the costs are whole")
def the_card_promises_what_the_broker_sees(patch: Patch) -> None:
    real = AdditiveMaskMatch.leakage.fget  # type: ignore[attr-defined]
    bold = property(lambda self: structs.replace(real(self), protects=frozenset({Protects.MATCH})))
    patch.setattr(AdditiveMaskMatch, "leakage", bold)


# -- rounds ---------------------------------------------------------------------------------------


@fault("rounds are used once", RoundLedger, "claim")
def an_encoder_reuses_a_round(real: Any, *arguments: Any) -> None:
    pass


@fault("rounds are used once", RoundAccess, "__init__")
def an_encoder_forgets_its_ledger_on_disk(
    real: Any, self: Any, scheme: Any, role: Any, seed: Any, ledger: Any, r: Any
) -> None:
    real(self, scheme, role, seed, None, r)


@fault("rounds are used once", RoundAccess, "__init__")
def a_subscriber_forgets_its_ledger_on_disk(
    real: Any, self: Any, scheme: Any, role: Any, seed: Any, ledger: Any, r: Any
) -> None:
    real(self, scheme, role, seed, None if role == "subscriber" else ledger, r)


@fault("rounds are used once", BranchingMatch, "identify")
def all_interests_are_the_same_to_a_ledger(real: Any, *arguments: Any) -> bytes:
    return b""


@fault("messages of another round are refused", access, "write_round_headers")
def every_round_has_the_tag_of_the_first(
    real: Any, messages: Any, kind: Any, fingerprint: Any, tags: Any
) -> None:
    real(messages, kind, fingerprint, np.zeros_like(tags))


@fault("pairs have seeds of their own", RoundAccess, "open")
def labels_of_pairs_are_passed_over(
    real: Any, self: Any, rounds: Any, count: Any, pairs: Any, *more: Any
) -> Any:
    return real(self, rounds, count, None, *more)


BROADCAST = "an event of a broadcast serves all labels"


@fault(BROADCAST, RoundAccess, "_claim")
def a_broadcast_reads_randomness_by_label(
    real: Any, self: Any, rounds: Any, count: int, pairs: Any, content: Any
) -> Any:
    reader = real(self, rounds, count, pairs, content)
    if pairs is None:
        return reader
    return self._reader(as_rounds(rounds, count), pair_column(pairs, count))


@fault(BROADCAST, RoundAccess, "open")
def a_broadcast_takes_events_for_single_labels(
    real: Any, self: Any, rounds: Any, count: Any, pairs: Any, *more: Any
) -> Any:
    return real(self, rounds, count, pairs if self._kind is Kind.INTEREST else None, *more)


@fault(BROADCAST, RoundLedger, "claim")
def a_broadcast_claims_a_round_for_all_labels(
    real: Any, self: Any, rounds: Any, pairs: Any = None
) -> None:
    real(self, rounds)


@fault(BROADCAST, RoundLedger, "claim")
def a_broadcast_claims_no_rounds_of_labels(
    real: Any, self: Any, rounds: Any, pairs: Any = None
) -> None:
    if pairs is None:
        real(self, rounds)


@fault(BROADCAST, BroadcastMatch, "encode_interests")
def interests_of_a_broadcast_share_their_nonce(
    real: Any, self: Any, key: Any, interests: Any, draw: Draw, out: Bytes
) -> None:
    real(self, key, interests, Draw(bytes, draw.shared, draw.tags), out)


@fault(BROADCAST, RoundAccess, "_reader")
def a_broadcast_has_one_set_of_labels(real: Any, self: Any, numbers: Any, pairs: Any) -> Any:
    # Which another seed knows as well, and another round.
    width = self._scheme.sizes.randomness + TAG_BYTES
    return lambda start, stop: np.zeros((stop - start, width), dtype=np.uint8)


# -- keys -----------------------------------------------------------------------------------------


@fault("keys of another role or matcher are refused", access, "check_key")
def a_role_takes_the_key_of_another_role(real: Any, scheme: Any, key: Any, role: Any) -> None:
    pass


@fault("altered keys are refused or other keys", access, "check_data")
def a_role_takes_any_content_of_a_key(real: Any, check: Any) -> None:
    pass


@fault("altered updates are refused or others", broker, "check_data")
def a_broker_takes_any_content_of_an_update(real: Any, check: Any) -> None:
    pass


@fault("messages of another epoch are refused", KeyServer, "rotate")
def a_server_does_not_change_its_key(real: Any, server: KeyServer) -> None:
    server.epoch = 1


@fault("messages under another key are refused", RoleKey, "make")
def all_servers_have_one_name(
    real: Any, digest: bytes, role: str, name: bytes, *rest: Any
) -> RoleKey:
    return real(digest, role, bytes(len(name)) if role == "server" else name, *rest)


@fault("secrets do not show", SharedSeed, "__repr__")
def a_key_shows_its_secret(real: Any, seed: SharedSeed) -> str:
    return f"<SharedSeed {seed.export_secret().hex()}>"


@fault("secrets do not show", Publisher, "__reduce__")
def a_role_can_be_pickled(real: Any, role: Any) -> Any:
    return str, ()


@fault("keys hold the macs of their side")
def keys_of_clients_hold_both_macs(patch: Patch) -> None:
    both = dict.fromkeys(("publisher", "subscriber", "broker"), (Kind.EVENT, Kind.INTEREST))
    patch.setattr(key_server, "SIDES", both)


@fault("keys hold the macs of their side", KeyServer, "_mac")
def one_mac_key_serves_both_sides(real: Any, server: Any, side: Any) -> str:
    return server._root.hex()


@fault("a change of key changes the macs")
def mac_keys_stay_when_the_key_changes(patch: Patch) -> None:
    class Same:
        @staticmethod
        def digest(key: bytes, message: bytes, name: str) -> bytes:
            return key if b"next root" in message else hmac.digest(key, message, name)

    patch.setattr(key_server, "hmac", Same)


@fault("epochs are told apart in both bytes", access, "key_header")
def epochs_have_one_byte(real: Any, kind: Any, fingerprint: Any, key_id: Any, epoch: int) -> Any:
    return real(kind, fingerprint, key_id, epoch % 256)


@fault("a brokers key makes no messages", KeyServer, "_issued")
def a_brokers_key_holds_the_master_key(
    real: Any, server: KeyServer, role: Any, name: str, options: Any
) -> Any:
    key = real(server, role, name, options)
    if role != "broker":
        return key
    return server._key(role, {**server._master, **key.export_secret_data()})


USERS = "users are locked out and let in"


@fault(USERS)
def a_scheme_checks_nothing(patch: Patch) -> None:
    patch.setattr(KeywordMatch, "check", Scheme.check)


@fault(USERS, Broker, "revoke")
def a_broker_revokes_nobody(real: Any, self: Broker, user: bytes) -> None:
    pass


@fault(USERS, Broker, "admit")
def a_broker_admits_nobody(real: Any, self: Broker, key: Any) -> None:
    pass


@fault(USERS)
def a_broker_admits_those_it_forgot(patch: Patch) -> None:
    patch.setattr(KeywordMatch, "admit", ServerScheme.admit)


class Everybody(dict[str, Any]):
    def __contains__(self, user: object) -> bool:
        return True


@fault(USERS, KeywordMatch, "match")
def a_table_keeps_interests_of_forgotten_users(
    real: Any, self: Matcher, key: Any, *arguments: Any
) -> Any:
    # As if all that a table needs to know of users were known when it is made.
    return real(self, {**key, "users": Everybody(key["users"])}, *arguments)


# -- tables ---------------------------------------------------------------------------------------


@fault("tables grow and shrink", Table, "_append")
def a_table_loses_its_last_interest(real: Any, table: Table, messages: Any, names: Any) -> None:
    real(table, messages[:-1], names[:-1])


@fault("tables grow and shrink", Table, "remove")
def a_table_keeps_what_is_removed(real: Any, table: Table, ids: Any) -> None:
    pass


class AnyHash(bytes):
    """A hash that equals all others."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__

    def digest(self) -> AnyHash:
        return self


@fault("tables grow and shrink")
def a_saved_table_is_not_checked(patch: Patch) -> None:
    patch.setattr(table, "primitives", SimpleNamespace(sha256=lambda content: AnyHash(32)))


@fault("covering is containment", AdditiveMaskMatch, "covers")
def covering_is_turned_round(real: Any, *arguments: Any) -> Any:
    return real(*arguments).T


@fault("a refused event has no answers", Broker, "examine_all")
def refused_events_are_answered(real: Any, *arguments: Any) -> Any:
    answers, causes = real(*arguments)
    answers[causes != Cause.NONE] = True
    return answers, causes


@fault("a refused event has no answers", Broker, "examine_all")
def good_events_beside_a_refused_one_have_no_answers(real: Any, *arguments: Any) -> Any:
    answers, causes = real(*arguments)
    return answers & (not causes.any()), causes


@fault("tables of another key are not merged", Table, "merge")
def tables_of_another_key_are_passed_over(real: Any, *arguments: Any) -> None:
    with suppress(KeyMismatchError):
        real(*arguments)


@fault("tokens are used once and in turn", Broker, "update")
def a_token_that_does_not_fit_changes_nothing(
    real: Any, self: Broker, interests: Any, *arguments: Any
) -> Any:
    try:
        return real(self, interests, *arguments)
    except (KeyMismatchError, DecodeError):
        return interests


@fault("tokens are used once and in turn", Broker, "update")
def an_update_mixes_up_ids(real: Any, self: Broker, interests: Any, token: Any, new: Broker) -> Any:
    moved = real(self, interests, token, new)
    return new.prepare(moved.messages, moved.ids[::-1]) if isinstance(moved, Table) else moved


NUMBERS = "numbers of interests are not given again"


@fault(NUMBERS, Broker, "update")
def an_update_counts_interests_anew(
    real: Any, self: Broker, interests: Any, token: Any, new: Broker
) -> Any:
    moved = real(self, interests, token, new)
    return new.prepare(moved.messages, moved.ids) if isinstance(moved, Table) else moved


@fault(NUMBERS, Table, "add")
def numbers_that_are_free_are_given_again(
    real: Any, table: Table, interests: Any, ids: Any = None
) -> None:
    if ids is None:
        free = (number for number in range(1000) if number not in table.ids)
        ids = [next(free) for _ in range(len(interests))]
    real(table, interests, ids)


@fault(NUMBERS, Broker, "load")
def a_loaded_table_counts_interests_anew(
    real: Any, self: Broker, *arguments: Any, **options: Any
) -> Table:
    loaded = real(self, *arguments, **options)
    return self.prepare(loaded.messages, loaded.ids)


@fault("a table may change while it is matched")
def a_broker_reads_a_table_twice(patch: Patch) -> None:
    def match_all(real: Any, self: Broker, events: Any, interests: Any) -> Any:
        count = len(interests)
        time.sleep(0.001)
        answers = real(self, events, interests)
        out = np.zeros((len(answers), count), dtype=np.bool_)
        out[:, : answers.shape[1]] = answers[:, :count]
        return out

    wrapped(patch, Broker, "match_all", match_all)
    # On a busy machine the other thread may not have its turn in the usual time.
    patch.setattr(server_checks, "CONCURRENT", 60)


@fault("many events are matched block by block", Broker, "match_all")
def many_events_lose_their_answers(real: Any, self: Broker, events: Any, interests: Any) -> Any:
    answers = real(self, events, interests)
    answers[broker.MATCH_ROWS :] = False
    return answers


CASES = (
    (BranchingMatch, PLAIN),
    (AdditiveMaskMatch, NULLABLE),
    (KeywordMatch, TINY),
    (AspeMatch, PLAIN),
    (BroadcastMatch, PLAIN),
)
"""Of rounds; of keys, with NULL; with users, too; with tokens that bring interests to a new key;
with one event for all."""


def made() -> list[Case]:
    """Few and small ones, as some faults take nearly all checks."""
    return [
        case
        for scheme, schema in CASES
        for case in cases(scheme, [offer for offer in OFFERS if offer.schema == schema])[:2]
    ]


def run(check: str, of: list[Case]) -> None:
    for case in of:
        CHECKS[check](case)


def test_without_a_fault_nothing_fails() -> None:
    sound = made()
    for check in CHECKS:
        run(check, sound)


@pytest.fixture(autouse=True)
def nothing_made_with_a_fault_is_kept() -> Iterator[None]:
    yield
    _made_again.cache_clear()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    plant, check = FAULTS[name]
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            run(check, made())


# -- what cards promise ---------------------------------------------------------------------------


class Flat(AffineMatch):
    """Codes plus b."""

    def coefficients(self, draws: Any) -> Any:
        a, b = super().coefficients(draws)
        return np.ones_like(a), b


class Entangled(AffineMatch):
    """The same random bits for a and b."""

    def coefficients(self, draws: Any) -> Any:
        a = super().coefficients(draws)[0]
        return a, a


class Biased(AffineMatch):
    """All draws are kept, so that some numbers are more likely than others."""

    def coefficients(self, draws: Any) -> Any:
        a, b = ((draws[:, side, 0] % 256).astype(np.uint64) for side in range(2))
        return a % np.uint64(self.prime - 1) + np.uint64(1), b % np.uint64(self.prime)


class Telling(AffineMatch):
    """One bit of an interest is a bit of its code."""

    def encode_interests(self, key: Any, interests: Any, draw: Draw, out: Bytes) -> None:
        super().encode_interests(key, interests, draw, out)
        codes = np.array(interests.values)[interests.index]
        out[:, 3] |= (codes % 2 << 7).astype(np.uint8)

    def match_pairs(self, events: Bytes, interests: Bytes) -> Any:
        interests = interests.copy()
        interests[:, -1] &= 127
        return super().match_pairs(events, interests)


class Coined(AffineMatch):
    """An interest has a random bit of the subscriber's own."""

    def encode_interests(self, key: Any, interests: Any, draw: Draw, out: Bytes) -> None:
        super().encode_interests(key, interests, draw, out)
        out[:, 3] |= np.frombuffer(draw.fresh(len(out)), dtype=np.uint8) & 128

    match_pairs = Telling.match_pairs


class Repeated(AffineMatch):
    """One event for all interests of a round, whose equal interests are equal messages."""

    answers = Answers.ROUND


class Hashed(AffineMatch):
    """A hash of code and randomness: perfect by its card only."""

    randomness: ClassVar[int] = 16

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._set_up(schema, Sizes(4, 4, self.randomness))

    def _send(self, codes: Any, draw: Draw, out: Bytes) -> None:
        for row, code, random in zip(out, codes, draw.rows(0, len(out)), strict=True):
            digest = hmac.digest(random.tobytes(), int(code).to_bytes(8), "sha256")
            row[:] = np.frombuffer(digest[:4], dtype=np.uint8)


class HashedByLittle(Hashed):
    """The same with a byte of randomness, which can be enumerated."""

    randomness = 1


class Reusable(ToyMatch):
    """A scheme with a key server whose card says perfect."""

    @property
    def leakage(self) -> LeakageCard:
        return structs.replace(super().leakage, security="perfect")


class Modest(AffineMatch):
    """A scheme that proposes nothing."""

    @classmethod
    def propose(cls, schema: Schema, wanted: Any) -> Any:
        return iter(())


CASES_CHECK, EXACT, SAMPLED = SCHEME_CHECKS
TOLD: dict[type[Matcher], dict[str, str]] = {
    Flat: {EXACT: "the two messages tell apart", SAMPLED: "both messages of .* tell apart"},
    Entangled: {EXACT: "messages .*tell apart"},
    Biased: {EXACT: "event messages alone tell apart"},
    Telling: {EXACT: "interest messages alone tell apart"},
    Coined: {EXACT: "take all randomness of a perfect scheme from draw.shared"},
    Repeated: {SAMPLED: "two interests of a round of .* tell apart"},
    Hashed: {EXACT: "no small matcher of it could be enumerated: let propose"},
    HashedByLittle: {EXACT: "messages alone tell apart"},
    Reusable: {EXACT: "which only one-time messages can be: say computational"},
    Modest: {CASES_CHECK: "add an Offer whose predicates it takes"},
}
"""Schemes whose cards say too much, the checks that find it, and what they say."""


@pytest.mark.parametrize("scheme", TOLD, ids=lambda scheme: scheme.__name__)
def test_a_card_that_promises_too_much_is_found(scheme: type[Matcher]) -> None:
    subject, told = Subject(scheme), {}
    for name, check in SCHEME_CHECKS.items():
        try:
            check(subject)
        except AssertionError as error:
            told[name] = str(error)
    assert TOLD[scheme].keys() <= told.keys()
    for name, pattern in TOLD[scheme].items():
        assert re.search(pattern, told[name]), told[name]


def test_interests_that_tell_before_their_event_which_are_equal_are_found(
    monkeypatch: Patch,
) -> None:
    """A select bit, which all interests of a round have, is all that hides the root."""
    monkeypatch.setattr(window_slots, "ROOT", -1)
    with pytest.raises(Leak, match=r"two interests of a round of .* tell apart"):
        SCHEME_CHECKS[SAMPLED](Subject(BroadcastMatch))


def test_a_perfect_scheme_is_enumerated_where_draws_are_rejected() -> None:
    (method,) = {getattr(one, "method", one) for one in proofs(Subject(AffineMatch)).values()}
    assert method is Method.ENUMERATED


def test_a_message_that_rarely_depends_on_a_bit_is_unproven_and_no_leak() -> None:
    """An event of 8 bits carries one of 256 bits of the pad, each rarely."""
    accounts = proofs(Subject(TruthTableMatch, thorough=True))
    told = {matcher.schema.bits: account for matcher, account in accounts.items()}
    assert "more randomness than was found" in str(told[8])
    assert isinstance(told[2], Exact)


def spoiled_blinders(spoil: Callable[[Any, Any], None]) -> Plant:
    """Blinders of group programs are changed, as ranks: R1, R3, ... and R2, R4, ..."""

    def plant(patch: Patch) -> None:
        def blinders(real: Any, self: GroupEncoding, *arguments: Any) -> Any:
            ranks = [self.group.to_ranks(some).copy() for some in real(self, *arguments)]
            spoil(*ranks)
            return tuple(map(self.group.from_ranks, ranks))

        wrapped(patch, GroupEncoding, "blinders", blinders)

    return plant


def held_bits(byte: int, mask: int) -> Plant:
    """Some bits of the shared randomness of a scheme are zero."""

    def plant(patch: Patch) -> None:
        def rows(real: Any, self: Draw, start: int, stop: int) -> Bytes:
            random = real(self, start, stop).copy()
            random[:, byte] &= 255 ^ mask
            return random

        wrapped(patch, Draw, "rows", rows)

    return plant


def put(ranks: Any, place: int, value: Any) -> None:
    ranks[:, place] = value


SPOILED: dict[str, tuple[type[Matcher], Plant]] = {
    "a formula's first random bit is zero": (FormulaMatch, held_bits(0, 1)),
    "a formula's messages have no mask": (FormulaMatch, held_bits(1, 255)),
    "a branching program's first random bit is zero": (BranchingMatch, held_bits(0, 1)),
    "the last blinder is the identity": (OFSGPMatch, spoiled_blinders(lambda _, b: put(b, -1, 0))),
    "a blinder is used again far away": (
        OFSGPMatch,
        spoiled_blinders(lambda a, _: put(a, 30, a[:, 0])),
    ),
    "one blinder is biased": (
        OFSGPMatch,
        spoiled_blinders(lambda a, _: put(a, 0, np.minimum(a[:, 0], 58))),
    ),
}


SLOW = {"the last blinder is the identity", "one blinder is biased"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in SPOILED]
)
def test_randomness_that_is_missing_from_a_perfect_scheme_is_found(
    name: str, monkeypatch: Patch
) -> None:
    scheme, plant = SPOILED[name]
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(Leak):
            SCHEME_CHECKS[EXACT](Subject(scheme))
