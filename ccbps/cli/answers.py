"""Answers of commands, as text for people or as JSON for programs."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any, Final

import msgspec

from ccbps.cli.command import Option

JSON: Final = Option("--json", "print one JSON object in place of text", action="store_true")


def answer(arguments: Namespace, text: str, /, *, aside: bool = False, **values: Any) -> None:
    """Print the answer of a command, under its option `JSON`.

    Args:
        arguments: options of the command.
        text: answer for people.
        aside: whether standard output has the records, so that the answer goes to standard error.
        values: answer for programs, by name.
    """
    if arguments.json:
        text = msgspec.json.encode(values).decode()
    elif aside:
        text = f"ccbps: {text}"
    print(text, file=sys.stderr if aside else sys.stdout, flush=True)
