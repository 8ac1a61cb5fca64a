"""Sizes of filters, and their rates of false positives.

*Erratum*, [N1] Table 1: a Bloom filter for 400,000 keys at a rate of 0.1 is printed as 0.47 MiB. By
the report's own formula it has 1,917,012 bits, 0.23 MiB.

Sources: [N1] section 2.1 for Bloom filters; Fan, Andersen, Kaminsky and Mitzenmacher, CoNEXT 2014,
for cuckoo filters.
"""

from __future__ import annotations

from math import ceil, log

from ccbps.checks import whole


def bloom_size(capacity: int, rate: float) -> int:
    """Return the bits of a Bloom filter: m = -n ln p / (ln 2)^2, rounded up.

    Example:
        >>> from ccbps.filters import bloom_size
        >>> bloom_size(400_000, 0.1)
        1917012
    """
    return max(1, ceil(-capacity * log(rate) / log(2) ** 2))


def bloom_hashes(capacity: int, size: int) -> int:
    """Return the bits of each key: k = m / n ln 2, rounded, at least 1."""
    return max(1, round(size / capacity * log(2)))


def bloom_rate(size: int, hashes: int, keys: int) -> float:
    """Return the rate of false positives among so many keys: (1 - (1 - 1/m)^(k n))^k."""
    return float((1 - (1 - 1 / size) ** (hashes * keys)) ** hashes)


def cuckoo_rate(slots: int, fingerprint_bytes: int, load: float) -> float:
    """Return the rate of false positives: 1 - (1 - 1 / F)^(2 b a), F fingerprints, load a."""
    fingerprints = 256**fingerprint_bytes - 1
    return float(1 - (1 - 1 / fingerprints) ** (2 * slots * load))


def cuckoo_buckets(capacity: int, slots: int) -> int:
    """Return the buckets for so many keys, at a load that is nearly always reached.

    Example:
        >>> from ccbps.filters import cuckoo_buckets
        >>> cuckoo_buckets(380_000, 4)
        100000
    """
    load = {1: 0.45, 2: 0.84, 3: 0.91}.get(whole("slots", slots, 1), 0.95)
    return max(1, ceil(capacity / slots / load - 1e-9))
