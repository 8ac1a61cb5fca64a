"""Schemes with a known attack that reads the data: for study and comparison, never for use."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.matching.broken.access_tree import AccessTreeMatch as AccessTreeMatch
    from ccbps.matching.broken.additive_mask import AdditiveMaskMatch as AdditiveMaskMatch
    from ccbps.matching.broken.aspe import AspeMatch as AspeMatch
    from ccbps.matching.broken.paillier import PaillierRangeMatch as PaillierRangeMatch
    from ccbps.matching.broken.prefix import PrefixMatch as PrefixMatch
