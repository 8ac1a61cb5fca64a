"""``ccbps``: finds the command, runs it, and says in one line what went wrong.

Status 0 if the command did what it was asked, 1 if the answer is no, 2 for an error, and 130 for
one that was stopped with Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ccbps import __version__
from ccbps.cli.broker import BROKER
from ccbps.cli.check_predicate import CHECK_PREDICATE
from ccbps.cli.command import Command, Parser
from ccbps.cli.explain import EXPLAIN
from ccbps.cli.keygen import KEYGEN
from ccbps.cli.ledger import LEDGER
from ccbps.cli.publish import PUBLISH
from ccbps.cli.subscribe import SUBSCRIBE
from ccbps.errors import BrokenSchemeWarning, CcbpsError

COMMANDS: Final[tuple[Command, ...]] = (
    EXPLAIN,
    CHECK_PREDICATE,
    KEYGEN,
    BROKER,
    SUBSCRIBE,
    PUBLISH,
    LEDGER,
)

ABOUT: Final = """\
Confidential content-based publish/subscribe. A publisher holds events, a subscriber holds a
predicate, and a broker that nobody trusts decides which events match.

Start with a matcher (explain), ask what it makes of your predicates (check-predicate), make
everybody's keys (keygen), then run a broker, subscribe and publish. The examples in the help of
these commands, one after the other, are a whole story that you can paste.

Where an argument is TEXT, @FILE stands for what is in a file, and @- for standard input. Arguments
are seen by everybody on this machine; files are not."""


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(prog="ccbps", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"ccbps {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: arguments, without the program's name; None for those of this process.

    Returns:
        the status with which the process is to end.
    """
    with _short_warnings():
        try:
            arguments = make_parser().parse_args(argv)
            status: int = arguments.run(arguments)
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            # Whoever read the output has enough. Python would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except (CcbpsError, OSError, ImportError) as error:
            print(f"ccbps: {_said(error)}", file=sys.stderr)
            return 2


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, CcbpsError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """A matcher that is broken says so in one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"ccbps: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", BrokenSchemeWarning)
        warnings.showwarning = show
        yield
