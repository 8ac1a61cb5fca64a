"""Files that only their owner may read: made once, and replaced only by what follows from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ccbps.errors import ParameterError


@contextmanager
def new_secret_file(path: str) -> Iterator[TextIO]:
    """A new file, to be written in the block; there is none if the block raises.

    Raises:
        ParameterError: there is one already.
        OSError: it cannot be made.
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ParameterError(f"{path} is there already, and keys are not overwritten") from None
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(path).unlink()
        raise


def replace_secret(path: str, text: str) -> None:
    """Put a new text in a file's place: all of it, or nothing.

    Raises:
        ParameterError: another process is doing the same, or ended while it did.
        OSError: it cannot be written.
    """
    draft = f"{path}.new"
    with new_secret_file(draft) as file:
        file.write(text)
    Path(draft).replace(path)
