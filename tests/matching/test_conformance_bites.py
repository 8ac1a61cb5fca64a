"""The conformance test finds faults: each that is planted here makes its check fail."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from ccbps import wire
from ccbps.arrays import Bytes
from ccbps.ciphers.row_mac import RowMac
from ccbps.dictionary import pair_column
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.keys.randomness import RandomnessReader
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.matching import (
    BranchingMatch,
    BroadcastMatch,
    Broker,
    KeywordMatch,
    Matcher,
    Publisher,
    Table,
)
from ccbps.matching.broken import AdditiveMaskMatch, AspeMatch
from ccbps.matching.contract import access, broker, key_server, roles
from ccbps.matching.contract.access import KeyAccess, RoundAccess
from ccbps.matching.contract.bodies import Draw
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.matcher import _made_again
from ccbps.matching.contract.scheme import Scheme, ServerScheme
from ccbps.wire import TAG_BYTES, Cause, Kind
from tests.support.conformance import CHECKS, NULLABLE, PLAIN, TINY, WANTED, Case, cases

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
FAULTS: dict[str, tuple[Plant, str]] = {}


def fault(check: str) -> Callable[[Plant], Plant]:
    """Registered under its name, with spaces, and with the check that finds it."""

    def registered(function: Plant) -> Plant:
        FAULTS[function.__name__.replace("_", " ")] = function, check
        return function

    return registered


def wrapped(patch: Patch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around(real, *arguments)`."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *a, **k: around(real, *a, **k))


@fault("messages of another matcher are refused")
def a_broker_of_pairs_ignores_the_fingerprint(patch: Patch) -> None:
    def blind(real: Any, events: Any, interests: Any, fingerprint: bytes) -> Any:
        # Whatever all pairs have in common is right.
        sums, causes = (events ^ interests)[:, 1:], real(events, interests, fingerprint)
        return np.where((sums == sums[:1]).all() & (causes == Cause.PAIRING), Cause.NONE, causes)

    wrapped(patch, broker, "check_round_headers", blind)


def headers_with(patch: Patch, part: Callable[[Kind, bytes], bytes]) -> None:
    """Each side's tag is hidden by that part of the fingerprint."""

    def around(real: Any, kind: Kind, fingerprint: bytes) -> Any:
        chosen = np.frombuffer(part(kind, fingerprint), dtype=np.uint8)
        return np.concatenate([real(kind, fingerprint)[:1], chosen])

    wrapped(patch, wire, "_unmasked", around)


@fault("messages of another matcher are refused")
def both_sides_add_the_same_part_of_the_fingerprint(patch: Patch) -> None:
    headers_with(patch, lambda kind, fingerprint: fingerprint[:7])


@fault("messages of another matcher are refused")
def only_interests_have_a_part_of_the_fingerprint(patch: Patch) -> None:
    headers_with(patch, lambda kind, name: bytes(7) if kind is Kind.EVENT else name[:7])


@fault("messages of another matcher are refused")
def only_events_have_a_part_of_the_fingerprint(patch: Patch) -> None:
    headers_with(patch, lambda kind, name: bytes(7) if kind is Kind.INTEREST else name[:7])


@fault("messages of another kind or version are refused")
def a_broker_of_pairs_ignores_the_version(patch: Patch) -> None:
    def lenient(real: Any, events: Any, interests: Any, fingerprint: bytes) -> Any:
        events, interests = events.copy(), interests.copy()
        for heads in (events, interests):
            heads[:, 0] = heads[:, 0] & 15 | wire.ROUND_VERSION << 4
        return real(events, interests, fingerprint)

    wrapped(patch, broker, "check_round_headers", lenient)


@fault("messages of another matcher are refused")
def a_broker_of_tables_ignores_the_fingerprint(patch: Patch) -> None:
    def blind(real: Any, heads: Any, wanted: Any) -> Any:
        heads = heads.copy()
        heads[:, 2:8] = wanted[2:8]
        return real(heads, wanted)

    wrapped(patch, access, "check_key_headers", blind)


@fault("messages of another epoch are refused")
def a_broker_ignores_the_epoch(patch: Patch) -> None:
    def blind(real: Any, heads: Any, wanted: Any) -> Any:
        causes = real(heads, wanted)
        return np.where(causes == Cause.EPOCH, Cause.NONE, causes).astype(np.uint8)

    wrapped(patch, access, "check_key_headers", blind)


@fault("tables grow and shrink")
def a_table_loses_its_last_interest(patch: Patch) -> None:
    def lossy(real: Any, table: Table, messages: Any, names: Any) -> None:
        real(table, messages[:-1], names[:-1])

    wrapped(patch, Table, "_append", lossy)


@fault("tables grow and shrink")
def a_table_keeps_what_is_removed(patch: Patch) -> None:
    patch.setattr(Table, "remove", lambda table, ids: None)


@fault("tables grow and shrink")
def a_saved_table_is_not_checked(patch: Patch) -> None:
    import ccbps.matching.contract.table as module

    class Same:
        def __init__(self, content: bytes) -> None:
            pass

        def digest(self) -> bytes:
            class Any32(bytes):
                def __eq__(self, other: object) -> bool:
                    return True

                def __ne__(self, other: object) -> bool:
                    return False

                __hash__ = bytes.__hash__

            return Any32(bytes(32))

    patch.setattr(module, "sha256", Same)


@fault("rounds are used once")
def an_encoder_reuses_a_round(patch: Patch) -> None:
    patch.setattr(RoundLedger, "claim", lambda ledger, numbers, pairs=None: None)


@fault("rounds are used once")
def an_encoder_forgets_its_ledger_on_disk(patch: Patch) -> None:
    def forgetful(
        real: Any, self: Any, scheme: Any, role: Any, seed: Any, ledger: Any, r: Any
    ) -> Any:
        real(self, scheme, role, seed, None, r)

    wrapped(patch, RoundAccess, "__init__", forgetful)


@fault("messages of another round are refused")
def every_round_has_the_tag_of_the_first(patch: Patch) -> None:
    def constant(real: Any, messages: Any, kind: Any, fingerprint: Any, tags: Any) -> None:
        real(messages, kind, fingerprint, np.zeros_like(tags))

    wrapped(patch, access, "write_round_headers", constant)


@fault("keys of another role or matcher are refused")
def a_role_takes_the_key_of_another_role(patch: Patch) -> None:
    patch.setattr(access, "check_key", lambda scheme, key, role: None)


@fault("messages of another epoch are refused")
def a_server_does_not_change_its_key(patch: Patch) -> None:
    wrapped(patch, key_server.KeyServer, "rotate", lambda real, server: setattr(server, "epoch", 1))


@fault("messages under another key are refused")
def all_servers_have_one_name(patch: Patch) -> None:
    import os

    real = os.urandom
    patch.setattr(key_server.os, "urandom", lambda n: bytes(n) if n == 6 else real(n))


@fault("matchers survive pickling and text")
def a_description_forgets_the_parameters(patch: Patch) -> None:
    patch.setattr(
        BranchingMatch,
        "from_parameters",
        classmethod(lambda cls, schema, parameters: cls.box(schema)),
    )


@fault("another schema makes another matcher")
def a_fingerprint_forgets_the_parameters(patch: Patch) -> None:
    def poor(real: Any, scheme: Scheme) -> dict[str, Any]:
        return {**real(scheme), "parameters": {}, "layout": None, "schema": []}

    wrapped(patch, Scheme, "describe", poor)


@fault("answers are the plaintext meaning")
def answers_are_inverted(patch: Patch) -> None:
    wrapped(patch, AdditiveMaskMatch, "match", lambda real, *a: ~real(*a))


@fault("answers are the plaintext meaning")
def all_interests_count_as_equal(patch: Patch) -> None:
    def merged(real: Any, column: Any) -> Any:
        found = real(column)
        return type(found)(found.values, np.zeros_like(found.index)) if len(found) else found

    wrapped(patch, roles, "interest_column", merged)


@fault("equal interests are prepared once")
def equal_interests_are_prepared_again(patch: Patch) -> None:
    def scattered(real: Any, column: Any) -> Any:
        found = real(column)
        values = [found.values[place] for place in found.index]
        return type(found)(values, np.arange(len(values), dtype=np.intp))

    wrapped(patch, roles, "interest_column", scattered)


@fault("secrets do not show")
def a_key_shows_its_secret(patch: Patch) -> None:
    from ccbps import SharedSeed

    patch.setattr(SharedSeed, "__repr__", lambda seed: f"<SharedSeed {seed.export_secret().hex()}>")


@fault("secrets do not show")
def a_role_can_be_pickled(patch: Patch) -> None:
    patch.setattr(Publisher, "__reduce__", lambda role: (str, ()))


@fault("answers are the plaintext meaning")
def null_is_a_small_number(patch: Patch) -> None:
    from ccbps.matching.broken import additive_mask

    def from_nothing(real: Any, schema: Any, box: Any) -> Any:
        ranges = real(schema, box)
        ranges[ranges[:, 0] == 1, 0] = 0
        return ranges

    wrapped(patch, additive_mask, "box_ranges", from_nothing)


@fault("altered messages are refused")
def macs_are_not_checked(patch: Patch) -> None:
    patch.setattr(RowMac, "check", lambda mac, rows, tags: np.ones(len(rows), dtype=np.bool_))


@fault("altered messages are refused")
def macs_cover_the_header_only(patch: Patch) -> None:
    wrapped(patch, RowMac, "tags", lambda real, mac, rows: real(mac, rows[:, :16]))


@fault("out is written and must fit")
def out_is_passed_over(patch: Patch) -> None:
    wrapped(patch, roles, "output", lambda real, out, shape: real(None, shape))


@fault("covering is containment")
def covering_is_turned_round(patch: Patch) -> None:
    wrapped(patch, AdditiveMaskMatch, "covers", lambda real, *a: real(*a).T)


@fault("the card and the costs are whole")
def the_card_promises_what_the_broker_sees(patch: Patch) -> None:
    import dataclasses

    from ccbps.leakage import Protects

    real = AdditiveMaskMatch.leakage.fget  # type: ignore[attr-defined]
    bold = frozenset({Protects.MATCH})
    patch.setattr(
        AdditiveMaskMatch,
        "leakage",
        property(lambda self: dataclasses.replace(real(self), protects=bold)),
    )


@fault("keys hold the macs of their side")
def keys_of_clients_hold_both_macs(patch: Patch) -> None:
    both = Kind.EVENT, Kind.INTEREST
    patch.setattr(key_server, "SIDES", {**key_server.SIDES, "subscriber": both, "publisher": both})


@fault("keys hold the macs of their side")
def one_mac_key_serves_both_sides(patch: Patch) -> None:
    patch.setattr(KeyServer, "_mac", lambda server, side: server._root.hex())


@fault("a change of key changes the macs")
def mac_keys_stay_when_the_key_changes(patch: Patch) -> None:
    class Same:
        @staticmethod
        def digest(key: bytes, message: bytes, name: str) -> bytes:
            return key if b"next root" in message else hmac.digest(key, message, name)

    patch.setattr(key_server, "hmac", Same)


@fault("altered messages are refused")
def macs_skip_the_middle(patch: Patch) -> None:
    def skipping(real: Any, mac: Any, rows: Bytes) -> Any:
        rows = np.array(rows)
        rows[:, 40:-1] = 0
        return real(mac, rows)

    wrapped(patch, RowMac, "tags", skipping)


@fault("randomness makes messages differ")
def all_rounds_share_the_same_masks(patch: Patch) -> None:
    def constant(real: Any, *arguments: Any) -> Draw:
        draw = real(*arguments)

        def shared(start: int, stop: int, piece: int = 0) -> Bytes:
            rows = np.array(draw.shared(start, stop, piece))
            rows[:] = (np.arange(rows.shape[1]) * 37 % 251).astype(np.uint8)
            return rows

        return Draw(draw.fresh, shared, draw.tags)

    wrapped(patch, RoundAccess, "open", constant)


@fault("pairs have seeds of their own")
def labels_of_pairs_are_passed_over(patch: Patch) -> None:
    def unlabelled(real: Any, self: Any, rounds: Any, count: Any, pairs: Any, *more: Any) -> Any:
        return real(self, rounds, count, None, *more)

    wrapped(patch, RoundAccess, "open", unlabelled)


@fault("an event of a broadcast serves all labels")
def a_broadcast_reads_randomness_by_label(patch: Patch) -> None:
    def labelled(
        real: Any, self: Any, rounds: Any, count: int, pairs: Any, content: Any
    ) -> RandomnessReader:
        found: RandomnessReader = real(self, rounds, count, pairs, content)
        if pairs is None:
            return found
        return self._reader(as_rounds(rounds, count), pair_column(pairs, count))

    wrapped(patch, RoundAccess, "_claim", labelled)


@fault("an event of a broadcast serves all labels")
def a_broadcast_takes_events_for_single_labels(patch: Patch) -> None:
    def unlabelled(real: Any, self: Any, rounds: Any, count: Any, pairs: Any, *more: Any) -> Any:
        single = pairs if self._kind is Kind.INTEREST else None
        return real(self, rounds, count, single, *more)

    wrapped(patch, RoundAccess, "open", unlabelled)


@fault("an event of a broadcast serves all labels")
def a_broadcast_claims_a_round_for_all_labels(patch: Patch) -> None:
    wrapped(patch, RoundLedger, "claim", lambda real, self, rounds, pairs=None: real(self, rounds))


@fault("an event of a broadcast serves all labels")
def a_broadcast_claims_no_rounds_of_labels(patch: Patch) -> None:
    def forgetful(real: Any, self: Any, rounds: Any, pairs: Any = None) -> None:
        if pairs is None:
            real(self, rounds)

    wrapped(patch, RoundLedger, "claim", forgetful)


@fault("an event of a broadcast serves all labels")
def interests_of_a_broadcast_share_their_nonce(patch: Patch) -> None:
    def plain(real: Any, self: Any, key: Any, interests: Any, draw: Draw, out: Bytes) -> None:
        real(self, key, interests, Draw(bytes, draw.shared, draw.tags), out)

    wrapped(patch, BroadcastMatch, "encode_interests", plain)


@fault("an event of a broadcast serves all labels")
def a_broadcast_has_one_set_of_labels(patch: Patch) -> None:
    """Which another seed knows as well, and another round."""

    def constant(real: Any, self: Any, numbers: Any, pairs: Any) -> RandomnessReader:
        width = self._scheme.sizes.randomness + TAG_BYTES
        return lambda start, stop: np.zeros((stop - start, width), dtype=np.uint8)

    wrapped(patch, RoundAccess, "_reader", constant)


@fault("rounds are used once")
def a_subscriber_forgets_its_ledger_on_disk(patch: Patch) -> None:
    def forgetful(
        real: Any, self: Any, scheme: Any, role: Any, seed: Any, ledger: Any, r: Any
    ) -> Any:
        real(self, scheme, role, seed, None if role == "subscriber" else ledger, r)

    wrapped(patch, RoundAccess, "__init__", forgetful)


@fault("rounds are used once")
def all_interests_are_the_same_to_a_ledger(patch: Patch) -> None:
    patch.setattr(BranchingMatch, "identify", lambda scheme, prepared: b"")


@fault("what the scheme refuses the broker refuses")
def a_broker_does_not_ask_the_scheme(patch: Patch) -> None:
    def unasked(real: Any, self: Any, messages: Bytes, side: Any) -> Bytes:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self._scheme), "check", Scheme.check)
            found: Bytes = real(self, messages, side)
        return found

    wrapped(patch, KeyAccess, "examine", unasked)


@fault("users are locked out and let in")
def a_scheme_checks_nothing(patch: Patch) -> None:
    patch.setattr(KeywordMatch, "check", Scheme.check)


@fault("a refused event has no answers")
def refused_events_are_answered(patch: Patch) -> None:
    def bold(real: Any, *arguments: Any) -> Any:
        answers, causes = real(*arguments)
        answers[causes != Cause.NONE] = True
        return answers, causes

    wrapped(patch, Broker, "examine_all", bold)


@fault("a refused event has no answers")
def good_events_beside_a_refused_one_have_no_answers(patch: Patch) -> None:
    def shy(real: Any, *arguments: Any) -> Any:
        answers, causes = real(*arguments)
        return answers & (not causes.any()), causes

    wrapped(patch, Broker, "examine_all", shy)


@fault("tables of another key are not merged")
def tables_of_another_key_are_passed_over(patch: Patch) -> None:
    def lenient(real: Any, *arguments: Any) -> None:
        with suppress(KeyMismatchError):
            real(*arguments)

    wrapped(patch, Table, "merge", lenient)


@fault("tokens are used once and in turn")
def a_token_that_does_not_fit_changes_nothing(patch: Patch) -> None:
    def lenient(real: Any, self: Broker, interests: Any, *arguments: Any) -> Any:
        try:
            return real(self, interests, *arguments)
        except (KeyMismatchError, DecodeError):
            return interests

    wrapped(patch, Broker, "update", lenient)


@fault("tokens are used once and in turn")
def an_update_mixes_up_ids(patch: Patch) -> None:
    def mixed(real: Any, self: Broker, interests: Any, token: Any, new: Broker) -> Any:
        found = real(self, interests, token, new)
        return new.prepare(found.messages, found.ids[::-1]) if isinstance(found, Table) else found

    wrapped(patch, Broker, "update", mixed)


@fault("numbers of interests are not given again")
def an_update_counts_interests_anew(patch: Patch) -> None:
    def anew(real: Any, self: Broker, interests: Any, token: Any, new: Broker) -> Any:
        found = real(self, interests, token, new)
        return new.prepare(found.messages, found.ids) if isinstance(found, Table) else found

    wrapped(patch, Broker, "update", anew)


@fault("numbers of interests are not given again")
def numbers_that_are_free_are_given_again(patch: Patch) -> None:
    def thrifty(real: Any, table: Table, interests: Any, ids: Any = None) -> None:
        if ids is None:
            free = (number for number in range(1000) if number not in table.ids)
            ids = [next(free) for _ in range(len(interests))]
        real(table, interests, ids)

    wrapped(patch, Table, "add", thrifty)


@fault("numbers of interests are not given again")
def a_loaded_table_counts_interests_anew(patch: Patch) -> None:
    def anew(real: Any, self: Broker, *arguments: Any, **options: Any) -> Table:
        found = real(self, *arguments, **options)
        return self.prepare(found.messages, found.ids)

    wrapped(patch, Broker, "load", anew)


@fault("a table may change while it is matched")
def a_broker_reads_a_table_twice(patch: Patch) -> None:
    def twice(real: Any, self: Broker, events: Any, interests: Any) -> Any:
        count = len(interests)
        time.sleep(0.001)
        found = real(self, events, interests)
        out = np.zeros((len(found), count), dtype=np.bool_)
        out[:, : found.shape[1]] = found[:, :count]
        return out

    wrapped(patch, Broker, "match_all", twice)


@fault("users are locked out and let in")
def a_broker_revokes_nobody(patch: Patch) -> None:
    patch.setattr(Broker, "revoke", lambda self, user: None)


@fault("users are locked out and let in")
def a_broker_admits_nobody(patch: Patch) -> None:
    patch.setattr(Broker, "admit", lambda self, key: None)


@fault("users are locked out and let in")
def a_broker_admits_those_it_forgot(patch: Patch) -> None:
    patch.setattr(KeywordMatch, "admit", ServerScheme.admit)


@fault("users are locked out and let in")
def a_table_keeps_interests_of_forgotten_users(patch: Patch) -> None:
    # As if all that a table needs to know of users were known when it is made.
    def always(real: Any, self: Matcher, key: Any, *arguments: Any) -> Any:
        known = {**key, "users": _Everybody(key["users"])}
        return real(self, known, *arguments)

    class _Everybody(dict[str, Any]):
        def __contains__(self, user: object) -> bool:
            return True

    wrapped(patch, KeywordMatch, "match", always)


@fault("many events are matched block by block")
def many_events_lose_their_answers(patch: Patch) -> None:
    def lossy(real: Any, self: Broker, events: Any, interests: Any) -> Any:
        found = real(self, events, interests)
        found[broker.MATCH_ROWS :] = False
        return found

    wrapped(patch, Broker, "match_all", lossy)


@fault("epochs are told apart in both bytes")
def epochs_have_one_byte(patch: Patch) -> None:
    def short(real: Any, kind: Any, fingerprint: Any, key_id: Any, epoch: int) -> Any:
        return real(kind, fingerprint, key_id, epoch % 256)

    wrapped(patch, access, "key_header", short)


@fault("a brokers key makes no messages")
def a_brokers_key_holds_the_master_key(patch: Patch) -> None:
    def careless(real: Any, server: KeyServer, role: Any, name: str, options: Any) -> Any:
        key = real(server, role, name, options)
        if role != "broker":
            return key
        return server._key(role, {**server._master, **key.export_secret_data()})

    wrapped(patch, KeyServer, "_issued", careless)


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
        for case in cases(scheme, [offered for offered in WANTED if offered[0] == schema])[:2]
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
        faulty = made()
        with pytest.raises((Exception, pytest.fail.Exception)):
            run(check, faulty)
