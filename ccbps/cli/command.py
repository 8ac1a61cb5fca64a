"""Commands as data, each with its name, help, options and function; and their answers."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc
from textwrap import dedent
from typing import Any, Final, NoReturn

import msgspec

from ccbps.errors import ParameterError

REPEATED: Final[dict[str, Any]] = {"action": "append", "default": []}
"""Settings of an option that may be given several times."""


class Parser(argparse.ArgumentParser):
    """Parser that keeps the lines of help texts and accepts no shortened options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings
        )

    def error(self, message: str) -> NoReturn:
        """Raise a ParameterError, which the program prints in one line."""
        raise ParameterError(f"{message}; {self.prog} --help shows an example")


class Option:
    """Argument of a command.

    Args:
        form: name and value as help shows them, such as ``--key FILE``. A name without dashes
            stands for a positional argument.
        about: description of the value.
        settings: further settings of `argparse.ArgumentParser.add_argument`.
    """

    def __init__(self, form: str, about: str, **settings: Any) -> None:
        self.name, _, value = form.partition(" ")
        self._settings = {"help": about, **settings}
        if value:
            self._settings["metavar"] = value

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the option to a parser or a group."""
        parser.add_argument(self.name, **self._settings)


class OneOf:
    """Options of which a command takes at most one, or exactly one if `required`."""

    def __init__(self, *options: Option, required: bool = False) -> None:
        self._options, self._required = options, required

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the options to a parser."""
        group = parser.add_mutually_exclusive_group(required=self._required)
        for option in self._options:
            option.add_to(group)


@dataclass(frozen=True)
class Command:
    """Command of the program.

    Attributes:
        name: word to type.
        run: function that takes the parsed arguments and returns the exit status. Its docstring is
            the command's help, and ends with an example for a shell.
        options: arguments of the command.
        kinds: commands of its own; the user must name one of them.
    """

    name: str
    run: Callable[[Namespace], int]
    options: tuple[Option | OneOf, ...] = ()
    kinds: tuple[Command, ...] = ()

    @property
    def example(self) -> str:
        """Lines to paste into a shell."""
        return dedent(self._help[1])

    @property
    def _help(self) -> tuple[str, str]:
        about, _, example = cleandoc(self.run.__doc__ or "").partition("\n\nExample:\n")
        return about, example

    def add_to(self, commands: argparse._SubParsersAction[Parser]) -> None:
        """Add the command and its kinds to a parser's commands."""
        about, example = self._help
        parser = commands.add_parser(
            self.name,
            help=about.partition("\n")[0],
            description=about,
            epilog=f"example:\n{example}",
        )
        for option in self.options:
            option.add_to(parser)
        parser.set_defaults(run=self.run)
        if self.kinds:
            kinds = parser.add_subparsers(title="kinds", metavar="KIND [options]", required=True)
            for kind in self.kinds:
                kind.add_to(kinds)


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
