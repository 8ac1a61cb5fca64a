"""Groups of permutations of five points, with bulk operations on long sequences."""

from ccbps.algebra.alternating import A5
from ccbps.algebra.group import S5, Bits, Bulk, Group
from ccbps.arrays import Ranks

__all__ = ["A5", "S5", "Bits", "Bulk", "Group", "Ranks"]
