"""Every kind of secret in the package does not print, pickle or copy, and leaves by one door."""

from __future__ import annotations

import base64
import copy
import dataclasses
import importlib
import json
import pickle
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import gmpy2
import pytest

import ccbps
from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.paillier import PaillierSecretKey
from ccbps.ciphers.pohlig_hellman import (
    TOY_PRIME_64,
    GroupKey,
    GroupLayers,
    LayerKey,
    PohligHellman,
)
from ccbps.errors import KeyMismatchError, SerializationError
from ccbps.keys.delivery_keys import BrokerState
from ccbps.keys.pad import OneTimePad
from ccbps.keys.plain_key import ClientKey
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.secret import SecretBytes
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.text_form import write_key
from ccbps.records import write
from tests.support.tracebacks import locals_outside


def subclasses(kind: type[SecretBytes]) -> Iterator[type[SecretBytes]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def all_kinds() -> list[type[SecretBytes]]:
    """Every kind of secret, after importing every module whose dependencies are there."""
    for module in pkgutil.walk_packages(ccbps.__path__, "ccbps."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if str(missing.name).startswith("ccbps"):
                raise
    return sorted(set(subclasses(SecretBytes)), key=lambda kind: kind.__qualname__)


KINDS = all_kinds()
every_kind = pytest.mark.parametrize("kind", KINDS)


TOY_GROUP = prime_order_group("toy64")
LAYERS, GROUP_LAYERS = PohligHellman(TOY_PRIME_64), GroupLayers(TOY_GROUP)


def role_key(kind: type[RoleKey], first: int = 0xC0) -> bytes:
    data = {"k": bytes(range(first, first + 8)).hex()}
    return kind.make(bytes(32), "broker", bytes(6), 0, data).export_secret()


def paillier_key(p: int, q: int) -> bytes:
    primes = (int(gmpy2.next_prime(number)) for number in (p, q))
    return PaillierSecretKey.from_primes(*primes, toy=True).export_secret()


# Kinds that are not made of any bytes: two samples, and how one is made of them. They are the same
# in each run: four bytes of a random secret, which are letters, may stand in a traceback by chance.
SAMPLES: dict[type[SecretBytes], tuple[list[bytes], Callable[[Any], SecretBytes]]] = {
    BrokerState: (
        [
            BrokerState.of(bytes(range(first, first + 32)), 0, 0, [0] * 3).export_secret()
            for first in (0xC0, 0xC1)
        ],
        BrokerState,
    ),
    RoleKey: ([role_key(RoleKey, 0xC0), role_key(RoleKey, 0xC1)], RoleKey),
    KeyUpdate: ([role_key(KeyUpdate, 0xC0), role_key(KeyUpdate, 0xC1)], KeyUpdate),
    PaillierSecretKey: (
        [
            paillier_key(0xC1D2E3F4A5B6C7D8, 0xE9DACBBCAD9E8F80),
            paillier_key(0xD1E2F3C4B5A69788, 0xF8E7D6C5B4A39281),
        ],
        PaillierSecretKey,
    ),
    LayerKey: (
        [LAYERS.derive(bytes(32), name).export_secret() for name in (b"one", b"two")],
        lambda secret: LayerKey(secret, TOY_PRIME_64),
    ),
    GroupKey: (
        [GROUP_LAYERS.derive(bytes(32), name).export_secret() for name in (b"one", b"two")],
        lambda secret: GroupKey(secret, TOY_GROUP),
    ),
}


def raw(kind: type[SecretBytes], first: int = 0xC0) -> bytes:
    if kind in SAMPLES:
        return SAMPLES[kind][0][first - 0xC0]
    return bytes((first + i) % 256 for i in range(kind.length or 40))


def make(kind: type[SecretBytes], secret: Any) -> SecretBytes:
    return SAMPLES[kind][1](secret) if kind in SAMPLES else kind(secret)


def hidden(kind: type[SecretBytes]) -> bytes:
    """What must not show: of keys that have fields, the secret one.

    Of hex digits, the bytes: four digits may stand in a word, as in "needed".
    """
    if issubclass(kind, RoleKey):
        return bytes.fromhex(str(kind(raw(kind)).export_secret_data()["k"]))
    if issubclass(kind, ClientKey):
        return raw(kind)[:32]  # public keys stand behind
    if issubclass(kind, BrokerState):
        return kind(raw(kind)).parts(3)[0]
    if issubclass(kind, PaillierSecretKey):
        return bytes.fromhex(str(json.loads(raw(kind))["p"]))
    return raw(kind)


def leaks(text: str, secret: bytes) -> bool:
    """Whether 4 bytes of the secret stand in the text: as hex, base64, numbers or as they are."""
    lowered = text.lower()
    parts = [secret[i : i + 4] for i in range(len(secret) - 3)]
    numbers = [", ".join(map(str, part)) for part in parts]
    encoded = base64.b64encode(secret).decode()[:12]
    return (
        any(part.hex() in lowered or repr(part)[2:-1] in text for part in parts)
        or any(number in text for number in numbers)
        or encoded in text
    )


def test_walk_finds_the_secrets_of_the_package() -> None:
    assert {SecretBytes, SharedSeed, OneTimePad} <= set(KINDS)


def test_leak_check_sees_a_leak() -> None:
    secret = raw(SharedSeed)
    for text in (secret.hex(), secret.hex().upper(), str(secret), f"{list(secret)}"):
        assert leaks(f"<Seed {text}>", secret)
    assert leaks(base64.b64encode(secret).decode(), secret)


@every_kind
@pytest.mark.parametrize(
    "show",
    [repr, str, format, ascii, "{}".format, "%s".__mod__, "%r".__mod__, lambda s: f"{[s]}"],
)
def test_secret_shows_its_class_and_fingerprint_only(
    kind: type[SecretBytes], show: Callable[[object], str]
) -> None:
    secret = make(kind, raw(kind))
    shown = show(secret)
    assert not leaks(shown, hidden(kind))
    assert kind.__name__ in shown
    if kind is OneTimePad:  # any hash of a pad would tell something about it
        assert shown.strip("[]") == f"<OneTimePad of {len(raw(kind))} bytes>"
    else:
        assert secret.fingerprint in shown


@every_kind
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_secret_is_not_pickled(kind: type[SecretBytes], protocol: int) -> None:
    with pytest.raises(SerializationError, match=f"{kind.__name__} must not be pickled"):
        pickle.dumps({"conf": [make(kind, raw(kind))]}, protocol)


@every_kind
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: copy.deepcopy([s])])
def test_secret_is_not_copied(kind: type[SecretBytes], duplicate: Callable[[Any], object]) -> None:
    with pytest.raises(SerializationError, match="must not be pickled or copied") as refusal:
        duplicate(make(kind, raw(kind)))
    assert not leaks("".join(traceback.format_exception(refusal.value)), hidden(kind))


@every_kind
@pytest.mark.parametrize("turn", [json.dumps, dataclasses.asdict, bytes, bytearray, list, vars])
def test_secret_does_not_turn_into_data(
    kind: type[SecretBytes], turn: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError) as refusal:
        turn(make(kind, raw(kind)))
    assert not leaks(str(refusal.value), hidden(kind))


@every_kind
def test_no_attribute_shows_the_secret(kind: type[SecretBytes]) -> None:
    """Only what is called export does: no field that a debugger, a log or a dict takes along."""
    secret = make(kind, raw(kind))
    names = [name for name in dir(secret) if not name.startswith("_")]
    # A pad has no fingerprint.
    values = [getattr(secret, name) for name in names if hasattr(secret, name)]
    shown = [value for value in values if not callable(value)]
    assert kind.kind in shown
    assert not any(leaks(f"{value!r} {value}", hidden(kind)) for value in shown)


@every_kind
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_secret_is_exported_on_purpose(
    kind: type[SecretBytes], wrap: Callable[[bytes], bytes]
) -> None:
    exported = make(kind, wrap(raw(kind))).export_secret()
    assert type(exported) is bytes
    assert exported == raw(kind)


@every_kind
def test_secret_does_not_follow_a_buffer_that_changes(kind: type[SecretBytes]) -> None:
    buffer: Any = bytearray(raw(kind))
    secret = make(kind, buffer)
    buffer[0] ^= 1
    assert secret.export_secret() == raw(kind)


@every_kind
def test_secrets_are_equal_when_kind_and_bytes_are(kind: type[SecretBytes]) -> None:
    secret = make(kind, raw(kind))
    assert secret == make(kind, raw(kind))
    assert hash(secret) == hash(make(kind, raw(kind)))
    assert secret != make(kind, raw(kind, 0xC1))
    assert secret != raw(kind)
    assert all(secret != other(raw(kind)) for other in KINDS
               if other not in (kind, *SAMPLES)
               and other.length in (None, len(raw(kind))))  # fmt: skip


def test_pad_has_no_fingerprint() -> None:
    with pytest.raises(AttributeError, match="would leak part of the pad"):
        _ = OneTimePad(raw(OneTimePad)).fingerprint


@pytest.mark.parametrize("kind", [SecretBytes, SharedSeed])
def test_fingerprint_tells_secrets_apart(kind: type[SecretBytes]) -> None:
    fingerprints = {kind(raw(kind, first)).fingerprint for first in range(100)}
    assert len(fingerprints) == 100
    assert all(len(f) == 16 and int(f, 16) >= 0 for f in fingerprints)


def test_fingerprints_of_different_kinds_differ() -> None:
    same = raw(SharedSeed)
    assert SecretBytes(same).fingerprint != SharedSeed(same).fingerprint


@every_kind
@pytest.mark.parametrize("wrong", ["text", 32, None, [1, 2]])
def test_secret_is_made_of_bytes(kind: type[SecretBytes], wrong: Any) -> None:
    with pytest.raises(KeyMismatchError, match=f"a {kind.kind} is made of bytes, got"):
        make(kind, wrong)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.length is not None])
@pytest.mark.parametrize("by", [-1, 1])
def test_secret_of_the_wrong_length_is_refused_unseen(kind: type[SecretBytes], by: int) -> None:
    assert kind.length is not None
    wrong = bytes((0xC0 + i) % 256 for i in range(kind.length + by))
    with pytest.raises(KeyMismatchError, match=f"{kind.length} bytes, got {len(wrong)}") as refusal:
        kind(wrong)
    assert not leaks(str(refusal.value), wrong)


@every_kind
def test_errors_can_be_shown_with_the_locals_of_their_frames(kind: type[SecretBytes]) -> None:
    with pytest.raises(KeyMismatchError) as refusal:
        make(kind, None)
    shown = traceback.TracebackException.from_exception(refusal.value, capture_locals=True)
    assert "is made of bytes" in "".join(shown.format())


@pytest.mark.parametrize("kind", [RoleKey, KeyUpdate, PaillierSecretKey, BrokerState])
def test_errors_hold_no_secret_in_their_frames(kind: type[SecretBytes]) -> None:
    damaged, secret = raw(kind) + b"~", hidden(kind)
    with pytest.raises(KeyMismatchError) as caught:
        kind(damaged)
    assert len(shown := locals_outside(__file__, caught.value)) > 40
    assert not leaks(shown, secret)
    if issubclass(kind, RoleKey):
        with pytest.raises(KeyMismatchError) as caught:
            kind.from_text(write_key(kind.text_kind.format("broker"), damaged))
        assert not leaks(locals_outside(__file__, caught.value), secret)
        assert secret.hex() not in locals_outside(__file__, caught.value)


@pytest.mark.parametrize("kind", [RoleKey, KeyUpdate])
def test_data_of_a_role_key_leaves_by_one_door_and_is_nobody_elses(kind: type[RoleKey]) -> None:
    key = kind(role_key(kind))
    assert not hasattr(key, "data")
    data = key.export_secret_data()
    secret = data["k"]
    data["k"] = data["more"] = "changed"
    assert key.export_secret_data() == {"k": secret}
    assert key == kind(key.export_secret())


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_role_keys_without_data_are_refused_unseen(data: Any) -> None:
    for secret in (write([bytes(32), "broker", bytes(6), 0, data], check=8), write(data, check=8)):
        with pytest.raises(KeyMismatchError, match="not a role key, or a damaged one") as caught:
            RoleKey(secret)
        assert caught.value.__context__ is None
