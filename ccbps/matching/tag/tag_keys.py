"""Keys of TagMatch, by group of subscribers and by epoch.

    matcher = TagMatch(schema, groups=8)
    server = matcher.key_server()
    alice = server.subscriber_key("alice", group=3)         # makes subscriptions of group 3 only
    feed = server.publisher_key("feed", groups=[1, 3])      # makes events for groups 1 and 3
    server.rotate()                                         # keys of the next epoch from now on

What stands for a prefix in one group or epoch is unrelated to what stands for it in another. An
event has tags for every group of the matcher; those of groups that the publisher has no key of are
random numbers. So a client and the broker together read events that reach the client's own group,
and subscriptions of that group; with events that reach several groups they learn of the
subscriptions of all of these, by their hits.

All keys of an epoch are derived from its root by HMAC-SHA-256, and so is the next epoch's root:
servers restored from one saved key rotate to the same keys, and from the key of an epoch no earlier
one is found. Subscriptions must be sent anew; until they are, a broker of the old epoch can serve
the existing ones, with events made under the old key.

Hazard: the same key makes subscriptions of a group and its events; whoever holds it can forge
either.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from ccbps.ciphers.word_prf import KEY_BYTES
from ccbps.errors import ParameterError

ROOT_BYTES: Final = 32


def group_of(name: str, groups: int) -> int:
    """The group of a subscriber for whom no other is given: a hash of the name."""
    return int.from_bytes(sha256(name.encode()).digest(), "big") % groups


def checked_groups(wanted: Any, groups: int) -> list[int]:
    """Numbers of groups, ascending, each once; all of them for None.

    Raises:
        ParameterError: there is no such group, or none is named.
    """
    if wanted is None:
        return list(range(groups))
    if not isinstance(wanted, Iterable):
        raise ParameterError(f"groups must be numbers of groups, such as [0], got {wanted!r}")
    chosen = list(wanted)
    for group in chosen:
        if type(group) is not int or not 0 <= group < groups:
            raise ParameterError(
                f"a group is a number from 0 to {groups - 1}, got {group!r}; "
                "TagMatch(..., groups=n) makes n groups"
            )
    if not chosen:
        raise ParameterError("groups must name at least one group, got none")
    return sorted(set(chosen))


def _derived(root: str, label: str, size: int = KEY_BYTES) -> str:
    return hmac.digest(bytes.fromhex(root), label.encode(), "sha256")[:size].hex()


def next_root(root: str) -> str:
    """The root of the next epoch."""
    return _derived(root, "next epoch", ROOT_BYTES)


def publisher_data(root: str, groups: Iterable[int]) -> dict[str, Any]:
    """What a publisher holds: the public permutation, and a key for each of its groups."""
    words = {str(group): _derived(root, f"words {group}") for group in groups}
    return {**broker_data(root), "words": words}


def subscriber_data(root: str, group: int) -> dict[str, Any]:
    """What a subscriber holds: its group's key, and what it fills up with."""
    return {name: _derived(root, f"{name} {group}") for name in ("words", "filling")}


def broker_data(root: str) -> dict[str, Any]:
    """What everybody may know."""
    return {"permutation": _derived(root, "permutation")}
