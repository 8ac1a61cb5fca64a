"""A broker with a policy, and its clients, in one process, for a test that kills it.

Arguments: a folder with todo.json, and the step from which it goes slowly. It goes on where it
ended. A step that is done twice, since it was killed before it was written down, has the same
outcome. The clock is the number of the step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ccbps.access import Guard, present_token
from ccbps.broker import Enforcement, MatchingBroker
from ccbps.errors import RefusedError, ReplayError
from ccbps.keys import RoleKey
from ccbps.matching import from_json
from tests.support.access_world import AUTHORITY, user_key


class Party:
    """The broker and its clients."""

    def __init__(self, folder: Path) -> None:
        self.todo = json.loads((folder / "todo.json").read_text())
        self.step, self._counter = 0, 0
        self._out = os.open(folder / "got", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.guard = Guard(AUTHORITY.identity, clock=lambda: float(self.step))
        matcher = from_json((folder / "matcher.json").read_text())
        self.broker = MatchingBroker(
            matcher.broker(RoleKey.from_text((folder / "key").read_text())),
            path=folder / "broker.db",
            access=Enforcement(self.guard, self.todo["when"]),
        )

    def do(self, step: dict[str, Any]) -> None:
        kind, client, messages = step["kind"], step["client"], step["messages"]
        content = [bytes.fromhex(one) for one in messages]
        try:
            for one in content:
                if kind == "enact":
                    self.broker.enact(one)
                elif kind == "present":
                    self._counter += 1
                    key, session = user_key(client), self.guard.session
                    shown = present_token(one, key, session, client, self._counter)
                    self.broker.present(client, shown)
                elif kind == "subscribe":
                    self.broker.subscribe(client, one)
                elif kind == "publish":
                    self.broker.publish(client, one)
                else:
                    self.receive(client)
            outcome = ""
        except RefusedError as error:
            outcome = error.reason
        assert bool(outcome) == step["refused"], (self.step, kind, client, outcome)

    def check_start(self) -> None:
        """Refuse to go on if an older policy counts, or can be brought back."""
        enacted = [n for n, one in enumerate(self.todo["steps"]) if one["kind"] == "enact"]
        done = [n for n in enacted if n < self.step]
        if done:
            assert self.guard.stamp() >= self.todo["steps"][done[-1]]["version"]
        for place in done[:-1]:
            try:
                self.broker.enact(bytes.fromhex(self.todo["steps"][place]["messages"][0]))
            except ReplayError:
                continue
            raise AssertionError("an older policy was put into force")

    def receive(self, client: str) -> None:
        while some := self.broker.take(client, 20):
            for one in some:
                os.write(self._out, f"{client} {one.number}\n".encode())
            self.broker.acknowledge(client, some[-1].sequence)


def main(folder: Path, last: int) -> None:
    party, published = Party(folder), folder / "published"
    party.step = int(published.read_text()) if published.exists() else 0
    party.check_start()
    for step in party.todo["steps"][party.step :]:
        if party.step >= last:
            time.sleep(0.05)
        party.do(step)
        party.step += 1
        draft = folder / "published.new"
        draft.write_text(str(party.step))
        draft.replace(published)
    (folder / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
