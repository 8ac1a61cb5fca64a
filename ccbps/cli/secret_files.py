"""Secrets in files: new files that only their owner may read, and passwords of MQTT users."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from ccbps.broker.messages import check_name
from ccbps.cli.inputs import read_file
from ccbps.errors import ParameterError

VARIABLE: Final = "CCBPS_PASSWORD"
PASSWORD_BYTES: Final = 24


@contextmanager
def new_secret_file(path: str) -> Iterator[TextIO]:
    """Create a file that only its owner may read, and remove it if the block fails.

    Raises:
        ParameterError: the file exists already.
        OSError: the file cannot be created.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ParameterError(f"{path} exists already, and keys are not overwritten") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(path).unlink()
        raise


def replace_secret(path: str, text: str) -> None:
    """Replace the text of a file as a whole, or not at all.

    Raises:
        ParameterError: another process is replacing it, or was killed while it did.
        OSError: the file cannot be written.
    """
    draft = f"{path}.new"
    with new_secret_file(draft) as file:
        file.write(text)
    Path(draft).replace(path)


def read_users(path: str) -> dict[str, str]:
    """Return passwords by user name from a file that holds them as a JSON object.

    Raises:
        ParameterError: the file holds none.
    """
    try:
        users = json.loads(read_file(path))
    except (ValueError, RecursionError):
        users = None
    if not isinstance(users, dict) or not all(isinstance(word, str) for word in users.values()):
        raise ParameterError(f'{path} is not a JSON object of passwords by name, {{"alice": ...}}')
    return users


def add_password(path: str, users_path: str, name: str) -> None:
    """Draw a user's password, and write it to a new file of the user and to the server's file.

    Raises:
        ParameterError: the user has a password already.
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
    """Return the first line of a file or, without a path, the variable `CCBPS_PASSWORD`.

    Raises:
        ParameterError: the first line is empty.
    """
    if path is None:
        return os.environ.get(VARIABLE)
    password = read_file(path).partition("\n")[0]
    if not password:
        raise ParameterError(f"{path} has no password in its first line")
    return password
