"""A broker with its clients in one process, for a test that kills it. Goes on where it ended.

Arguments: a folder with todo.json. A client writes down what it got before it acknowledges.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ccbps.broker import MatchingBroker
from ccbps.keys import RoleKey
from ccbps.matching import from_json


def main(folder: Path) -> None:
    matcher = from_json((folder / "matcher.json").read_text())
    key = RoleKey.from_text((folder / "key").read_text())
    todo = json.loads((folder / "todo.json").read_text())
    broker = MatchingBroker(matcher.broker(key), path=folder / "broker.db")
    published = folder / "published"
    out = os.open(folder / "got", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    leaver, leaves_at = todo["revoke"]
    start = int(published.read_text()) if published.exists() else 0
    if not start:
        for client, message in todo["wanted"].items():
            broker.subscribe(client, bytes.fromhex(message))
    gone = False
    for number in range(start, len(todo["events"])):
        if number >= leaves_at and not gone:
            broker.revoke(leaver)
            gone = True
        broker.publish("feed", bytes.fromhex(todo["events"][number]))
        draft = folder / "published.new"
        draft.write_text(str(number + 1))
        draft.replace(published)
        for client in todo["wanted"]:
            if number % 7 == 0 and not (gone and client == leaver):
                receive(broker, client, out)
    for client in todo["wanted"]:
        if client != leaver:
            receive(broker, client, out)
    (folder / "done").touch()


def receive(broker: MatchingBroker, client: str, out: int) -> None:
    while some := broker.take(client, 20):
        for one in some:
            os.write(out, f"{client} {one.number}\n".encode())
        broker.acknowledge(client, some[-1].sequence)


main(Path(sys.argv[1]))
