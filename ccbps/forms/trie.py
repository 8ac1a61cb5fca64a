"""Strings as leaves of a trie: subscriptions to prefixes, suffixes and whole strings.

A node of the trie is the text of the bytes so far, one character each, so that it covers the nodes
that it is a prefix of, as in `ccbps.forms.decomposition`. A mark ends a whole string. The tree for
suffixes is that of the reversed strings.

A string of more than `most` bytes is cut to its first (or last) `most` bytes, without the mark. So
long strings share a leaf, and a subscriber filters again.

Not protected: the node is the string.
Source: [TKR14].
"""

from __future__ import annotations

from typing import Final

from ccbps.checks import text, whole
from ccbps.errors import ParameterError
from ccbps.forms.decomposition import Node

END: Final = "\u0100"
"""The mark behind a whole string; no byte has this character."""


def trie_depth(most: int) -> int:
    """Return the depth of the trie of strings of at most so many bytes."""
    return whole("most", most, 1, unit="bytes") + 1


def trie_leaf(value: str, most: int, *, suffixes: bool = False) -> Node:
    """Return the leaf of a string.

    Example:
        >>> from ccbps.forms.trie import trie_leaf, trie_node
        >>> trie_leaf("quotes", 8).startswith(trie_node("quo", 8))
        True
        >>> leaf = trie_leaf("quotes", 8, suffixes=True)
        >>> leaf.startswith(trie_node("tes", 8, suffixes=True))
        True
        >>> trie_leaf("quotes", 4) == trie_leaf("quota", 4)     # cut
        True

    Args:
        value: any string.
        most: greatest number of bytes that count, in UTF-8.
        suffixes: True for the tree that finds suffixes.
    """
    content = _characters(value, suffixes)
    return content + END if len(content) <= whole("most", most, 1) else content[:most]


def trie_node(part: str, most: int, *, suffixes: bool = False) -> Node:
    """Return the node of the strings that begin, or end, with a part.

    Raises:
        ParameterError: the part is longer than `most` bytes.
    """
    content = _characters(part, suffixes)
    if len(content) > whole("most", most, 1):
        raise ParameterError(
            f"part must have {most} bytes or less, which are all that count, got {len(content)}"
        )
    return content


def _characters(value: str, suffixes: bool) -> str:
    content = (value and text("a string", value)).encode().decode("latin-1")
    return content[::-1] if suffixes else content
