"""Canaries: publications that must match a subscription, or must not, among others that look alike.

Publisher and subscriber share a seed, from which both derive the numbers of the canaries. Under
these numbers the publisher publishes records that match the subscription. Under the numbers of
*decoys*, if there are any, it publishes records that do not match. A broker that drops deliveries,
or changes answers before it knows them, cannot tell canaries from other publications. If it
suppresses a share d of the matches, and a share c of the publications are canaries, it is detected
within n publications with probability 1 - (1 - c d)^n.

A subscriber that opens payloads sees false matches without canaries. Decoys are for subscribers
that count answers, or forward them unseen.

Hazards: a broker that sees answers learns which records always match the same subscriptions. Where
equal records have equal messages, it recognizes a canary that is repeated. Take canaries that
differ as much as other records do, such as past records that matched. Canaries add matches: at a
constant share, a broker that sees answers still sees when there are more
(`ccbps.attacks.attack_at_dawn`). Canaries in addition to the usual number of events are
conspicuous, so let canaries take the places of others at a constant rate. Other subscribers whose
interests match a canary get it, too: mark it inside the sealed payload.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike

from ccbps.arrays import Bools, Index, Words
from ccbps.checks import array, instance, number, whole
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
        seed: seed that publisher and subscriber share, secret from the broker.
        share: share of the publications that must match, above 0 and at most 1.
        decoys: share of the publications that must not match; together with `share` at most 1.

    Raises:
        ParameterError: an argument is of another type, or out of range.
    """

    def __init__(self, seed: SharedSeed, *, share: float = SHARE, decoys: float = 0.0) -> None:
        instance("seed", seed, SharedSeed)
        self._below = round(number("share", share, 0, 1) * 2**63)
        if not self._below:
            raise ParameterError(f"share must be above 0, got {share}")
        above = round(number("decoys", decoys, 0, 1) * 2**63)
        # Both are rounded, so that their sum may exceed 1 a little.
        self._from = max(2**63 - above, self._below)
        if share + decoys > 1:
            raise ParameterError(f"share and decoys must be at most 1, got {share} and {decoys}")
        self._key = algorithms.AES128(seed.naming_key(b"canaries"))

    def due(self, numbers: ArrayLike) -> Bools:
        """Tell which publications must match, shape (count,).

        Args:
            numbers: numbers of publications.

        Raises:
            ParameterError: they are no numbers.
        """
        return np.asarray(self._drawn(numbers)[:, 0] >> np.uint64(1) < np.uint64(self._below))

    def decoys(self, numbers: ArrayLike) -> Bools:
        """Tell which publications must not match, shape (count,).

        Args:
            numbers: numbers of publications.

        Raises:
            ParameterError: they are no numbers.
        """
        return np.asarray(self._drawn(numbers)[:, 0] >> np.uint64(1) >= np.uint64(self._from))

    def pick(self, numbers: ArrayLike, size: int) -> Index:
        """Choose the record of each canary from a list that both sides have, shape (count,).

        Args:
            numbers: numbers of publications.
            size: number of records of the list.

        Raises:
            ParameterError: they are no numbers, or there is no record.

        Example:
            >>> from ccbps import SharedSeed
            >>> from ccbps.delivery import Canary
            >>> seed = SharedSeed.generate()
            >>> publisher, subscriber = Canary(seed), Canary(seed)
            >>> bool((publisher.pick(range(9), 50) == subscriber.pick(range(9), 50)).all())
            True
        """
        drawn = self._drawn(numbers)[:, 1] % np.uint64(whole("size", size, 1))
        return np.asarray(drawn.astype(np.int64))

    def missing(self, received: Collection[int], published: int, first: int = 0) -> tuple[int, ...]:
        """Return the numbers of canaries that did not arrive; none for an honest broker.

        Args:
            received: numbers of the publications whose payloads arrived and were opened. Do not
                count others: a broker can invent numbers, and payloads that do not open.
            published: number after the last publication that should have arrived by now.
            first: first number that was published after the subscription.
        """
        numbers = np.arange(first, published, dtype=np.uint64)
        due = numbers[self.due(numbers)].tolist()
        came = set(received)
        return tuple(one for one in due if one not in came)

    def wrong(self, answers: Bools, first: int = 0) -> tuple[int, ...]:
        """Return the numbers of canaries and decoys with a wrong answer; none for an honest broker.

        Args:
            answers: match bit of each publication, shape (count,).
            first: number of the first one.

        Raises:
            ShapeError: `answers` has another type or shape.

        Example:
            >>> from ccbps import SharedSeed
            >>> from ccbps.delivery import Canary
            >>> canary = Canary(SharedSeed.generate(), share=0.1, decoys=0.1)
            >>> answers = canary.due(range(1000))
            >>> canary.wrong(answers)
            ()
            >>> len(canary.wrong(~answers)) == int((answers | canary.decoys(range(1000))).sum())
            True
        """
        bits = array("answers", answers, np.bool_, ("count",))
        numbers = np.arange(first, first + len(bits), dtype=np.uint64)
        wrong = (self.due(numbers) & ~bits) | (self.decoys(numbers) & bits)
        return tuple(numbers[wrong].tolist())

    def _drawn(self, numbers: ArrayLike) -> Words:
        """Return two words of each number that are uniform to whoever lacks the seed."""
        rows = as_rounds(numbers, None, "numbers")
        blocks = np.zeros((len(rows), 2), dtype="<u8")
        blocks[:, 0] = rows
        # Distinct blocks under a key of their own: a pseudorandom function.
        cipher = Cipher(self._key, modes.ECB()).encryptor()  # noqa: S305
        return np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(-1, 2)


def detection_chance(share: float, changed: float, publications: int) -> float:
    """Return the probability that canaries detect a dishonest broker.

    Args:
        share: share of the publications that are canaries (or decoys, against false matches).
        changed: share of their answers that the broker changes.
        publications: number of publications.

    Raises:
        ParameterError: a share is not from 0 to 1, or the number is negative.

    Example:
        >>> from ccbps.delivery import detection_chance
        >>> round(detection_chance(0.02, 0.1, 500), 2)
        0.63
    """
    seldom = number("share", share, 0, 1) * number("changed", changed, 0, 1)
    return float(1 - (1 - seldom) ** whole("publications", publications, 0))


def share_needed(changed: float, publications: int, chance: float = 0.99) -> float:
    """Return the share of canaries that detects a dishonest broker with a given probability.

    Args:
        changed: share of the answers of canaries that the broker changes.
        publications: number of publications until it should be detected.
        chance: probability of detection, below 1.

    Raises:
        ParameterError: no share suffices, or an argument is out of bounds.

    Example:
        >>> from ccbps.delivery import share_needed
        >>> round(share_needed(0.1, 500), 3)
        0.092
        >>> round(share_needed(0.1, 5000), 4)
        0.0092
    """
    count = whole("publications", publications, 1)
    seldom = -np.expm1(np.log1p(-number("chance", chance, 0, 1 - 1e-15)) / count)
    if seldom > number("changed", changed, 0, 1):
        raise ParameterError(
            f"publications must be more for a chance of {chance}: with {publications}, a broker "
            f"that changes {changed} of the answers is not found even if all are canaries"
        )
    return float(seldom / changed) if seldom else 0.0
