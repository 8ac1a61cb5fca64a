"""Groups of permutations of five points, with bulk operations on long sequences."""

from ccbps.algebra.alternating import A5
from ccbps.algebra.group import Bits, Bulk, Group
from ccbps.algebra.permutations import S5
from ccbps.arrays import Ranks

__all__ = ["A5", "S5", "Bits", "Bulk", "Group", "Ranks"]
