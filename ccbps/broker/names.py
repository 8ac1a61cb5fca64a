"""Names of clients, publishers and subscriptions."""

from __future__ import annotations

from typing import Final

from ccbps.errors import ParameterError

MOST_NAME: Final = 256
"""Bytes of names."""


def check_name(what: str, name: str) -> None:
    """Raises ParameterError if it is none: names stand in labels, and in topics of MQTT."""
    if (
        not isinstance(name, str)
        or not name.isprintable()  # so that it can be encoded
        or not 0 < len(name.encode()) <= MOST_NAME
        or set(name) & set("/+#$")
    ):
        raise ParameterError(
            f"{what} must be 1 to {MOST_NAME} bytes of printable text without / + # $, got {name!r}"
        )
