"""Values of arguments: texts that may be in files, and settings ``NAME=VALUE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccbps.errors import ParameterError


def read_text(path: str) -> str:
    """What is in a file.

    Raises:
        OSError: it cannot be read.
        ParameterError: it is not UTF-8.
    """
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not a text in UTF-8") from None


def text_of(argument: str) -> str:
    """The text of an argument: itself, a file's for ``@FILE``, standard input's for ``@-``."""
    if argument == "@-":
        return sys.stdin.read()
    return read_text(argument[1:]) if argument.startswith("@") else argument


def settings(option: str, given: Sequence[str]) -> dict[str, Any]:
    """Values by name; a value is JSON, or else a string.

    Args:
        option: where they were given, for errors.
        given: ``NAME=VALUE``.

    Raises:
        ParameterError: one is not such a setting, or a name comes twice.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise ParameterError(f"{option} takes NAME=VALUE, each name once, got {text!r}")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
