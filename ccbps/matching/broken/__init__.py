"""Schemes with a known attack that reads the data: for study and comparison, never for use."""

from ccbps.matching.broken.access_tree import AccessTreeMatch
from ccbps.matching.broken.additive_mask import AdditiveMaskMatch
from ccbps.matching.broken.aspe import AspeMatch
from ccbps.matching.broken.paillier import PaillierRangeMatch
from ccbps.matching.broken.prefix import PrefixMatch

__all__ = ["AccessTreeMatch", "AdditiveMaskMatch", "AspeMatch", "PaillierRangeMatch", "PrefixMatch"]
