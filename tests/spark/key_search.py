"""All parties' keys, and the search for pieces of them in whatever a program leaves behind."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np

import ccbps.keys
from ccbps import SeedRing, SharedSeed
from ccbps.delivery import (
    BrokerState,
    GroupSealer,
    Naive,
    SubscriberKey,
    SubscriberRing,
    pack_groups,
)
from ccbps.delivery.group_protocol import ID_BYTES, own_keys_of
from ccbps.delivery.plans import group_name, personal
from ccbps.errors import KeyMismatchError
from ccbps.filters import FilterKey
from ccbps.keys import RoleKey
from tests.spark.cluster_program import LABELS, PLAIN, PLANTED, TAGS
from tests.spark.processes import memory

LENGTH = 15
PREFIX = 14
Name = TypeVar("Name", bound=str | Path)


def write_keys(folder: Path) -> None:
    """Each party's key in a file, a damaged one, and keys that are there to be refused."""
    folder.mkdir()
    seed, sealer, server = SharedSeed.generate(), GroupSealer(Naive(len(LABELS))), TAGS.key_server()
    ring = SubscriberRing.of([sealer.join(number) for number in range(len(LABELS))])
    for name, key in {
        "publisher": seed,
        "subscribers": SeedRing.of(seed, LABELS),
        "other-subscribers": SeedRing.of(SharedSeed.generate(), LABELS),
        "ledger": seed.ledger_key(),
        "sealer": sealer.state,
        "own": ring,
        "topics": FilterKey.generate(),
        "tag-publisher": server.publisher_key(),
        "tag-subscriber": server.subscriber_key("alice"),
        "tag-broker": server.broker_key(),
        "tag-stranger": TAGS.key_server().broker_key(),
    }.items():
        (folder / name).write_text(key.to_text())
    (folder / "damaged").write_text(SharedSeed.generate().to_text()[:-8] + "00000000")


def secrets_in(keys: Iterable[Path], groups: Iterable[Iterable[int]] = ()) -> set[bytes]:
    """Pieces of what is secret in files of keys, and of what workers derive from it; see
    `secrets_of`."""
    out: list[bytes] = []
    for path in keys:
        text = path.read_text()
        try:
            out += secrets_of(ccbps.keys.from_text(text), groups)
        except KeyMismatchError:  # it is damaged
            out.append(bytes.fromhex(text.partition(":")[2].strip())[:-8])
    return pieces(out)


def secrets_of(key: ccbps.keys.Key, groups: Iterable[Iterable[int]] = ()) -> list[bytes]:
    """A key, and keys that workers derive from it: pairs' seeds, the ledger's key, those of
    subscribers and of some groups.

    Others are not searched: the AES keys of seeds' streams, of their marks in ledgers and of
    payloads, and what the keys of roles are expanded to. There is one for each purpose (or event),
    and it stands in a cipher's object only, which neither prints nor pickles.
    """
    if isinstance(key, SharedSeed):
        pairs = [key.pair(label) for label in LABELS]
        return [one.export_secret() for one in (key, key.ledger_key(), *pairs)]
    if isinstance(key, SeedRing):
        return [seed.export_secret() for seed in key._seeds.values()]
    if isinstance(key, SubscriberKey):
        own = key.export_secret_key()
        return [own, own_keys_of(own, 0).key]
    if isinstance(key, SubscriberRing):
        return [secret for one in key._keys.values() for secret in secrets_of(one)]
    if isinstance(key, BrokerState):
        number = key.subscribers
        sealer = GroupSealer(Naive(number), key)
        joined = [one for one in range(number) if sealer.since(one)]
        names = [group_name(pack_groups(np.isin(range(number), [*group]))) for group in groups]
        carried = map(sealer._make_ready, [*names, *map(personal, joined)])
        own = [sealer._subscriber_key(one).export_secret_key() for one in joined]
        secret = key.parts(number)[0]
        return [secret, *own, *(one.carried[ID_BYTES:] for one in carried)]
    if isinstance(key, RoleKey):  # its secrets stand in it in hex, beside public things
        texts = re.findall("[0-9a-f]{32,}", json.dumps(key.export_secret_data()))
        return [bytes.fromhex(text[: len(text) // 2 * 2]) for text in texts]
    return [key.export_secret()]


def pieces(secrets: Iterable[bytes]) -> set[bytes]:
    """Whole pieces of secrets, and none of counts or of what is filled up."""
    slices = {
        secret[at : at + LENGTH]
        for secret in secrets
        for at in range(0, len(secret) - LENGTH + 1, LENGTH)
    }
    return {part for part in slices if len(set(part)) > 9}


def needles(secrets: Iterable[bytes]) -> list[bytes]:
    """Pieces of secrets as they may stand somewhere: raw; in hex, lower-case as in keys' texts or
    upper-case as Spark prints binary literals; in hex again, as in texts of keys whose data are
    JSON; and raw or as hex in base64, of both alphabets, behind any number of other bytes."""
    return list({form for one in secrets for form in _forms(one)})


def _forms(one: bytes) -> Iterator[bytes]:
    digits = one.hex().encode()
    yield from (one, digits, digits.upper(), digits.hex().encode())
    for before in range(3):
        for what in (one, digits):
            whole = base64.b64encode(bytes(before) + what)
            form = whole[4 * (before > 0) : 4 * ((before + len(what)) // 3)]
            yield from (form, form.translate(bytes.maketrans(b"+/", b"-_")))


def shown(contents: Iterable[tuple[Name, bytes]]) -> Iterator[tuple[Name, bytes]]:
    """Texts, and the bytes that they show in other forms: as Python prints bytes, lists and arrays
    of numbers (the locals in an error's traceback, for one), and as Spark prints rows' bytes."""
    for name, content in contents:
        yield name, content
        # An error's text stands in JSON in an event log, escaped once more.
        for _ in range(2):
            yield name, b"\n".join(map(_bytes_of, _NUMBERS.findall(content)))
            yield name, b"\n".join(map(_digits_of, _DIGITS.findall(content)))
            if b"\\" not in content:
                break
            content = _ESCAPED.sub(_unescaped, content)
            yield name, content


_NUMBERS = re.compile(rb"(?:-?\b\d{1,3}[\s,]+){14,}-?\d{1,3}\b")
_DIGITS = re.compile(rb"(?:\b[0-9A-Fa-f]{2}[\s:-]+){14,}[0-9A-Fa-f]{2}\b")
_ESCAPED = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([ntr\\'\"]))")


def _bytes_of(numbers: bytes) -> bytes:
    return bytes(int(number) % 256 for number in re.split(rb"[\s,]+", numbers))


def _digits_of(numbers: bytes) -> bytes:
    return bytes.fromhex(re.sub(rb"[\s:-]+", b"", numbers).decode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    digits, letter = match.groups()
    if digits is not None:
        return bytes.fromhex(digits.decode())
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(letter, letter)


def unzipped(files: Iterable[tuple[Path, bytes]]) -> Iterator[tuple[Path, bytes]]:
    """Files, and what is in those that are zipped, such as those of RocksDB's state."""
    for path, content in files:
        yield path, content
        if path.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(content)) as file:
                for name in file.namelist():
                    yield path / name, file.read(name)


def found_in(contents: Iterable[tuple[Name, bytes]], hidden: Iterable[bytes]) -> list[Name]:
    """Names of the contents in which one of the needles stands. Of many needles at once: two bytes
    after two are looked up at each place that is left, and whole needles at the last of them."""
    begun = defaultdict[bytes, list[bytes]](list)
    for needle in hidden:
        begun[needle[:PREFIX]].append(needle)
    some = {start: tuple(whole) for start, whole in begun.items()}
    starts = np.frombuffer(b"".join(some), ">u2").reshape(-1, PREFIX // 2)
    tables = np.zeros((PREFIX // 2, 1 << 16), dtype=np.bool_)
    tables[np.arange(PREFIX // 2), starts] = True
    found = dict[Name, None]()
    for name, content in contents:
        data = np.frombuffer(content, np.uint8).astype(np.uint16)
        two = data[:-1] << 8 | data[1:]
        places = np.flatnonzero(tables[0][two[: max(0, len(two) - PREFIX + 2)]])
        for at, table in enumerate(tables[1:], 1):
            places = places[table[two[places + 2 * at]]]
        for at in places.tolist():
            start = content[at : at + PREFIX]
            if start in some and content.startswith(some[start], at):
                found[name] = None
                break
    return [*found]


def all_groups() -> list[tuple[int, ...]]:
    """Groups of the program's subscribers."""
    numbers = range(len(LABELS))
    return [group for size in numbers for group in combinations(numbers, size + 1)]


def check_readable(left: Iterable[tuple[Path, bytes]], data: Path) -> None:
    """What a program's streams have left is there, and was written so that it can be searched."""
    found = dict(left)
    folders = {path.parent.relative_to(data) for path in found if path.is_relative_to(data)}
    for name in ("streamed", "kept", "sealed", "opened"):
        assert {Path(name), Path("checkpoint", name, "commits")} <= folders, name
    for name, text in {"sealed": b"frequency", "opened": b"snapshot"}.items():
        state = data / "checkpoint" / name / "state"
        assert any(text in found[path] for path in found if path.is_relative_to(state)), name
    packed = [path for path, content in found.items() if content.startswith(b"LZ4Block")]
    assert packed == []


def planted_in(contents: Iterable[tuple[Name, bytes]]) -> set[Name]:
    """Names of the contents in which what was planted is found, as keys would be."""
    return {*found_in(contents, needles(pieces([PLANTED])))}


def locals_of(error: str) -> list[tuple[str, bytes]]:
    """Names of what an error's frames held, and how each is printed."""
    printed = re.findall(r"^ +(\w+) = (.*?)(?=^ +\w+ = |\Z)", error, re.MULTILINE | re.DOTALL)
    return [(name, text.encode()) for name, text in printed]


def check_errors(errors: dict[str, str]) -> None:
    """Errors of the program say what is wrong, and show no value; what Spark's own frames print is
    not in this package's hands."""
    reasons = {
        "value": "attribute 'price'",
        "predicate": "unknown attribute",
        "no key": "none cannot be read",
        "damaged key": "a seed, but damaged",
        "other key": "another master key",
        "message": "wrong number of bytes",
        "content": "used for an event with other content",
        "label": "no seed for pair 'nobody'",
        "number": "events must not be negative",
        "round": "rounds must not be negative",
        "other seed": "not a payload for this key",
        "member": "members must be numbers 0 .. 3",
        "group message": "not a message to a group",
        "request": "not a request for a key",
        "topic": "must be a column of strings or binary",
    }
    assert errors.keys() == reasons.keys()
    for name, reason in reasons.items():
        frames = errors[name].split('File "')
        own = [frame for frame in frames if "/ccbps/" in frame.partition('"')[0]]
        assert any(reason in frame for frame in own), name
        assert not any(str(PLAIN) in frame for frame in own), name
    assert " steps = <generator " in errors["message"], "errors show what frames hold"


def check_memory(sessions: Iterable[int], own: Iterable[Path], others: Iterable[Path]) -> None:
    """All processes of some sessions hold keys of their own, and no others. They are stopped."""
    keys = [*own]
    mine = secrets_in(keys)
    foreign = secrets_in(others) - mine
    assert len(foreign) > 20
    wanted = needles(mine)
    seen, controls = set[str](), set[str]()

    def parts() -> Iterator[tuple[str, bytes]]:
        for name, content in (part for session in sessions for part in memory(session)):
            seen.add(name)
            if name not in controls:
                # Java has no key; it has plans, which say where one is.
                plan = name == "java" and any(key.name.encode() in content for key in keys)
                if plan or found_in([(name, content)], wanted):
                    controls.add(name)
            yield name, content

    assert found_in(parts(), needles(foreign)) == []
    assert seen == {"java", "driver", "worker"}
    assert controls == seen, "the search reads the memory of each, and finds keys of its own there"
