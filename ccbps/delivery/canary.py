"""Canaries: publications that must match a subscription, among others that look alike.

Publisher and subscriber share a seed, which says which numbers are canaries. Under these the
publisher publishes records that match the subscription. A broker that drops deliveries, or flips
answers before it knows them, cannot tell canaries from other publications. If it takes away a share
d of the matches, and a share c of the publications are canaries, it has been found out after n
publications with a probability of 1 - (1 - c d)^n.

A false match needs no canary: the subscriber opens the payload and sees it.

Hazard: a broker that sees answers learns which records always match the same subscriptions. Take
canaries that differ as much as other records do, such as past records that matched.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike

from ccbps.arrays import Bools
from ccbps.checks import instance, number
from ccbps.errors import ParameterError
from ccbps.keys.secret import Confined
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.used_rounds import as_rounds

SHARE: Final = 0.02


class Canary(Confined):
    """The canaries that a publisher and a subscriber agreed on.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.delivery import Canary
        >>> seed = SharedSeed.generate()
        >>> publisher, subscriber = Canary(seed, share=0.1), Canary(seed, share=0.1)
        >>> due = publisher.due(range(1000)).nonzero()[0].tolist()    # of these, records that match
        >>> subscriber.missing(due, 1000)
        ()
        >>> subscriber.missing(due[1:], 1000) == (due[0],)
        True

    Args:
        seed: seed that publisher and subscriber share, and the broker does not have.
        share: share of the publications that are canaries, above 0 and at most 1.

    Raises:
        ParameterError: an argument is another thing.
    """

    def __init__(self, seed: SharedSeed, *, share: float = SHARE) -> None:
        instance("seed", seed, SharedSeed)
        self._below = round(number("share", share, 0, 1) * 2**63)
        if not self._below:
            raise ParameterError(f"share must be above 0, got {share}")
        self._key = algorithms.AES128(seed.naming_key(b"canaries"))

    def due(self, numbers: ArrayLike) -> Bools:
        """Tell which publications are canaries, shape (count,).

        Args:
            numbers: numbers of publications.

        Raises:
            ParameterError: they are no numbers.
        """
        rows = as_rounds(numbers, None, "numbers")
        blocks = np.zeros((len(rows), 2), dtype="<u8")
        blocks[:, 0] = rows
        # Distinct blocks under a key of their own: a pseudorandom function.
        cipher = Cipher(self._key, modes.ECB()).encryptor()  # noqa: S305
        drawn = np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8")[::2]
        return np.asarray(drawn >> np.uint64(1) < np.uint64(self._below))

    def missing(self, received: Collection[int], published: int, first: int = 0) -> tuple[int, ...]:
        """Return the numbers of canaries that did not come; none for an honest broker.

        Args:
            received: numbers of the publications that came.
            published: number after the last one that was published and is not on its way any more.
            first: first number that was published after the subscription.
        """
        numbers = np.arange(first, published, dtype=np.uint64)
        due = numbers[self.due(numbers)].tolist()
        came = set(received)
        return tuple(one for one in due if one not in came)
