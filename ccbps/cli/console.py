"""What the operator of a running broker types: a line each on its standard input.

Only who started the broker, or may write to the pipe that it reads, can do that: there is no
message over the network that shuts a client out.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import sys
import threading
from typing import Final

from ccbps.broker import MatchingBroker
from ccbps.errors import CcbpsError

VERBS: Final = "revoke CLIENT [USER], admit CLIENT, subscriptions CLIENT, metrics"


def obey(broker: MatchingBroker, line: str) -> str:
    """Do what a line says; returns the answer.

    =========================  =================================================================
    line                       what it does; names with blanks are in quotes
    =========================  =================================================================
    ``revoke CLIENT``          shuts a client out, with its subscriptions and what waits for it
    ``revoke CLIENT USER``     the same, and refuses messages made with its key; USER is what
                               ``ccbps keygen revoke`` printed
    ``admit CLIENT``           lets it in again; it must subscribe anew
    ``subscriptions CLIENT``   prints their names
    ``metrics``                prints counts
    =========================  =================================================================
    """
    try:
        verb, *words = shlex.split(line)
        if verb == "revoke" and len(words) in (1, 2):
            broker.revoke(words[0], bytes.fromhex(words[1]) if words[1:] else None)
            return f"{words[0]} is shut out"
        if verb == "admit" and len(words) == 1:
            broker.admit(words[0])
            return f"{words[0]} is let in"
        if verb == "subscriptions" and len(words) == 1:
            return ", ".join(broker.subscriptions(words[0])) or f"{words[0]} has none"
        if verb == "metrics" and not words:
            return broker.metrics().rstrip()
    except (CcbpsError, ValueError, ImportError) as error:
        return f"error: {error}"
    return f"error: a line is one of: {VERBS}"


def listen(broker: MatchingBroker) -> None:
    """Obey lines of standard input until it ends, in a thread of its own."""
    try:
        # Not sys.stdin, whose lock the thread would still hold when Python ends.
        lines = io.FileIO(sys.stdin.fileno(), closefd=False)
    except (OSError, ValueError, AttributeError):
        return  # there is none
    if hasattr(signal, "SIGTTIN") and os.isatty(lines.fileno()):
        # Where a shell has put the broker into the background, reading would stop all of it.
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    threading.Thread(target=_read, args=(broker, lines), name="console", daemon=True).start()


def _read(broker: MatchingBroker, lines: io.FileIO) -> None:
    with contextlib.suppress(OSError):
        while line := lines.readline():
            text = line.decode("utf-8", "replace").strip()
            if text:
                print(obey(broker, text), flush=True)
