"""Secret sharing: n shares of a secret, of which any k reconstruct it and fewer tell nothing."""

from ccbps.sharing.checked import CheckedShamir
from ccbps.sharing.prime import PrimeShamir
from ccbps.sharing.shamir import Shamir, ss_join, ss_split
from ccbps.sharing.share import Share

__all__ = ["CheckedShamir", "PrimeShamir", "Shamir", "Share", "ss_join", "ss_split"]
