"""Secrets in files: keys, new files that only their owner may read, passwords of MQTT users."""

from __future__ import annotations

import json
import os
import secrets
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from ccbps.broker.messages import check_name
from ccbps.cli.command import Option
from ccbps.cli.inputs import read_file
from ccbps.errors import ParameterError
from ccbps.keys.sources import FileKey, check_private

VARIABLE: Final = "CCBPS_PASSWORD"
PASSWORD_BYTES: Final = 24
SHARED_KEYS: Final = Option(
    "--shared-keys",
    "read keys and passwords although every user of this machine may read them",
    action="store_true",
)


def key_file(arguments: Namespace, path: str) -> FileKey:
    """Return the source of a key in a file, under the command's `SHARED_KEYS`."""
    return FileKey(path, shared=arguments.shared_keys)


def _read_secret(arguments: Namespace, path: str) -> str:
    """Return the text of a file of passwords.

    Raises:
        KeyMismatchError: every user of this machine may read it.
        OSError: the file cannot be read.
    """
    if not arguments.shared_keys:
        check_private(Path(path), path)
    return read_file(path)


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


def read_users(arguments: Namespace) -> dict[str, str]:
    """Return passwords by user name from the file --users, a JSON object.

    Raises:
        KeyMismatchError: every user of this machine may read the file.
        ParameterError: the file holds none.
    """
    path, users = arguments.users, None
    text = _read_secret(arguments, path)
    with suppress(ValueError, RecursionError):
        users = json.loads(text)
    if not isinstance(users, dict) or not all(isinstance(word, str) for word in users.values()):
        raise ParameterError(f'{path} is not a JSON object of passwords by name, {{"alice": ...}}')
    return users


def add_password(arguments: Namespace) -> None:
    """Draw a user's password, and write it to a new file of the user and to the server's file.

    Raises:
        ParameterError: the user has a password already.
    """
    name = arguments.name
    check_name("name", name)
    users = read_users(arguments) if Path(arguments.users).exists() else {}
    if name in users:
        raise ParameterError(f"{name} has a password in {arguments.users}")
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    with new_secret_file(arguments.out) as file:
        file.write(password + "\n")
        replace_secret(arguments.users, json.dumps({**users, name: password}, indent=1) + "\n")


def read_password(arguments: Namespace) -> str | None:
    """Return the first line of the file --password-file; without it, the variable `VARIABLE`.

    Raises:
        KeyMismatchError: every user of this machine may read the file.
        ParameterError: the first line is empty.
    """
    path = arguments.password_file
    if path is None:
        return os.environ.get(VARIABLE)
    password = _read_secret(arguments, path).partition("\n")[0]
    if not password:
        raise ParameterError(f"{path} has no password in its first line")
    return password
