"""Groups of permutations of five points, with bulk operations on long sequences."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.algebra.alternating import A5 as A5
    from ccbps.algebra.group import S5 as S5
    from ccbps.algebra.group import Bits as Bits
    from ccbps.algebra.group import Bulk as Bulk
    from ccbps.algebra.group import Group as Group
    from ccbps.arrays import Ranks as Ranks
