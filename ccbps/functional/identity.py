"""IBE: encryption to a name, whose owner gets the key from the authority (Boneh and Franklin).

Master key s, public key P = g2^s, key of an identity H(id)^s. A message is C = g2^x, and the
element of GT is ``e(H(id), P)^x = e(H(id)^s, C)``. A message does not show its identity.

Source: [BF01]; the re-encryption check makes it their FullIdent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ccbps.algebra.pairing import Target
from ccbps.checks import text
from ccbps.functional.scheme import Draw, FunctionalScheme, Points, Shape
from ccbps.predicates import Schema


class Ibe(FunctionalScheme):
    """Identity-based encryption: keys and messages are for names, which are texts.

    Example:
        >>> from ccbps.functional import Authority, Ibe
        >>> authority = Authority.generate(Ibe())
        >>> key = authority.key("bob")
        >>> key.open(authority.public.seal(b"119.50", "bob"))
        b'119.50'
    """

    name: ClassVar[str] = "identity-based"
    holdings_type: ClassVar[Any] = str
    label_type: ClassVar[Any] = type(None)

    def __init__(self, *, pairing: str = "bls12-381") -> None:
        super().__init__(None, pairing=pairing)

    @classmethod
    def made_from(cls, schema: Schema | None, pairing: str) -> Ibe:
        return cls(pairing=pairing)

    def holdings(self, given: Any, epoch: int | None) -> str:
        # Without an epoch a colon, too: otherwise the name "7:bob" would be bob in epoch 7.
        name = text("an identity", given, 1 << 16)
        return f"{'' if epoch is None else epoch}:{name}"

    target = holdings

    def label(self, target: Any) -> None:
        return None

    def target_of(self, label: Any, holdings: Any) -> Any:
        return holdings

    def public_shape(self) -> tuple[int, int, int]:
        return 0, 1, 0

    def key_shape(self, holdings: Any) -> Shape:
        return 1, 0

    def message_shape(self, label: Any) -> Shape:
        return 0, 1

    def setup(self, draw: Draw) -> tuple[Any, Points, Sequence[Target]]:
        (s,) = draw(1)
        return s, ((), (self.group.power(self.group.g2, s),)), ()

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        return (self.group.power(self.hashed(holdings), master),), ()

    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        group, (x,) = self.group, draw(1)
        points = (), (group.power(group.g2, x),)
        return points, lambda: group.product([(group.power(self.hashed(target), x), public[1][0])])

    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        return [lambda: self.group.product([(key[0][0], points[1][0])])]
