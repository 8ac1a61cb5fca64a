"""The groups of prime order, by name.

- ``"secp256k1"``: `ccbps.algebra.curve`; about 128 bits of security. Needs ``ccbps[groups]``.
- ``"modp2048"``, ``"modp3072"``: `ccbps.algebra.modp`; about 112 and 128 bits of security. They
  need no other library and are 50 times slower.
- ``"toy64"``: `ccbps.algebra.modp`, for tests. Logarithms in it are easy.
"""

from __future__ import annotations

from typing import Final

from ccbps.algebra.curve import secp256k1_group
from ccbps.algebra.modp import MODULI, modp_group
from ccbps.algebra.prime_order import PrimeOrderGroup
from ccbps.checks import choice

GROUPS: Final = ("secp256k1", *MODULI)
"""Names of all groups."""


def prime_order_group(name: str) -> PrimeOrderGroup:
    """Return the group of a name, always the same object.

    Raises:
        ParameterError: there is no such group, or the library it needs is not installed.
    """
    return secp256k1_group() if choice("group", name, GROUPS) == "secp256k1" else modp_group(name)
