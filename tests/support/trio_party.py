"""One of three brokers as a process, for tests that kill it.

Arguments: a folder with settings.json, and the number of the broker. Broker 0 is a matching broker
at an MQTT server. All processes of a broker write down the units whose masks they use.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from ccbps.broker import MatchingBroker
from ccbps.keys import OperatorKey
from ccbps.matching import from_json
from ccbps.mqtt import MqttService, MqttUrl
from ccbps.shares.masks import MaskStreams
from ccbps.shares.operators import Operator
from ccbps.shares.public_clients import Authority
from ccbps.trio import Follower, Leader, Trio

FOLDER, PARTY = Path(sys.argv[-2]), int(sys.argv[-1])


def log_units() -> None:
    """Write each unit down before its masks are used, behind a name of its two keys."""
    make, unit = MaskStreams.__init__, MaskStreams.unit
    log = os.open(FOLDER / "units", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def named(self: MaskStreams, lower: bytes, upper: bytes) -> None:
        make(self, lower, upper)
        self.names = [sha256(key).hexdigest()[:24] for key in (lower, upper)]  # type: ignore[attr-defined]

    def logged(self: MaskStreams, number: int) -> Any:
        names = self.names  # type: ignore[attr-defined]
        os.write(log, f"{PARTY} {names[0]} {names[1]} {number}\n".encode())
        return unit(self, number)

    MaskStreams.__init__ = named  # type: ignore[method-assign]
    MaskStreams.unit = logged  # type: ignore[method-assign]


# Here, and not in main, for the workers that this process starts.
log_units()


def main() -> None:
    settings = json.loads((FOLDER / "settings.json").read_text())
    matcher: Any = from_json(settings["matcher"])
    a, b, c = (Operator.from_bytes(bytes.fromhex(one)) for one in settings["operators"][PARTY])
    named = settings["authority"]
    authority = None if named is None else Authority.from_text(named)
    trio = Trio((a, b, c), settings["workers"], authority)
    key = OperatorKey(bytes.fromhex(settings["keys"][PARTY]))
    if PARTY:
        path = FOLDER / f"shelf{PARTY}"
        with Follower(PARTY, trio, key, matcher, path=path):
            threading.Event().wait()
    url = MqttUrl(settings["url"], "broker", settings["password"])
    with Leader(trio, key, matcher) as leader:
        broker = MatchingBroker(leader, path=FOLDER / "broker.db")
        with MqttService(broker, url):
            threading.Event().wait()


if __name__ == "__main__":
    main()
