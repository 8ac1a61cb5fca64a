"""``ccbps``: find the command, run it, and print errors in one line.

The exit status is 0 if the command was done, 1 if the answer is no, 2 for an error, and 130 for a
command that was stopped with Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

from ccbps import __version__
from ccbps.cli.attack import ATTACK
from ccbps.cli.choosing import CHECK_PREDICATE, EXPLAIN
from ccbps.cli.command import Command, Parser
from ccbps.cli.doctor import DOCTOR
from ccbps.cli.encode import ENCODE
from ccbps.cli.files import FILTER, MATCH
from ccbps.cli.grant import GRANT
from ccbps.cli.keygen import KEYGEN
from ccbps.cli.planning import PLAN
from ccbps.cli.policy import POLICIES
from ccbps.cli.publish import PUBLISH
from ccbps.cli.servers import BROKER, LEDGER
from ccbps.cli.subscribe import SUBSCRIBE
from ccbps.cli.trio import TRIO
from ccbps.cli.trying import SCHEMA, TRY
from ccbps.errors import BrokenSchemeWarning, CcbpsError

COMMANDS: Final[tuple[Command, ...]] = (
    TRY,
    SCHEMA,
    PLAN,
    EXPLAIN,
    CHECK_PREDICATE,
    FILTER,
    KEYGEN,
    ENCODE,
    MATCH,
    BROKER,
    SUBSCRIBE,
    PUBLISH,
    LEDGER,
    TRIO,
    GRANT,
    POLICIES,
    DOCTOR,
    ATTACK,
)

ABOUT: Final = """\
Confidential content-based publish/subscribe. A publisher has events, a subscriber has a predicate,
and a broker that nobody trusts decides which events match.

Begin with `try`, on a file of your own. Choose a matcher (plan, explain), see how it takes your
predicates (check-predicate), and make keys for all parties (keygen). Then run a broker, subscribe
and publish; or work on files, with filter, encode and match. The examples in the help of these
commands belong together: paste them one after the other.

Where an argument is TEXT, @FILE stands for the text of a file, and @- for standard input. All users
of this machine can see arguments. They cannot see files."""


@cache
def make_parser() -> Parser:
    """Make the parser of all commands, once in a process."""
    parser = Parser(prog="ccbps", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"ccbps {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status of the process.

    Args:
        argv: arguments without the program's name; None for those of this process.
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
            # The reader of the output has ended. Without this Python would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except (CcbpsError, OSError, ImportError) as error:
            print(f"ccbps: {_message(error)}", file=sys.stderr)
            return 2
        except MemoryError:
            print("ccbps: not enough memory for numbers as large as these", file=sys.stderr)
            return 2


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, CcbpsError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print the warning of a broken matcher in one line."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"ccbps: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", BrokenSchemeWarning)
        warnings.showwarning = show
        yield
