"""All parties' keys, and the search for pieces of them in whatever a program leaves behind."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ccbps import SeedRing, SharedSeed
from ccbps.delivery import GroupSealer, Naive, SubscriberRing
from tests.spark.cluster_program import LABELS, PLAIN, TAGS
from tests.spark.processes import memory

__all__ = ["check_errors", "check_memory", "found_in", "needles", "secrets_in", "write_keys"]


def write_keys(folder: Path) -> None:
    """Each party's key in a file."""
    folder.mkdir()
    seed, sealer, server = SharedSeed.generate(), GroupSealer(Naive(len(LABELS))), TAGS.key_server()
    ring = SubscriberRing.of([sealer.join(number) for number in range(len(LABELS))])
    for name, key in {
        "publisher": seed,
        "subscribers": SeedRing.of(seed, LABELS),
        "ledger": seed.ledger_key(),
        "sealer": sealer.state,
        "own": ring,
        "tag-publisher": server.publisher_key(),
        "tag-subscriber": server.subscriber_key("alice"),
        "tag-broker": server.broker_key(),
        "tag-stranger": TAGS.key_server().broker_key(),
    }.items():
        (folder / name).write_text(key.to_text())


def secrets_in(keys: Iterable[Path]) -> set[bytes]:
    """Pieces of 15 bytes of what is secret in files of keys."""
    pieces = []
    for path in keys:
        raw = bytes.fromhex(path.read_text().partition(":")[2].strip())
        if raw.startswith(b'{"'):  # its secrets stand in it in hex, beside public things
            data, _ = json.JSONDecoder().raw_decode(raw.decode("latin-1"))
            texts = re.findall("[0-9a-f]{32,}", json.dumps(data["data"]))
            pieces += [bytes.fromhex(text) for text in texts]
        else:
            pieces.append(raw)
    # Whole pieces only, and none of counts, or of names and a byte or two of a key.
    slices = {piece[at : at + 15] for piece in pieces for at in range(0, len(piece) - 14, 15)}
    return {part for part in slices if len(set(part)) > 9 and sum(map(_is_text, part)) < 12}


def _is_text(byte: int) -> bool:
    return 32 <= byte < 127


def check_errors(errors: dict[str, str]) -> None:
    """Errors of the program say what is wrong, and show no value."""
    for name, reason in {
        "value": "attribute 'price'",
        "predicate": "unknown attribute",
        "no key": "none cannot be read",
        "other key": "another master key",
        "message": "wrong number of bytes",
    }.items():
        assert reason in errors[name] and str(PLAIN) not in errors[name], name


def needles(secrets: Iterable[bytes]) -> list[bytes]:
    """Secrets as they may stand somewhere: raw, in hex, in hex again as in texts of keys whose data
    are JSON, in base64, behind any number of other bytes."""
    return [
        form
        for one in secrets
        for form in (
            one,
            one.hex().encode(),
            one.hex().encode().hex().encode(),
            base64.b64encode(one),
            *(base64.b64encode(bytes(k) + one)[4 : 4 * ((k + len(one)) // 3)] for k in (1, 2)),
        )
    ]


def found_in(contents: Iterable[tuple[str | Path, bytes]], hidden: list[bytes]) -> list[str | Path]:
    """Names of the contents in which one of the needles stands. Of many needles at once: two bytes
    after two are looked up at each place that is left, and whole needles at the last of them."""
    tables = np.zeros((7, 1 << 16), dtype=np.bool_)
    for needle in hidden:
        tables[np.arange(7), np.frombuffer(needle, ">u2", 7)] = True
    found, longest = [], max(map(len, hidden))
    for name, content in contents:
        data = np.frombuffer(content, np.uint8).astype(np.uint16)
        two = data[:-1] << 8 | data[1:]
        places = np.flatnonzero(tables[0][two[: max(0, len(two) - 12)]])
        for at, table in enumerate(tables[1:], 1):
            places = places[table[two[places + 2 * at]]]
        some = tuple(hidden)
        if any(content[at : at + longest].startswith(some) for at in places.tolist()):
            found.append(name)
    return found


def check_memory(sessions: Iterable[int], own: Iterable[Path], others: Iterable[Path]) -> None:
    """All processes of some sessions hold keys of their own, and no others. They are stopped."""
    mine = secrets_in(own)
    foreign = secrets_in(others) - mine
    assert len(foreign) > 20
    hidden, seen, control = needles(foreign), set(), False
    for name, content in (part for session in sessions for part in memory(session)):
        seen.add(name)
        assert found_in([(name, content)], hidden) == []
        control = control or any(one in content for one in mine)
    assert {"java", "driver", "worker"} <= seen
    assert control, "a key of its own is in its memory, and the search finds it"
