"""Pairings: groups G1, G2 and GT of prime order with a bilinear map."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.algebra.pairing.curve import pairing as pairing
    from ccbps.algebra.pairing.groups import Pair as Pair
    from ccbps.algebra.pairing.groups import Pairing as Pairing
    from ccbps.algebra.pairing.groups import Point as Point
    from ccbps.algebra.pairing.groups import Target as Target
