"""Keys that follow from a seed, so that an attack on real messages can be repeated."""

from __future__ import annotations

from ccbps.arrays import Randomness
from ccbps.ciphers.row_mac import ROW_KEY_BYTES
from ccbps.keys.role_key import KEY_ID_BYTES, RoleKey
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.scheme import ServerScheme


def seeded_server(matcher: ServerScheme, randomness: Randomness) -> KeyServer:
    """Make a key server whose master key is drawn from a source of random bytes.

    Args:
        matcher: matcher with a key server.
        randomness: source of random bytes, such as the method ``bytes`` of a NumPy generator.
    """
    data = {**matcher.generate(randomness), "macs": randomness(ROW_KEY_BYTES).hex()}
    key = RoleKey.make(matcher.digest, "server", randomness(KEY_ID_BYTES), 0, data)
    return KeyServer(matcher, key)
