"""The groups of prime order there are, by name.

- ``"secp256k1"``: `ccbps.algebra.curve`; about 128 bits of security. Needs ``ccbps[groups]``.
- ``"modp2048"``, ``"modp3072"``: `ccbps.algebra.modp`; about 112 and 128 bits. They work wherever
  the package does, 50 times slower.
- ``"toy64"``: likewise, for tests. Anybody takes logarithms in it.
"""

from __future__ import annotations

from typing import Final

from ccbps.algebra.curve import secp256k1_group
from ccbps.algebra.modp import MODULI, modp_group
from ccbps.algebra.prime_order import PrimeOrderGroup
from ccbps.errors import ParameterError

GROUPS: Final = ("secp256k1", *MODULI)
"""Names `prime_order_group` knows."""


def prime_order_group(name: str) -> PrimeOrderGroup:
    """The group of that name, one object for each.

    Raises:
        ParameterError: no such group, or the library it needs is not installed.
    """
    if name == "secp256k1":
        return secp256k1_group()
    if name not in MODULI:
        raise ParameterError(f"group must be one of {', '.join(GROUPS)}; got {name!r}")
    return modp_group(name)
