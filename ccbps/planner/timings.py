"""Rates from earlier measurements on this machine, in a file of the user's cache folder.

The file's name stands for the machine and for the versions of Python, NumPy and this library. It
holds seconds, by the fingerprints of matchers and by numbers of subscriptions. A matcher, and so
its fingerprint, may depend on a predicate: only the user may read the file.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import ccbps
from ccbps.errors import ParameterError
from ccbps.matching.contract.estimate import Rates

_Stored = dict[str, dict[str, float]]
_MOST_BYTES: Final = 1 << 24


def default_folder() -> Path:
    """Return the folder of this user's caches: `CCBPS_CACHE`, or where the system keeps them."""
    if folder := os.environ.get("CCBPS_CACHE"):
        return Path(folder)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ccbps"


def machine_name() -> str:
    """Return a name of machine and versions, 16 hexadecimal digits."""
    facts = (
        platform.node(),
        platform.machine(),
        platform.processor(),
        os.cpu_count(),
        platform.python_version(),
        np.__version__,
        ccbps.__version__,
    )
    return sha256(repr(facts).encode()).hexdigest()[:16]


class Timings:
    """Rates by name, read from a file and written to it.

    Args:
        folder: folder of the file; None for the user's cache folder. If that one cannot be used,
            each process measures again.

    Raises:
        ParameterError: the folder that was given cannot be used, or its file is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._own = folder is not None
        place = default_folder() if folder is None else Path(folder)
        self.path = place / f"rates-{machine_name()}.json"
        self._rates: _Stored = {}
        self._changed = False
        problem = ""
        try:
            if self.path.stat().st_size <= _MOST_BYTES:
                self._rates = msgspec.json.decode(self.path.read_bytes(), type=_Stored)
        except FileNotFoundError:
            pass
        except OSError as error:
            problem = error.strerror or "it cannot be read"
        except (msgspec.DecodeError, UnicodeDecodeError):
            problem = "it is damaged"
        self._refuse(problem, "delete it, and it is written anew")

    def _refuse(self, problem: str, advice: str) -> None:
        if problem and self._own:
            raise ParameterError(f"timings are kept in {self.path}: {problem}; {advice}")

    def get(self, name: str) -> Rates | None:
        """Return the rates of a name, or None."""
        stored = self._rates.get(name)
        if stored is None:
            return None
        rates: dict[Any, float] = {}
        for key, seconds in stored.items():
            role, _, unit = key.partition("/")
            rates[role, unit] = seconds
        return rates

    def put(self, name: str, rates: Rates) -> None:
        """Remember the rates of a name; `save` writes them."""
        self._rates[name] = {f"{role}/{unit}": value for (role, unit), value in rates.items()}
        self._changed = True

    def save(self) -> None:
        """Write the file anew, if there are new rates.

        Raises:
            ParameterError: the folder that was given cannot be written to.
        """
        if not self._changed:
            return
        problem, draft = "", None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number, draft = tempfile.mkstemp(prefix=".rates-", dir=self.path.parent)
            with os.fdopen(number, "wb") as file:
                file.write(msgspec.json.encode(self._rates))
            Path(draft).replace(self.path)
            self._changed = False
        except OSError as error:
            problem = error.strerror or "it cannot be written"
            if draft is not None:
                with suppress(OSError):
                    Path(draft).unlink()
        self._refuse(problem, "name a folder that can be written to")


def rates_name(fingerprint: str, subscriptions: int, topics: int | None) -> str:
    """Return the name of a matcher's rates, which depend on how many interests an event meets."""
    # Powers of two: a few more subscriptions change nothing.
    return f"{fingerprint}/{subscriptions.bit_length()}/{topics or 1}"
