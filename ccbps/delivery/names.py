"""Names of keys. A name says itself whose key it is, so that a key means the same members under
every strategy, also one that is set up anew after a crash.

- `p`, a subscriber's number, 4 bytes: the key that it shares with the broker.
- `g`, a packed group: the whole group's key.
- `s`, numbers of members, 4 bytes each, the last one repeated: a small set's key. All sets of one
  clustering have names of one length.
- `h`, a level and a node, 1 and 4 bytes: the key of a node of the binary tree over all numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.arrays import Bytes
from ccbps.errors import ParameterError

_NUMBER = 4


def personal(subscriber: int) -> bytes:
    """The name of the key that a subscriber shares with the broker."""
    return b"p" + subscriber.to_bytes(_NUMBER)


def group_name(group: Bytes) -> bytes:
    """The name of a whole group's key."""
    return b"g" + group.tobytes()


def set_name(members: Sequence[int], most: int) -> bytes:
    """The name of the key of a set of at least one and at most `most` subscribers, ascending."""
    last = members[-1].to_bytes(_NUMBER)
    numbers = b"".join([one.to_bytes(_NUMBER) for one in members])
    return b"s" + numbers + last * (most - len(members))


def node_name(level: int, node: int) -> bytes:
    """The name of the key of a node of the tree, level 0 being the subscribers."""
    return b"h" + level.to_bytes(1) + node.to_bytes(_NUMBER)


def member_mask(name: bytes, subscribers: int) -> int:
    """Whose key it is, bit i for subscriber i; numbers beyond the last one are nobody's.

    Raises:
        ParameterError: there are no such names.
    """
    kind, rest, everybody = name[:1], name[1:], (1 << subscribers) - 1
    mask = 0
    if kind == b"p" and len(rest) == _NUMBER:
        mask = _bit(rest, subscribers)
    elif kind == b"g" and len(rest) == -(-subscribers // 8):
        mask = int.from_bytes(rest, "little") & everybody
    elif kind == b"s" and not len(rest) % _NUMBER:
        for at in range(0, len(rest), _NUMBER):
            mask |= _bit(rest[at : at + _NUMBER], subscribers)
    elif kind == b"h" and len(rest) == 1 + _NUMBER and rest[0] <= subscribers.bit_length():
        first = int.from_bytes(rest[1:]) << rest[0]
        if first < subscribers:
            mask = (1 << (1 << rest[0])) - 1 << first & everybody
    if not mask:
        raise ParameterError(f"no key of {subscribers} subscribers has the name {name.hex()}")
    return mask


def _bit(number: bytes, subscribers: int) -> int:
    one = int.from_bytes(number)
    return 1 << one if one < subscribers else 0
