"""Integers modulo n: powers, inverses, products, fixed-base tables, primes. All use of GMP is here.

Conventions: arguments may be `int` or the result of `integer`; results are of the latter type. It
computes, compares and hashes like an `int`, but is not an instance of `int`: call ``int(x)`` before
JSON, NumPy or pickle see it. Bytes are big-endian and of a fixed width.

Hazard: only `powmod_secret` runs in time independent of its exponent's value (GMP's mpz_powm_sec;
its running time shows the exponent's length). Everything else is not constant time. `FixedBase`
reads a table at places that depend on the exponent: on a machine shared with an adversary its
secret exponents leak through the cache. Python wipes no memory.
Source: fixed-base windows [BGMW92]; simultaneous inversion [M87].
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import gmpy2  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Randomness
from ccbps.checks import Printable, whole
from ccbps.errors import ParameterError

_ROUNDS: Final = 40
"""Rounds of GMP's test: Baillie-PSW and 16 times Miller-Rabin. No known composite passes it."""


def integer(value: int | str) -> int:
    """Convert an int, or hexadecimal text, to an integer that computes fast."""
    if isinstance(value, str):
        return gmpy2.mpz(value, 16)  # type: ignore[no-any-return]
    return gmpy2.mpz(value)  # type: ignore[no-any-return]


def powmod(base: int, exponent: int, modulus: int) -> int:
    """Return base^exponent mod modulus. A negative exponent needs an invertible base.

    Raises:
        ParameterError: the modulus is not positive, or the exponent is negative and the base is not
            invertible.
    """
    _positive(modulus)
    if exponent < 0:
        base, exponent = inverse(base, modulus), -exponent
    return gmpy2.powmod(base, exponent, modulus)  # type: ignore[no-any-return]


def powmod_secret(base: int, exponent: int, modulus: int) -> int:
    """Return base^exponent mod modulus, in time independent of the exponent's value.

    Takes about 1.3 times as long as `powmod`.

    Raises:
        ParameterError: the modulus is not odd and positive, or the exponent is negative.
    """
    _positive(modulus)
    if not modulus & 1:
        raise ParameterError("powmod_secret needs an odd modulus; use powmod for an even one")
    if exponent < 0:
        raise ParameterError("powmod_secret needs an exponent of 0 or more, got a negative one")
    if not exponent:
        return integer(1 % modulus)
    return gmpy2.powmod_sec(base, exponent, modulus)  # type: ignore[no-any-return]


def powmod_many(bases: Sequence[int], exponent: int, modulus: int) -> list[int]:
    """Raise each base to one exponent, at least 0. Other Python threads run meanwhile."""
    _positive(modulus)
    if exponent < 0:
        raise ParameterError("powmod_many needs an exponent of 0 or more, got a negative one")
    return gmpy2.powmod_base_list(list(bases), exponent, modulus)  # type: ignore[no-any-return]


def inverse(a: int, modulus: int) -> int:
    """Return the b in 0..modulus - 1 with a b = 1 mod modulus.

    Raises:
        ParameterError: there is no such b. The message does not show a, which may be secret.
    """
    _positive(modulus)
    try:
        return gmpy2.invert(a, modulus)  # type: ignore[no-any-return]
    except ZeroDivisionError:
        pass
    raise ParameterError("not invertible: the value and the modulus have a common factor")


def inverse_many(values: Sequence[int], modulus: int) -> list[int]:
    """Invert all values, with a single inversion, and three products for each value.

    Raises:
        ParameterError: a value is not invertible.
    """
    before, running = [], integer(1)
    for value in values:
        before.append(running)
        running = running * value % modulus
    back = inverse(running, modulus)
    out = [running] * len(before)
    for place in range(len(before) - 1, -1, -1):
        out[place] = back * before[place] % modulus
        back = back * values[place] % modulus
    return out


def product(values: Iterable[int], modulus: int) -> int:
    """Multiply all values modulo `modulus`. The empty product is 1."""
    _positive(modulus)
    level = list(values)
    while len(level) > 1:
        odd = level.pop() if len(level) % 2 else None
        level = [a * b % modulus for a, b in zip(level[::2], level[1::2], strict=True)]
        if odd is not None:
            level.append(odd)
    return integer(level[0] if level else 1) % modulus


def gcd(a: int, b: int) -> int:
    """Return the greatest common divisor."""
    return gmpy2.gcd(a, b)  # type: ignore[no-any-return]


def lcm(a: int, b: int) -> int:
    """Return the least common multiple."""
    return gmpy2.lcm(a, b)  # type: ignore[no-any-return]


def jacobi(a: int, n: int) -> int:
    """Return the Jacobi symbol (a / n) for an odd positive n. For a prime n, squares have 1.

    Raises:
        ParameterError: n is even or not positive.
    """
    if n < 1 or not n & 1:
        raise ParameterError("a Jacobi symbol needs an odd positive n")
    return gmpy2.jacobi(a, n)  # type: ignore[no-any-return]


class FixedBase(Printable):
    """Powers of one base: a table of base^(d 2^(w i)), and one product for each w-bit digit d.

    Args:
        base: an integer.
        modulus: modulus of the powers, at least 1.
        bits: largest length of an exponent in bits.
        window: bits of a digit, 1 to 16. The table has ceil(bits / window) 2^window entries.
    """

    __slots__ = ("_rows", "bits", "modulus", "window")

    def __init__(self, base: int, modulus: int, bits: int, window: int = 8) -> None:
        _positive(modulus)
        self.bits, self.window = whole("bits", bits, 1), whole("window", window, 1, 16)
        self.modulus = n = integer(modulus)
        power = integer(base) % n
        self._rows: list[list[int]] = []
        for start in range(0, bits, window):
            row = [integer(1) % n]
            for _ in range((1 << min(window, bits - start)) - 1):
                row.append(row[-1] * power % n)
            power = row[-1] * power % n
            self._rows.append(row)

    def __repr__(self) -> str:
        return f"<FixedBase of {self.bits} bits, windows of {self.window}>"

    def power(self, exponent: int) -> int:
        """Return base^exponent.

        Raises:
            ParameterError: the exponent is negative or has more than `bits` bits.
        """
        if exponent < 0 or exponent.bit_length() > self.bits:
            raise ParameterError(f"the exponent must be in 0..2^{self.bits} - 1")
        n, out, number = self.modulus, None, int(exponent)
        digits: Iterable[int]
        if self.window == 8:
            digits = number.to_bytes(-(-self.bits // 8), "little")
        else:
            mask = (1 << self.window) - 1
            digits = [number >> start & mask for start in range(0, self.bits, self.window)]
        for digit, row in zip(digits, self._rows, strict=True):
            if digit:
                out = row[digit] if out is None else out * row[digit] % n
        return integer(1) % n if out is None else out

    def powers(self, exponents: Iterable[int]) -> list[int]:
        """Raise the base to each exponent."""
        return [self.power(exponent) for exponent in exponents]


# -- drawing ------------------------------------------------------------------------------------


def random_below(n: int, randomness: Randomness = os.urandom) -> int:
    """Draw a number uniformly from 0..n - 1, by rejection.

    Raises:
        ParameterError: n is not positive.
    """
    _positive(n)
    bits = (n - 1).bit_length()
    width = -(-bits // 8)
    while True:
        drawn = from_bytes(randomness(width)) >> (8 * width - bits)
        if drawn < n:
            return drawn


def random_unit(n: int, randomness: Randomness = os.urandom) -> int:
    """Draw a number uniformly from those in 1..n - 1 that are coprime to n, for n > 1."""
    if n < 2:
        raise ParameterError("random_unit needs a modulus of at least 2")
    while True:
        drawn = random_below(n, randomness)
        if gcd(drawn, n) == 1:
            return drawn


def is_prime(n: int) -> bool:
    """Return whether n is a probable prime, by a test that no known composite passes."""
    return bool(n > 1 and gmpy2.is_prime(gmpy2.mpz(n), _ROUNDS))


def is_safe_prime(p: int) -> bool:
    """Return whether p and (p - 1) / 2 are both prime."""
    return p > 4 and p & 1 == 1 and is_prime(p >> 1) and is_prime(p)


def random_prime(bits: int, randomness: Randomness = os.urandom) -> int:
    """Draw a uniform prime of exactly `bits` bits.

    From 3 bits on its two highest bits are ones, so that the product of two such primes has exactly
    twice the bits.

    Raises:
        ParameterError: `bits` is below 2.
    """
    if whole("bits", bits, 2) == 2:
        return integer(2) + random_below(2, randomness)
    top = 3 << (bits - 2)
    while True:
        drawn = random_below(1 << (bits - 2), randomness) | top | 1
        if is_prime(drawn):
            return drawn


# -- bytes --------------------------------------------------------------------------------------


def to_bytes(value: int, width: int) -> bytes:
    """Convert a value to `width` bytes, most significant first.

    Raises:
        ParameterError: the value is negative or does not fit.
    """
    if value < 0 or value.bit_length() > 8 * width:
        raise ParameterError(f"the value does not fit {width} unsigned bytes")
    return int(value).to_bytes(width, "big")


def from_bytes(data: bytes) -> int:
    """Convert bytes, most significant first, to an integer."""
    return gmpy2.mpz(int.from_bytes(data, "big"))  # type: ignore[no-any-return]


def rows_to(values: Sequence[int], width: int) -> NDArray[np.uint8]:
    """Convert values to rows of bytes, shape (len(values), width).

    Raises:
        ParameterError: a value is negative or does not fit.
    """
    joined = b"".join([to_bytes(value, width) for value in values])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(values), width)


def rows_from(rows: NDArray[np.uint8]) -> list[int]:
    """Convert rows of bytes, shape (count, width), to integers."""
    data, width = np.ascontiguousarray(rows).tobytes(), rows.shape[1]
    return [from_bytes(data[at : at + width]) for at in range(0, len(rows) * width, width)]


def _positive(modulus: Any) -> None:
    if modulus < 1:
        raise ParameterError("the modulus must be positive")
