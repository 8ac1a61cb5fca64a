"""Where a new key goes: into a file of its own, or, if that is asked for, onto the screen."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TypeAlias

from ccbps.cli.command import Parser
from ccbps.cli.secret_files import new_secret_file
from ccbps.keys.plain_key import FilterKey, LedgerKey
from ccbps.keys.role_key import RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.text_form import KINDS, read_key

Made: TypeAlias = SharedSeed | RoleKey | FilterKey | LedgerKey


def add_out(parser: Parser) -> None:
    """The arguments that say where."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="FILE", help="new file for it, which only you may read")
    where.add_argument("--print", action="store_true", help="show the secret on the screen")


def keep(arguments: Namespace, make: Callable[[], Made]) -> int:
    """Make a key, and keep it where the arguments say; it is not made where it cannot be kept."""
    if arguments.print:
        print(make().to_text())
        return 0
    with new_secret_file(arguments.out) as file:
        key = make()
        file.write(key.to_text() + "\n")
    kind, _ = read_key(key.to_text())
    print(f"{arguments.out}: {KINDS[kind]}, fingerprint {key.fingerprint()}")
    return 0
