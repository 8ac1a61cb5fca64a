"""A broker with its clients in one process, for a test that kills it. Goes on where it ended.

Arguments: a folder with todo.json, and the step from which it goes slowly. A client writes down
what it got before it acknowledges.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from ccbps.broker import MatchingBroker, Payloads
from ccbps.keys import RoleKey
from ccbps.matching import from_json

KEEP = 10


def main(folder: Path, last: int) -> None:
    matcher = from_json((folder / "matcher.json").read_text())
    key = RoleKey.from_text((folder / "key").read_text())
    todo = json.loads((folder / "todo.json").read_text())
    broker = MatchingBroker(matcher.broker(key), path=folder / "broker.db", keep=KEEP)
    published = folder / "published"
    out = os.open(folder / "got", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    start = int(published.read_text()) if published.exists() else 0
    # What is done twice, since it was killed before it was written down, does no harm.
    changes = [change for change in todo["changes"] if change["at"] >= start]
    gone = {change["client"] for change in todo["changes"] if change["what"] == "revoke"}
    gone &= {change["client"] for change in todo["changes"] if change["at"] < start}
    for number in range(start, len(todo["events"])):
        if number >= last:
            time.sleep(0.05)
        while changes and changes[0]["at"] <= number:
            change = changes.pop(0)
            do(broker, change)
            if change["what"] == "revoke":
                gone.add(change["client"])
        receipt = broker.publish("feed", bytes.fromhex(todo["events"][number]))
        if receipt.clients:
            sealed = dict.fromkeys(receipt.clients, b"sealed %d" % number)
            first, *others = sealed
            broker.deliver("feed", Payloads(number, {first: sealed[first]}))
            broker.deliver("feed", Payloads(number, {one: sealed[one] for one in others}, True))
        draft = folder / "published.new"
        draft.write_text(str(number + 1))
        draft.replace(published)
        if number % 7 == 0:
            receive(broker, {*todo["clients"]} - gone, out)
    receive(broker, {*todo["clients"]} - gone, out)
    (folder / "done").touch()


def do(broker: MatchingBroker, change: dict[str, str]) -> None:
    client = change["client"]
    if change["what"] == "revoke":
        broker.revoke(client)
    elif change["what"] == "unsubscribe":
        if broker.subscriptions(client):
            broker.unsubscribe(client, "a")
    else:
        broker.subscribe(client, bytes.fromhex(change["what"]))


def receive(broker: MatchingBroker, clients: set[str], out: int) -> None:
    for client in sorted(clients):
        while some := broker.take(client, 20):
            for one in some:
                assert one.payload in (b"payload %d" % one.number, b"sealed %d" % one.number)
                os.write(out, f"{client} {one.number}\n".encode())
            broker.acknowledge(client, some[-1].sequence)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
