"""A command: what its help says, which arguments it takes, and what it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Any, NoReturn

from ccbps.errors import ParameterError


class Parser(argparse.ArgumentParser):
    """Help keeps its lines; names of options are not to be shortened; errors are one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        """Raises ParameterError, which the program prints."""
        raise ParameterError(f"{message}; {self.prog} --help shows an example")


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: to type.
        summary: a line for the list of commands.
        about: what it is for.
        example: lines to paste.
        add_arguments: to its parser.
        run: takes the arguments, returns the status.
        kinds: commands of its own, of which one must be named.
    """

    name: str
    summary: str
    about: str
    example: str
    add_arguments: Callable[[Parser], object] = lambda parser: None
    run: Callable[[argparse.Namespace], int] = lambda arguments: 0
    kinds: tuple[Command, ...] = ()

    def add_to(self, commands: argparse._SubParsersAction[Parser]) -> None:
        """Add it, and its kinds, to a parser's commands."""
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.about,
            epilog=f"example:\n{indent(self.example, '  ')}",
        )
        self.add_arguments(parser)
        parser.set_defaults(run=self.run)
        if self.kinds:
            kinds = parser.add_subparsers(title="kinds", metavar="KIND [options]", required=True)
            for kind in self.kinds:
                kind.add_to(kinds)
