"""Passwords of an MQTT server's users: in files and in the environment, never in arguments."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Final

from ccbps.broker.messages import check_name
from ccbps.cli.secret_files import new_secret_file, replace_secret
from ccbps.cli.values import read_text
from ccbps.errors import ParameterError

VARIABLE: Final = "CCBPS_PASSWORD"
PASSWORD_BYTES: Final = 24


def read_users(path: str) -> dict[str, str]:
    """Passwords by name, from a file with a JSON object of them.

    Raises:
        ParameterError: it is not that.
    """
    try:
        users = json.loads(read_text(path))
    except (ValueError, RecursionError):
        users = None
    if not isinstance(users, dict) or not all(isinstance(word, str) for word in users.values()):
        raise ParameterError(f'{path} is not a JSON object of passwords by name, {{"alice": ...}}')
    return users


def new_password(path: str, users_path: str, name: str) -> None:
    """Draw a password for a user, into a new file of the user's and into the server's.

    Raises:
        ParameterError: the user has one.
    """
    check_name("name", name)
    users = read_users(users_path) if Path(users_path).exists() else {}
    if name in users:
        raise ParameterError(f"{name} has a password in {users_path}")
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    with new_secret_file(path) as file:
        file.write(password + "\n")
        replace_secret(users_path, json.dumps({**users, name: password}, indent=1) + "\n")


def read_password(path: str | None) -> str | None:
    """The first line of a file; without one, the variable `VARIABLE`, or None for no password."""
    if path is None:
        return os.environ.get(VARIABLE)
    lines = read_text(path).splitlines()
    if not lines or not lines[0]:
        raise ParameterError(f"{path} has no password in its first line")
    return lines[0]
