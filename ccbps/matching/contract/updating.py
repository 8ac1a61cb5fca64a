"""What a key update must be, to bring interests from one broker's key to another's."""

from __future__ import annotations

from typing import TypeAlias

from ccbps.errors import KeyMismatchError
from ccbps.keys.role_key import KeyUpdate
from ccbps.wire import SERVER_BYTES

Names: TypeAlias = tuple[bytes, bytes, int]
"""A matcher's fingerprint, a key's id and its epoch."""


def check_update(token: KeyUpdate, old: Names, new: Names) -> None:
    """Raise KeyMismatchError unless an update leads from one broker's key to another's."""
    if not isinstance(token, KeyUpdate):
        raise KeyMismatchError(
            f"update takes what KeyServer.rotate returned, got {type(token).__name__}"
        )
    fingerprint, key_id, epoch = old
    if token.matcher != fingerprint or token.key_id[:SERVER_BYTES] != key_id[:SERVER_BYTES]:
        raise KeyMismatchError("the update belongs to another matcher or key server")
    data = token.export_secret_data()
    start = data.get("key"), data.get("from")
    data.clear()  # Tracebacks may show local variables.
    if start != (key_id.hex(), epoch):
        raise KeyMismatchError(
            f"the update is for interests of epoch {start[1]}; this broker's are of epoch {epoch}, "
            "or of another key"
        )
    if new != (fingerprint, token.key_id, token.epoch):
        raise KeyMismatchError(
            f"the update leads to epoch {token.epoch}; the new broker is of epoch {new[2]}, or of "
            "another key"
        )
