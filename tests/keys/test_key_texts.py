"""Keys as text: they come back through one door, damage is refused, and no error shows a key.

Key sources: the errors that a notebook's user sees when a key is not where the workers look.
"""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ccbps.keys
from ccbps import EpochSeed, SeedRing, SharedSeed
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey, SubscriberRing
from ccbps.keys.plain_key import FilterKey, LedgerKey
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.sources import EnvKey, FileKey, Key
from ccbps.keys.text_form import KINDS, is_key_text, write_key
from ccbps.records import write
from ccbps.shares.clients import BrokerKey
from tests.support.tracebacks import locals_outside

SECRETS = st.binary(min_size=32, max_size=32)
LABELS = st.lists(st.text(max_size=12), min_size=1, max_size=4, unique=True)
DATA = st.dictionaries(
    st.text(max_size=5), st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5), max_size=3
)
ROLES = ("server", "publisher", "subscriber", "broker")


def with_pairs(seed: EpochSeed, labels: list[str]) -> EpochSeed:
    for label in labels:
        seed.pair(label)
    return seed


def roles(kind: type[RoleKey]) -> st.SearchStrategy[RoleKey]:
    names = st.sampled_from(ROLES if kind is RoleKey else ("broker",))
    ids, matchers = st.binary(min_size=6, max_size=6), st.binary(min_size=32, max_size=32)
    return st.builds(kind.make, matchers, names, ids, st.integers(0, 65535), DATA)


SEEDS = st.builds(SharedSeed, SECRETS)
NUMBERED = st.builds(SubscriberKey, st.binary(min_size=36, max_size=36))
EPOCHS = st.builds(
    with_pairs, st.builds(EpochSeed, SECRETS, st.integers(0, 10**9 - 1)), LABELS | st.just([])
)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "SharedSeed": SEEDS,
    "EpochSeed": EPOCHS,
    "SeedRing": st.builds(SeedRing.of, SEEDS, LABELS),
    "SeedRing of an epoch": st.builds(SeedRing.of, EPOCHS, LABELS),
    "RoleKey": roles(RoleKey),
    "KeyUpdate": roles(KeyUpdate),
    "SubscriberKey": NUMBERED,
    "FilterKey": st.builds(FilterKey, st.binary(min_size=16, max_size=16)),
    "LedgerKey": st.builds(LedgerKey, SECRETS),
    "SubscriberRing": st.builds(
        SubscriberRing.of,
        st.lists(NUMBERED, min_size=1, max_size=4, unique_by=lambda key: key.number),
    ),
    "BrokerState": st.builds(
        lambda secret, epochs: BrokerState.of(secret, max(epochs), min(epochs), epochs),
        SECRETS,
        st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4),
    ),
}


def content(key: Key) -> Any:
    if isinstance(key, SeedRing):
        return key.epoch, key._seeds
    if isinstance(key, SubscriberRing):
        return key._keys
    if isinstance(key, EpochSeed):
        return key.export_secret(), key.epoch, key._pairs
    return key.export_secret()


def pick(data: st.DataObject) -> Any:
    return data.draw(KEYS[data.draw(st.sampled_from(sorted(KEYS)))])


@given(st.data(), st.sampled_from(["", "\n", " \r\n"]))
def test_a_key_comes_back_from_its_text(data: st.DataObject, space: str) -> None:
    key = pick(data)
    text = key.to_text()
    assert re.fullmatch("ccbps-[a-z-]+-3:[0-9a-f]+", text)
    assert is_key_text(text)
    for back in (ccbps.keys.from_text(space + text + space), type(key).from_text(text)):
        assert type(back) is type(key)
        assert content(back) == content(key)
        assert back.to_text() == text


@given(st.data())
def test_damage_of_any_character_is_refused(data: st.DataObject) -> None:
    key = pick(data)
    text = key.to_text()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="utf-8") | st.sampled_from("0123456789abcdefABCDEF"))
    # White space around a text is not damage, in it it is.
    for damaged in (text[:at] + other + text[at + 1 :], text[:at] + text[at + 1 :], text[:at]):
        if damaged != text:
            for read in (ccbps.keys.from_text, type(key).from_text):
                with pytest.raises(KeyMismatchError) as caught:
                    read(damaged)
                assert text[-12:] not in str(caught.value)


def test_every_character_of_a_text_counts() -> None:
    text = SharedSeed(bytes(range(32))).to_text()
    for at, character in enumerate(text):
        for other in "0aA:- \n":
            if other != character:
                with pytest.raises(KeyMismatchError):
                    ccbps.keys.from_text(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize("role", ROLES)
def test_the_role_stands_in_front_and_cannot_be_renamed(role: Any) -> None:
    text = RoleKey.make(bytes(32), role, bytes(6), 0, {}).to_text()
    assert text.startswith(f"ccbps-{role}-key-3:")
    for other in ROLES:
        if other != role:
            with pytest.raises(KeyMismatchError, match=f"{KINDS[f'{other}-key']}, but damaged"):
                RoleKey.from_text(text.replace(role, other, 1))
            # Nor with a check that was made for it.
            secret = RoleKey.make(bytes(32), role, bytes(6), 0, {}).export_secret()
            with pytest.raises(KeyMismatchError, match="but damaged"):
                RoleKey.from_text(write_key(f"{other}-key", secret))


def test_a_key_of_one_kind_is_refused_as_another_by_name() -> None:
    seed = SharedSeed(bytes(32))
    ring, epoch = SeedRing.of(seed, ["a"]), EpochSeed(bytes(32))
    role = RoleKey.make(bytes(32), "publisher", bytes(6), 0, {})
    update = KeyUpdate.make(bytes(32), "broker", bytes(6), 0, {})
    for kind, key, why in (
        (SharedSeed, ring, "this is a ring of seeds, wanted a seed"),
        (SharedSeed, epoch, "this is an epoch seed, wanted a seed"),
        (EpochSeed, seed, "this is a seed, wanted an epoch seed"),
        (SeedRing, seed, "this is a seed, wanted a ring of seeds"),
        (RoleKey, seed, "this is a seed, wanted a role key"),
        (SharedSeed, role, "this is a publisher's key, wanted a seed"),
        (RoleKey, update, "this is a broker's key update, wanted a role key"),
        (KeyUpdate, role, "this is a publisher's key, wanted a key update"),
    ):
        with pytest.raises(KeyMismatchError, match=f"^{why}$"):
            kind.from_text(key.to_text())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    ["", "letmein", "ab" * 32, "ccbps-seed-:" + "ab" * 32, "ccbps-word-3:" + "ab" * 40,
     None, 5, "ccbps-seed-3:", "ccbps-seed-3:ab"],
)  # fmt: skip
def test_what_is_no_key_is_refused_and_not_shown(text: Any) -> None:
    with pytest.raises(KeyMismatchError, match=r"not a key: expected one line|a seed, but d") as no:
        ccbps.keys.from_text(text)
    assert "abab" not in str(no.value)
    assert "letmein" not in str(no.value)


@pytest.mark.parametrize(
    ("version", "advice"),
    [("1", "where it was written, and write it again"), ("4", "here"), ("4" * 40, "where it was")],
)
def test_a_key_of_another_version_says_what_to_upgrade(version: str, advice: str) -> None:
    text = f"ccbps-seed-{version}:" + "ab" * 40
    with pytest.raises(KeyMismatchError, match=r"^the text of a seed is of version ") as refusal:
        SharedSeed.from_text(text)
    assert f"and this ccbps reads 3: upgrade ccbps {advice}" in str(refusal.value)
    assert "abab" not in str(refusal.value)
    assert len(str(refusal.value)) < 150


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        ("seed", bytes(31)),
        ("epoch-seed", bytes(35)),
        ("epoch-seed", write([10**9, bytes(32), {}])),
        ("epoch-seed", write([-1, bytes(32), {}])),
        ("epoch-seed", write([1 << 63, bytes(32), {}])),
        ("epoch-seed", write([True, bytes(32), {}])),
        ("epoch-seed", write([0, bytes(33), {}])),
        ("epoch-seed", write([0, bytes(32), {"a": bytes(31)}])),
        ("epoch-seed", b"\x93\0\xc4\x20" + bytes(32) + b"\x81\1\xc4\x20" + bytes(32)),
        ("epoch-seed", write([0, bytes(32)])),
        ("epoch-seed", write([0, bytes(32), {}, 0])),
        ("epoch-seed", write([0, bytes(32), {}]) + b"\0"),
        ("epoch-seed", b"\x93\xcc\0" + write([0, bytes(32), {}])[2:]),  # a long form of 0
        ("epoch-seed", b"\x91" * 200_000),
        ("seed-ring", write([None, {}])),
        ("seed-ring", write([None, {"a": bytes(32), "b": bytes(32)}])),
        ("seed-ring", b"\x92\xc0\x81\xa1\xff\xc4\x20" + bytes(32)),
        ("seed-ring", b"\x92\xc0\x82" + 2 * (b"\xa1a\xc4\x20" + bytes(32))),  # a label twice
        ("seed-ring", b"\x92\xc0\xdf\xff\xff\xff\xff"),
        ("filter-key", bytes(15)),
        ("delivery-key", bytes(35)),
        ("delivery-ring", b""),
        ("delivery-ring", write([])),
        ("delivery-ring", write([bytes(35)])),
        ("delivery-ring", write([bytes(36), bytes(36)])),
        ("delivery-ring", b"\xdd\xff\xff\xff\xff"),
        ("delivery-state", b""),
        ("delivery-state", write([bytes(32), 0, 0, []])),
        ("delivery-state", write([bytes(31), 0, 0, [0]])),
        ("delivery-state", write([bytes(32), 0, 1, [0]])),
        ("delivery-state", write([bytes(32), 0, 0, [1]])),
        ("delivery-state", write([bytes(32), 1 << 63, 0, [0]])),
    ],
)
def test_what_no_key_wrote_is_refused_even_with_its_check(kind: str, secret: bytes) -> None:
    with pytest.raises(KeyMismatchError, match=f"{KINDS[kind]}, but damaged"):
        ccbps.keys.from_text(write_key(kind, secret))


def test_errors_hold_no_key_in_their_frames() -> None:
    seed = SharedSeed(bytes(range(32)))
    ring = SeedRing.of(seed, ["a"])
    for key, secret in ((seed, seed), (ring, ring.pair("a"))):
        text = key.to_text()
        for broken in (text[:-1], text[:-2] + ("00" if text[-2:] != "00" else "01")):
            for read in (ccbps.keys.from_text, type(key).from_text, EpochSeed.from_text):
                with pytest.raises(KeyMismatchError) as caught:
                    read(broken)
                shown = locals_outside(__file__, caught.value)
                assert secret.export_secret().hex() not in shown
                assert repr(secret.export_secret())[2:-1] not in shown


FIELDS = (bytes(32), "broker", bytes(6), 0, {})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "x"), (1, "x"), (1, None), (2, bytes(5)), (2, bytes(7)), (2, b""), (2, "000000"),
        (3, -1), (3, 1 << 16), (3, True), (3, 1.0), (3, 1 << 63), (3, None),
        (4, []), (4, "x"), (4, None),
    ],
    ids=str,
)  # fmt: skip
def test_each_field_of_a_role_key_has_its_type_and_bounds(place: int, value: Any) -> None:
    assert RoleKey(write(FIELDS, check=8)) == RoleKey.make(*FIELDS)  # type: ignore[arg-type]
    changed = [*FIELDS[:place], value, *FIELDS[place + 1 :]]
    for fields in (changed, FIELDS[:place], [*FIELDS, value]):
        with pytest.raises(KeyMismatchError, match="not a role key, or a damaged one"):
            RoleKey(write(fields, check=8))


def test_what_is_nested_too_deep_is_no_role_key() -> None:
    for start in (b"\x91", b"\x81\xa1a", b"\x95\xc4\0\xa6broker\xc4\0\0\x81\xa1a"):
        content = start + b"\x91" * 200_000
        for secret in (content, content + sha256(content).digest()[:8]):
            with pytest.raises(KeyMismatchError, match="not a role key, or a damaged one"):
                RoleKey(secret)


def test_a_role_key_takes_only_what_its_text_can_hold() -> None:
    for data in ({"k": 1 << 64}, {"k": object()}, {"k": "\ud800"}):
        with pytest.raises(ParameterError, match="cannot be written"):
            RoleKey.make(bytes(32), "broker", bytes(6), 0, data)
    with pytest.raises(ParameterError, match="epoch must be int <= 65535"):
        RoleKey.make(bytes(32), "broker", bytes(6), 1 << 16, {})


# -- where keys are looked for -------------------------------------------------------------------


def test_a_variable_that_is_not_set_says_what_works_in_a_notebook() -> None:
    with pytest.raises(KeyMismatchError) as caught:
        EnvKey("CCBPS_NOT_SET").load()
    message = str(caught.value)
    assert "CCBPS_NOT_SET is not set" in message
    assert "what a notebook sets later is not seen" in message
    # In this order: the first works at once.
    assert message.index("FileKey('path')") < message.index("start the notebook's kernel")


def test_a_file_may_be_named_by_a_path_object(tmp_path: Path) -> None:
    seed = SharedSeed.generate()
    path = tmp_path / "publisher.key"
    path.write_text(seed.to_text())
    key = FileKey(path)
    assert key.load() == FileKey(str(path)).load() == seed
    assert pickle.loads(pickle.dumps(key)) == key


@pytest.mark.skipif(os.name == "nt", reason="of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o606, 0o602])
def test_a_file_that_every_user_may_read_or_change_is_refused(mode: int) -> None:
    seed = SharedSeed.generate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "publisher.key"
        path.write_text(seed.to_text())
        folder.chmod(0o755)
        path.chmod(mode)
        with pytest.raises(KeyMismatchError, match=f"{path} may be read .* {mode:04o}") as caught:
            FileKey(path).load()
        assert "shared=True" in str(caught.value)
        assert FileKey(path, shared=True).load() == seed
        # As clusters mount secrets for a group.
        path.chmod(0o640)
        assert FileKey(path).load() == seed
        # Nobody else comes to it, by its own name or by another's.
        path.chmod(mode)
        folder.chmod(0o700)
        assert FileKey(path).load() == seed
        with tempfile.TemporaryDirectory() as other:
            link = Path(other) / "link"
            link.symlink_to(path)
            Path(other).chmod(0o755)
            assert FileKey(link).load() == seed
            folder.chmod(0o711)
            Path(other).chmod(0o700)
            with pytest.raises(KeyMismatchError, match="may be read or changed"):
                FileKey(link).load()


def test_a_relative_path_says_what_it_is_relative_to(tmp_path: Path) -> None:
    with pytest.raises(KeyMismatchError, match="path is relative to /"):
        FileKey("no-such-folder/publisher.key").load()
    with pytest.raises(KeyMismatchError) as caught:
        FileKey(tmp_path / "no-such.key").load()
    assert "relative to" not in str(caught.value)


def test_a_key_in_place_of_its_name_is_refused_and_not_shown() -> None:
    seed = SharedSeed.generate()
    for source in (EnvKey, FileKey):
        with pytest.raises(ParameterError, match="a key itself") as caught:
            source(seed.to_text())
        assert seed.export_secret().hex() not in str(caught.value)
        with pytest.raises(ParameterError, match="got SharedSeed"):
            source(seed)  # type: ignore[arg-type]


def test_what_is_no_key_says_where_it_was_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CCBPS_NO_KEY", "letmein")
    path = tmp_path / "no.key"
    path.write_text("letmein")
    for source, place in (
        (EnvKey("CCBPS_NO_KEY"), "variable CCBPS_NO_KEY"),
        (FileKey(path), "no.key"),
    ):
        with pytest.raises(KeyMismatchError, match=f"{place}: .*not a key") as caught:
            source.load()
        assert "letmein" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_the_keys_of_a_broker_and_of_one_of_three_brokers_are_told_apart() -> None:
    hello_key = BrokerKey.generate()
    role_key = RoleKey.make(bytes(32), "broker", bytes(6), 0, {})
    assert BrokerKey.from_text(hello_key.to_text()) == hello_key
    with pytest.raises(KeyMismatchError, match="this is a broker's key, wanted the key by which"):
        BrokerKey.from_text(role_key.to_text())
    for read in (RoleKey.from_text, ccbps.keys.from_text):
        with pytest.raises(KeyMismatchError, match="this is the key by which one of three brokers"):
            read(hello_key.to_text())
