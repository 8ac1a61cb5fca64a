"""Versions at a broker: in time, in classes that are enough, and nested, on a tree of brokers."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.anonymity import Anonymizer, Distinct, Release, VersionRelay
from ccbps.errors import ParameterError
from ccbps.overlay import Links
from ccbps.predicates import Events

# Nobody would publish an id. It tells which record is which.
SCHEMA = Schema(x=UInt(10), y=UInt(6), id=UInt(16))
FINE = Anonymizer(SCHEMA, 3, sensitive=["id"])
IDS = count()


def release_of(size: int, seed: int = 0, k: int = 3) -> Release:
    rng = np.random.default_rng([seed, size])
    values = {name: rng.integers(0, SCHEMA[name].size, size) for name in "xy"}
    values["id"] = np.array([next(IDS) for _ in range(size)], dtype=np.int64)
    return Anonymizer(SCHEMA, k, sensitive=["id"]).release(values).public


def classes_of(releases: list[Release]) -> dict[int, tuple[int, int]]:
    """Class of each record, by its id. No record is in two releases."""
    out: dict[int, tuple[int, int]] = {}
    for number, release in enumerate(releases):
        ids = release.events.codes["id"][0].tolist()
        own = {i: (number, c) for i, c in zip(ids, release.classes.tolist(), strict=True)}
        assert not own.keys() & out.keys()
        out |= own
    return out


def candidates(versions: list[dict[int, tuple[int, int]]]) -> dict[int, int]:
    """Number of records that a receiver of versions cannot tell from each one."""
    every = set.intersection(*({*version} for version in versions))
    alike: dict[tuple[tuple[int, int], ...], int] = {}
    for one in every:
        key = tuple(version[one] for version in versions)
        alike[key] = alike.get(key, 0) + 1
    return {one: alike[tuple(version[one] for version in versions)] for one in every}


class Upstream:
    """Broker that sends each finer release, and a version for 5 of several of them."""

    def __init__(self, links: Links, sizes: list[int], group: int, seed: int) -> None:
        self.port, self.group, self.seed = links.attach("up", self), group, seed
        self.recent: list[Release] = []
        self.number = 0
        for turn, size in enumerate(sizes):
            self.port.after(2.0 * turn, lambda size=size: self.publish(size))  # type: ignore[misc]

    def receive(self, sender: str, message: Any) -> None:
        raise AssertionError("nobody sends to the first broker")

    def publish(self, size: int) -> None:
        self.recent.append(release_of(size, self.seed + self.number))
        self.number += 1
        self.port.send("broker", (self.recent[-1],))
        if len(self.recent) == self.group:
            version = Release.joined(self.recent).derive(5)
            self.port.send("broker", (version, self.number - self.group, self.number))
            self.recent = []


class Between:
    """Broker with children for k = 5 and k = 9, in a chain of relays."""

    def __init__(self, links: Links, delay: float, price: float) -> None:
        self.port = links.attach("broker", self)
        self.relays = [VersionRelay(5, delay, price=price), VersionRelay(9, delay)]
        self.came: list[tuple[float, Release]] = []
        self.out: list[list[tuple[float, Release]]] = [[], []]
        self.used = 0

    def receive(self, sender: str, message: Any) -> None:
        first, now = self.relays[0], self.port.time
        if len(message) == 1:
            self.came.append((now, *message))
            self.give(0, first.push(*message, now))
        else:
            version = first.offer(*message, now)
            self.used += version is message[0]
            self.give(0, version)

    def give(self, level: int, version: Release | None) -> None:
        if version is not None:
            self.out[level].append((self.port.time, version))
            if level == 0:
                self.give(1, self.relays[1].push(version.public, self.port.time))
        for own in (0, 1):
            if self.relays[own].deadline < np.inf:
                self.port.after(self.relays[own].deadline - self.port.time, self.due)

    def due(self) -> None:
        for level, relay in enumerate(self.relays):
            if relay.deadline <= self.port.time:
                self.give(level, relay.poll(self.port.time))


@given(
    st.lists(st.integers(0, 14), min_size=6, max_size=20),
    st.integers(1, 4),
    st.sampled_from([0.0, 2.5, 5.0, 8.0, 20.0]),
    st.sampled_from([0.0, 0.01, 10.0]),
    st.integers(0, 99),
)
def test_versions_on_a_tree_of_brokers(
    sizes: list[int], group: int, delay: float, price: float, seed: int
) -> None:
    """Always nested, never under-anonymised, and never later than the budget."""
    links = Links([("up", "broker")], delay=(0.5, 0.75), seed=seed)
    Upstream(links, sizes, group, seed)
    broker = Between(links, delay, price)
    links.run()
    assert not any(map(len, broker.relays))
    time_of = {
        one: now for now, release in broker.came for one in release.events.codes["id"][0].tolist()
    }
    finer = classes_of([release for _, release in broker.came])
    versions = []
    for level, (k, out) in enumerate(zip((5, 9), broker.out, strict=True), 1):
        versions.append(classes_of([version for _, version in out]))
        for now, version in out:
            assert version.report.smallest >= k or not version.events.count
            for one in version.events.codes["id"][0].tolist():
                assert now <= time_of[one] + level * delay + 1e-9
    five, nine = versions
    assert {*nine} <= {*five} <= {*finer}
    # Whoever has several versions knows what the finest says, and no more.
    for together in ([finer, five], [finer, five, nine], [five, nine]):
        alone = candidates(together[:1])
        assert all(alone[one] == number for one, number in candidates(together).items())
    assert all(number >= 5 for number in candidates([five, nine]).values())
    if delay == 0:
        assert not broker.used or group == 1


def run(delay: float, price: float) -> tuple[float, float, int]:
    """Mean loss and waiting time of records, and versions of the upstream that were used."""
    links = Links([("up", "broker")], delay=0.5, seed=1)
    Upstream(links, [12] * 60, 4, 1)
    broker = Between(links, delay, price)
    links.run()
    time_of = {
        one: now for now, release in broker.came for one in release.events.codes["id"][0].tolist()
    }
    lost, waited = [], []
    for now, version in broker.out[0][12:]:
        ids = version.events.codes["id"][0].tolist()
        lost += [version.report.loss] * len(ids)
        waited += [now - time_of[one] for one in ids]
    return float(np.mean(lost)), float(np.mean(waited)), broker.used


def test_waiting_is_worth_its_price() -> None:
    """A version of four releases loses less than one of a single release, and comes later."""
    at_once, dear = run(1, 0), run(10, 10)
    assert at_once == dear
    assert at_once[1:] == (0, 0)
    patient, fair = run(10, 0), run(10, 0.01)
    assert patient[2] > 2
    assert patient[0] < fair[0] < 0.9 * at_once[0]
    # The mean of 6, 4, 2 and 0, where every version is awaited.
    assert 0 < fair[1] < patient[1] <= 3


def test_two_brokers_that_decide_differently_cut_each_other() -> None:
    """Two versions for 5 of the same records: together they say more, and no more than k = 3."""
    release = [release_of(20, seed) for seed in range(4)]
    early, late = VersionRelay(5, 1), VersionRelay(5, 1)
    alone = [early.push(one, 5 * now) for now, one in enumerate(release)]
    for one in release:
        assert one.events.count == 20
    version = late.push(Release.joined(release).public, 0)
    assert version is not None
    both = candidates([classes_of([one for one in alone if one]), classes_of([version])])
    assert 3 <= min(both.values()) < 5


def test_what_is_too_few_waits_and_is_left_out_in_the_end() -> None:
    relay = VersionRelay(5, 4)
    assert relay.push(release_of(3), 0) is None
    assert relay.deadline == 4
    assert relay.push(release_of(0), 1) is None
    assert relay.poll(3.9) is None
    left = relay.poll(4)
    assert left is not None
    assert (left.records, left.events.count, len(relay)) == (3, 0, 1)
    version = relay.push(release_of(7), 5)  # with the release of no records
    assert version is not None
    assert (version.events.count, len(relay), relay.deadline) == (7, 0, np.inf)
    assert relay.poll(6) is None
    assert "k=5, 0 releases" in repr(relay)


def test_an_upstream_that_is_silent_is_not_awaited() -> None:
    relay = VersionRelay(5, 100, period=4)
    near = Anonymizer(SCHEMA, 5, sensitive=["id"]).release(
        {"x": [7] * 5, "y": [7] * 5, "id": [0] * 5}
    )
    assert relay.push(near.public, 0) is not None  # nobody knows yet how narrow versions are
    assert relay.offer(near, 0, 1, 0) is None  # the records were published
    wide = release_of(20)
    assert relay.push(wide, 1) is None
    assert relay.poll(8) is None
    version = relay.poll(8.1)
    assert version is not None
    assert version.merges(wide)


def test_classes_keep_the_rule_of_the_stream() -> None:
    schema = Schema(x=UInt(10), ill=UInt(2))
    diverse = Anonymizer(schema, 2, sensitive=["ill"], diversity=Distinct(2))
    release = diverse.release({"x": [1, 2, 3, 4, 900], "ill": [0, 1, 0, 0, 1]}).public
    relay = VersionRelay(3, 10, period=1)
    version = relay.push(release, 0)
    assert version is not None
    assert version.is_enough(3, Distinct(2))
    # A version that says that it has no rule is checked by that of the releases.
    careless = Anonymizer(schema, 2, sensitive=["ill"])
    rows = {"x": [1, 2, 3, 4, 5, 6], "ill": [0, 0, 0, 0, 0, 1]}
    relay = VersionRelay(3, 10)
    classes = np.array([0, 0, 0, 1, 1, 1])
    relay._waiting.append((0.0, diverse.release_classes(rows, classes)))
    with pytest.raises(ParameterError, match="which keep the rule"):
        relay.offer(careless.release_classes(rows, classes), 0, 1, 0)


def test_what_is_refused() -> None:
    schema = Schema(x=UInt(10))
    for options, message in [
        ({"k": 0}, "k must be"),
        ({"delay": -1}, "delay must be"),
        ({"price": -1}, "price must be"),
        ({"period": -1}, "period must be"),
        ({"diversity": 2}, "diversity must be"),
    ]:
        with pytest.raises(ParameterError, match=message):
            VersionRelay(**{"k": 5, "delay": 1, **options})
    relay = VersionRelay(5, 10)
    with pytest.raises(ParameterError, match="no version for k=5"):
        relay.push(release_of(9, k=6), 0)
    with pytest.raises(ParameterError, match="sensitive"):
        VersionRelay(5, 1, diversity=Distinct(2)).push(Anonymizer(schema, 3).release([]), 0)
    few, several = release_of(4), release_of(40)
    assert relay.push(few, 3) is None
    with pytest.raises(ParameterError, match="another schema"):
        relay.push(Anonymizer(schema, 3).release([]), 3)
    with pytest.raises(ParameterError, match="must not go back"):
        relay.poll(2)
    with pytest.raises(ParameterError, match="stop must be"):
        relay.offer(few, 0, 0, 3)
    # Too small classes.
    with pytest.raises(ParameterError, match="at least 5 records"):
        relay.offer(few, 0, 1, 3)
    relay = VersionRelay(5, 10, period=1)
    relay._came.append((0.0, 0.0))  # a version without loss is awaited
    assert relay.push(several, 0) is None
    # Made independently of the finer one.
    codes = several.events.codes
    own = Anonymizer(SCHEMA, 5, sensitive=["id"]).release(
        {"x": codes["x_low"][0], "y": codes["y_high"][0], "id": codes["id"][0]}
    )
    with pytest.raises(ParameterError, match="unions of whole classes"):
        relay.offer(own, 0, 1, 1)
    version = several.derive(5)
    # Ranges that tell records of a class apart.
    marked = dict(version.events.codes)
    marked["x_high"] = 1022 + (version.rows % 2).astype(np.uint64)[None]
    telling = structs.replace(version, events=Events(version.events.schema, 40, marked))
    with pytest.raises(ParameterError, match="unions of whole classes"):
        relay.offer(telling, 0, 1, 1)
    # Another opinion of what is sensitive, by which the rule would be judged.
    other = Anonymizer(SCHEMA, 5, sensitive=["x"])
    with pytest.raises(ParameterError, match="unions of whole classes"):
        relay.offer(structs.replace(version, anonymizer=other), 0, 1, 1)
    assert relay.offer(version, 0, 1, 1) is version
    with pytest.raises(ParameterError, match="at least one"):
        Release.joined([])
    with pytest.raises(ParameterError, match="different schemas"):
        Release.joined([several, Anonymizer(schema, 3).release([])])
    assert not Anonymizer(schema, 3).release([]).merges(several)
