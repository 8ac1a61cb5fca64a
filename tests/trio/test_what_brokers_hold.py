"""What each broker has in its files, its memory, its log and on its wire."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.broker import Hellos, Publication, SealedGrants, Subscription
from ccbps.encodings.rows import used_bits
from ccbps.keys import ClientKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttUrl
from ccbps.shares.clients import GRANT_HEAD_BYTES, HEAD_BYTES, KEY_BYTES, KINDS
from ccbps.shares.public_clients import Authority
from tests.support.trios import Parts, Processes

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(32), volume=UInt(32))
MATCHER = ThreeBrokerMatch.box(SCHEMA, grants=True)
USERS = {"broker": "b", "feed": "f", "ann": "a"}


def memory(pid: int) -> bytes:
    """Return all memory that a process can write to."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as content:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place = re.match("([0-9a-f]+)-([0-9a-f]+) rw", line)
            if place and "[v" not in line:
                start, stop = int(place[1], 16), int(place[2], 16)
                content.seek(start)
                try:
                    while start < stop and (read := content.read(stop - start)):
                        parts.append(read)
                        start += len(read)
                except OSError:
                    continue  # not every page is there
    return b"".join(parts)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [one for child in map(int, text.split()) for one in (child, *children(child))]


def forms(packed: np.ndarray, bits: int) -> list[bytes]:
    """Return the forms in which bits may be held: packed, and a byte each."""
    unpacked = np.unpackbits(packed, bitorder="little", count=bits)
    return [packed.tobytes(), unpacked.tobytes()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="it reads the memory of processes")
def test_no_broker_has_what_two_would_need(tmp_path: Path) -> None:
    key: Any = None
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(USERS))
        parts = Parts()
        feed_key, key, giver_key = (ClientKey.generate(parts.public) for _ in range(3))
        feed, ann = MATCHER.publisher(feed_key), MATCHER.subscriber(key)
        giver = MATCHER.authority(giver_key)
        parts.name(Authority(MATCHER.digest, giver.hellos))
        trio = Processes(MATCHER, tmp_path, (server.url, "b"), stack, parts=parts)
        clients = {
            name: stack.enter_context(MqttClient(MqttUrl(server.url, name, word), timeout=120))
            for name, word in USERS.items()
            if name != "broker"
        }
        clients["feed"].greet(Hellos(feed.hellos))
        clients["ann"].greet(Hellos(ann.hellos))
        allowed = "issue = 'IBM' AND price > 1618033988"
        grants = giver.grant(allowed, to=ann.client)
        clients["feed"].grant(SealedGrants(grants))
        texts = [f"issue = 'IBM' AND price > {40 + n}" for n in range(5)]
        interests = ann.encode(texts)
        for number, row in enumerate(ann.seal(interests)):
            clients["ann"].subscribe(Subscription(str(number), row[None]))
        records = {"issue": ["IBM"] * 3, "price": [3_141_592_653] * 3, "volume": [271_828_182] * 3}
        events = feed.encode(records)
        for number, row in enumerate(feed.seal(events)):
            clients["feed"].publish(Publication(number, row.tobytes(), b""))
        assert clients["ann"].receive(timeout=60).names == ("0", "1", "2", "3", "4")

        secrets: list[list[bytes]] = [[], [], []]
        held: list[list[bytes]] = [[], [], []]
        # The third share of the grant is nowhere in its message, which is sealed.
        rows = MATCHER.grant_row(allowed)
        heads = grants[:, :GRANT_HEAD_BYTES]
        third = rows ^ giver._access.client.mask("grant", heads, rows.shape[1])
        third[:, -1] &= used_bits(MATCHER.form.rows)
        sent: list[tuple[str, Any, Any, int]] = [
            ("event", feed, events, HEAD_BYTES),
            ("interest", ann, interests, HEAD_BYTES),
            ("grant", giver, np.concatenate([heads, third], axis=1), GRANT_HEAD_BYTES),
        ]
        for kind, role, messages, size in sent:
            client = role._access.client
            heads, bodies = messages[:, :size], messages[:, size:]
            bits = MATCHER.form.event_bits if kind == "event" else MATCHER.form.rows
            number = KINDS[kind]
            kinds = {
                0: client._shared.stream("02", number, heads, bodies.shape[1]),
                1: client._shared.stream("01", number, heads, bodies.shape[1]),
                2: bodies,
            }
            plain = kinds[0] ^ kinds[1] ^ kinds[2]
            for row in range(len(messages)):
                for party in range(3):
                    for share, rows in kinds.items():
                        shown = forms(rows[row], bits)
                        mine = share in (party, (party + 1) % 3)
                        (held if mine else secrets)[party].extend(shown)
                    secrets[party] += forms(plain[row], bits)
            keys = client._shared._keys
            secrets[1].append(keys["02"])
            secrets[2].append(keys["01"])
            for party in range(3):
                secrets[party] += [keys[str(other)] for other in range(3) if other != party]
        for party in range(3):
            own = [one.export_secret()[:KEY_BYTES] for one in (key, feed_key, giver_key)]
            plain_texts = (*texts, allowed, "3141592653", "271828182", "1618033988")
            secrets[party] += [*own, *(text.encode() for text in plain_texts)]
        for party, process in enumerate(trio.processes):
            dump = b"".join(memory(pid) for pid in (process.pid, *children(process.pid)))
            files = [*tmp_path.glob(f"*{party}"), *tmp_path.glob(f"shelf{party}*")]
            files += [*tmp_path.glob("broker.db*")] * (party == 0)
            dump += b"".join(path.read_bytes() for path in files)
            # What it works with is there, or the dump would show nothing.
            assert any(share in dump for share in held[party])
            for secret in secrets[party]:
                assert secret not in dump and secret.hex().encode() not in dump
            for path in (tmp_path / f"log{party}",):
                assert path.read_bytes() == b""
