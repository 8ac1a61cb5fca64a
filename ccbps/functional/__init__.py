"""Functional encryption: policies, attributes or names decide who can decrypt."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.functional.cp_abe import CpAbe as CpAbe
    from ccbps.functional.hidden_vectors import HiddenVectors as HiddenVectors
    from ccbps.functional.identity import Ibe as Ibe
    from ccbps.functional.inner_product import InnerProducts as InnerProducts
    from ccbps.functional.keys import Authority as Authority
    from ccbps.functional.keys import PublicKey as PublicKey
    from ccbps.functional.keys import UserKey as UserKey
    from ccbps.functional.kp_abe import KpAbe as KpAbe
    from ccbps.functional.scheme import FunctionalScheme as FunctionalScheme
