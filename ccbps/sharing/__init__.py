"""Secret sharing: n shares of a secret, of which any k reconstruct it and fewer tell nothing."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.sharing.checked import CheckedShamir as CheckedShamir
    from ccbps.sharing.prime import PrimeShamir as PrimeShamir
    from ccbps.sharing.shamir import Shamir as Shamir
    from ccbps.sharing.shamir import ss_join as ss_join
    from ccbps.sharing.shamir import ss_split as ss_split
    from ccbps.sharing.share import Share as Share
