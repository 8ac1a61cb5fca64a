"""Primitives of `cryptography` and `hashlib`, loaded on first use: importing these takes a while.

For modules that are imported with the roles of a matcher. Modules that are loaded when they are
needed import `cryptography` and `hashlib` themselves.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from hashlib import blake2b as blake2b
    from hashlib import sha256 as sha256
    from hmac import compare_digest as compare_digest

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey as Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey as X25519PrivateKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PublicKey as X25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers import Cipher as Cipher
    from cryptography.hazmat.primitives.ciphers import CipherContext as CipherContext
    from cryptography.hazmat.primitives.ciphers.algorithms import AES128 as AES128
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256 as AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR as CTR
    from cryptography.hazmat.primitives.ciphers.modes import ECB as ECB
    from cryptography.hazmat.primitives.hashes import SHA256 as SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF as HKDF
