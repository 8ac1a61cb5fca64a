"""Keys that are so many random bytes, and one line of text."""

from __future__ import annotations

from typing import ClassVar, Self

from ccbps.keys.confine import confined
from ccbps.keys.secret import SecretBytes
from ccbps.keys.text_form import KINDS, damaged, other_kind, read_key, write_key


class PlainKey(SecretBytes):
    """Base of such keys. Subclasses say what stands in front of the text, one of `KINDS`."""

    text_kind: ClassVar[str]
    __slots__ = ()

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return write_key(self.text_kind, self._secret)

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is another text (which is not shown).
        """
        kind, secret = read_key(text)
        if kind != cls.text_kind:
            raise other_kind(kind, KINDS[cls.text_kind])
        if len(secret) != cls.length:
            raise damaged(kind)
        return cls(secret)
