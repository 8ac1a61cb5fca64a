"""A broker with a policy that is killed again and again loses and loosens no decision."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ccbps.access import Grant, read_token
from ccbps.broker.enforcement import When
from ccbps.errors import RefusedError
from tests.support import killed_access
from tests.support.access_world import AUTHORITY, SCHEMA, AccessWorld, user_key
from tests.support.broker_world import refused
from tests.support.kills import run_and_kill

USERS = ("ann", "bob", "cem", "dave")
TEXTS = ("x < 4", "x > 2", "x BETWEEN 1 AND 6", "TRUE", "x = 5", None)
FOREVER = 10**6


class Script:
    """Steps for the broker, and what clients must get: an oracle reads the policies only.

    Attributes:
        steps: the steps.
        wanted: numbers of the publications that each client must get, in order.
    """

    def __init__(self, when: When, draw: random.Random) -> None:
        self._when, self._draw = when, draw
        self.world = AccessWorld({"feed": ["feed"]}, [Grant("feed", ("publish",))], (), when)
        self.steps: list[dict[str, Any]] = []
        self.wanted: dict[str, list[int]] = {user: [] for user in USERS}
        # Roles and end of each client's token, and the filters of its subscription.
        self._tokens: dict[str, tuple[tuple[str, ...], int]] = {}
        self._subscribed: dict[str, tuple[str, str]] = {}

    def add(self, kind: str, client: str, *messages: bytes, **more: Any) -> None:
        content = [one.hex() for one in messages]
        self.steps.append(
            {"kind": kind, "client": client, "messages": content, "refused": False, **more}
        )

    def filters(self, user: str) -> tuple[str, str] | None:
        """The filters by the roles that a client's token has and its user still has."""
        policy = self.world.authority.policy
        held = policy.roles_of(user)
        roles = tuple(one for one in self._tokens.get(user, (held, 0))[0] if one in held)
        both = [policy.filter(roles, "subscribe"), policy.filter(roles, "receive")]
        texts = [one.text for one in both if one is not None]
        return (texts[0], texts[1]) if len(texts) == 2 else None

    def counts(self, user: str) -> bool:
        """Whether a client's token counts in the next step."""
        roles, ends = self._tokens.get(user, ((), -1))
        held = self.world.authority.policy.roles_of(user)
        return len(self.steps) <= ends and not {*roles}.isdisjoint(held)

    def enact(self, roles: dict[str, list[str]], texts: dict[str, str | None]) -> None:
        grants = [
            Grant("feed", ("publish",), texts["feed"] or "TRUE"),
            *(
                Grant(role, ("subscribe", "receive"), text)
                for role, text in texts.items()
                if role != "feed" and text is not None
            ),
        ]
        revoked = {*self.world.authority.policy.revoked}
        self.world.enact(roles=roles, grants=grants, revoked=revoked)
        version = self.world.authority.policy.version
        self.add("enact", "", self.world.enactment().to_bytes(), version=version)
        for user, had in [*self._subscribed.items()]:
            has = self.filters(user)
            if has is None or (self._when == "before" and has != had):
                del self._subscribed[user]

    def present(self, user: str, seconds: int) -> None:
        self.world.clock.now = len(self.steps)
        try:
            token = self.world.authority.issue(user, user_key(user).identity, seconds=seconds)
        except RefusedError:
            return
        read = read_token(token, AUTHORITY.identity)
        self.add("present", user, token)
        self._tokens[user] = read.roles, read.ends

    def subscribe(self, user: str) -> None:
        try:
            messages = [one.to_bytes() for one in self.world.wants(user, "a", "TRUE")]
        except RefusedError:
            return
        has = self.filters(user)
        works = self.counts(user) and has is not None
        self.add("subscribe", user, *messages, refused=not works)
        if works and has is not None:
            self._subscribed[user] = has

    def publish(self, x: int) -> None:
        policy, event = self.world.authority.policy, {"x": [x]}
        may = bool(policy.allows("feed", "publish", event)[0]) and self.counts("feed")
        publication = self.world.event("feed", x)
        for user, had in self._subscribed.items():
            has = self.filters(user)
            parts = [] if has is None else [SCHEMA.parse(one).evaluate(event)[0] for one in has]
            same = self._when == "after" or has == had
            if may and self.counts(user) and parts and all(parts) and same:
                self.wanted[user].append(publication.number)
        self.add("publish", "feed", publication.to_bytes(), refused=not may)

    def receive(self, user: str) -> None:
        policy = self.world.authority.policy
        held = policy.roles_of(user)
        roles = tuple(one for one in self._tokens.get(user, ((), 0))[0] if one in held)
        may = self.counts(user) and policy.filter(roles, "receive") is not None
        self.add("receive", user, b"", refused=not may)

    def write(self, versions: int) -> None:
        draw, users = self._draw, [*USERS]
        for version in range(versions):
            if version == versions // 2:
                self.present("dave", FOREVER)  # its token counts for ever, but for that
                self.world.authority.revoke("dave")
            roles = {"feed": ["feed"], "doctor": list[str](), "nurse": list[str]()}
            for user in users:
                roles[draw.choice(["doctor", "doctor", "nurse"])].append(user)
            texts = {role: draw.choice(TEXTS) for role in roles}
            if version == versions - 1:
                texts = dict.fromkeys(roles, "TRUE")
            self.enact(roles, texts)
            self.present("feed", draw.choice([9, FOREVER]))
            for user in draw.sample(users, len(users)):
                if draw.random() < 0.7 or version == versions - 1:
                    self.present(user, draw.choice([15, 40, FOREVER]))
                self.subscribe(user)
            for _ in range(draw.randrange(4, 12)):
                self.publish(draw.randrange(8))
                if draw.random() < 0.3:
                    self.receive(draw.choice(users))
        for user in users:
            self.present(user, FOREVER)
            self.receive(user)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_decision_is_lost_or_loosened_by_kills(tmp_path: Path, when: When) -> None:
    draw, kills = random.Random(7), 20
    script = Script(when, draw)
    script.write(40)
    world = script.world
    (tmp_path / "matcher.json").write_text(world.matcher.to_json())
    (tmp_path / "key").write_text(world.key.to_text())
    (tmp_path / "todo.json").write_text(json.dumps({"when": when, "steps": script.steps}))
    outcomes = [one["refused"] for one in script.steps]
    assert 20 < sum(outcomes) < len(outcomes) / 2
    points = sorted(draw.sample(range(1, len(outcomes) - 10), kills))
    assert (
        sum(run_and_kill(killed_access, tmp_path, point, draw.random() * 0.004) for point in points)
        > kills // 2
    )
    assert not run_and_kill(killed_access, tmp_path, FOREVER, 0)
    lines = [line.split() for line in (tmp_path / "got").read_text().splitlines()]
    got = {user: [int(n) for one, n in lines if one == user] for user in USERS}
    for user in ("ann", "bob", "cem"):
        assert [*dict.fromkeys(got[user])] == script.wanted[user], user
        assert len(script.wanted[user]) > 10
    assert {*got["dave"]} <= {*script.wanted["dave"]}
    # Revoked stays revoked, and the last policy is the one in force.
    world.options["path"] = tmp_path / "broker.db"
    world.broker = world.start()
    assert world.guard.stamp() == world.authority.policy.version
    assert world.broker.subscriptions("dave") == []
    with refused("revoked"):
        world.broker.take("dave")
    world.broker.close()
