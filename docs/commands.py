"""Write the help of every command into the page of the command line, docs/command_line.md.

    python docs/commands.py

A test compares the page with the help.
"""

from __future__ import annotations

import argparse
import functools
import re
from pathlib import Path

from ccbps.cli.program import COMMANDS, make_parser

PAGE = Path(__file__).resolve().parent / "command_line.md"
WIDTH = 100
BLOCK = re.compile(r"(<!-- ccbps ([a-z-]+) --help -->\n\n```text\n).*?(```\n)", re.DOTALL)


def help_of(name: str) -> str:
    """Return the help of a command without its usage, which is wrapped in many ways."""
    actions = make_parser()._actions
    (commands,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    parser = commands.choices[name]
    parser.formatter_class = functools.partial(
        argparse.RawDescriptionHelpFormatter, width=WIDTH, max_help_position=26
    )
    return parser.format_help().partition("\n\n")[2]


def page(text: str) -> str:
    """Return the page with every help as it is now.

    Raises:
        ValueError: a command is not on the page.
    """
    if missing := {one.name for one in COMMANDS} - {name for _, name, _ in BLOCK.findall(text)}:
        raise ValueError(f"no place for the help of {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda found: found[1] + help_of(found[2]) + found[3], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
