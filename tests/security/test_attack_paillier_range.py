"""What a broker of PaillierRangeMatch recovers: five attacks, each from what a broker has.

A broker has its key (n, mu, and T modulo n), and the messages. The attacks use nothing else, but
for what their names say; what they find is compared with the secrets at the end. The modulus is a
toy for speed only: no attack but the fourth's last check would be slower than a few products.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from ccbps import Bool, Category, Schema, UInt
from ccbps.algebra.modular import gcd, integer, inverse, lcm, powmod, rows_from
from ccbps.ciphers.nabeel import NabeelComparer, NabeelParameters
from ccbps.ciphers.paillier import PaillierSecretKey
from ccbps.errors import ParameterError
from ccbps.matching.broken import PaillierRangeMatch
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY

TOY = 512
SCHEMA = Schema(salary=UInt(20))
VALUES = [40_000, 40_000, 41_500, 39_999, 500_000, 3, 1_048_575]
RANGES = [(30_000, 50_000), (41_000, 90_000), (7, 12), (0, 77), (100_000, 100_000)]
MATCHER = PaillierRangeMatch(SCHEMA, TOY, toy=True)
SERVER = MATCHER.key_server()


class View:
    """What the broker holds, parsed: E_p of the events, E_s of low and of high + 1."""

    def __init__(self) -> None:
        publisher = MATCHER.publisher(SERVER.publisher_key())
        subscriber = MATCHER.subscriber(SERVER.subscriber_key("alice"))
        texts = [f"salary BETWEEN {low} AND {high}" for low, high in RANGES]
        size, key = TOY // 4, SERVER.broker_key().export_secret_data()
        events = publisher.encode({"salary": VALUES})[:, BODY]
        interests = subscriber.encode(texts)[:, BODY]
        self.values = rows_from(events)
        self.bounds = rows_from(interests.reshape(-1, size))
        self.n, self.mu = integer(key["n"]), integer(key["mu"])
        self.n2 = self.n * self.n

    def quotient(self, a: int, b: int) -> int:
        """What a / b reads as, centred: T is gone, and mu takes kappa away."""
        x = (a * inverse(b, self.n2) % self.n2 - 1) // self.n * self.mu % self.n
        return x - self.n if x > self.n // 2 else x


VIEW = View()
# For checking what was found, no more.
R_P = integer(SERVER.key.export_secret_data()["attributes"][0]["r"])


def bounds_of(view: View) -> list[int]:
    """r_p (s_i - s_0) of every bound, exactly: E_s carries -s and no noise."""
    return [-view.quotient(bound, view.bounds[0]) for bound in view.bounds]


def factor_of(view: View) -> int:
    """r_p: what all scaled differences of bounds have in common."""
    return reduce(gcd, bounds_of(view))


def test_a1_two_publications_alone_show_their_scaled_difference() -> None:
    """From two events and no subscription at all: r_p (a - b) up to less than r_p."""
    for a, x in zip(VALUES, VIEW.values, strict=True):
        for b, y in zip(VALUES, VIEW.values, strict=True):
            recovered = VIEW.quotient(x, y)
            assert abs(recovered - R_P * (a - b)) < R_P
            if abs(a - b) > 1:  # so it also shows which of the two is greater
                assert (recovered > 0) == (a > b)
    # Without r_p: ratios of differences of values, from four events, to a relative 10^-3.
    salaries = VIEW.quotient(VIEW.values[4], VIEW.values[0])
    others = VIEW.quotient(VIEW.values[2], VIEW.values[5])
    assert int(salaries) / int(others) == pytest.approx(460_000 / 41_497, rel=1e-3)


def test_a2_two_subscriptions_show_their_exact_scaled_difference() -> None:
    """From two bounds: r_p (s - s') with no error; so equality and order of all bounds."""
    plain = [bound for low, high in RANGES for bound in (low, high + 1)]
    assert bounds_of(VIEW) == [R_P * (bound - plain[0]) for bound in plain]


def test_a3_a_greatest_common_divisor_of_bounds_is_the_factor() -> None:
    """From three bounds or more: r_p, which every client holds as a secret."""
    assert factor_of(VIEW) == R_P


def test_a4_generator_n_plus_1_gives_the_factors_of_n() -> None:
    """From n and mu where g_p = n + 1: lambda = 1 / mu mod n, then p and q, then every message."""
    secret = PaillierSecretKey.generate(TOY, toy=True)
    n, n2 = secret.public.n, secret.public.n2
    p, q = secret.primes()
    mu = inverse((powmod(n + 1, lcm(p - 1, q - 1), n2) - 1) // n, n)  # what the broker is given

    order = inverse(mu, n)
    assert order == lcm(p - 1, q - 1)
    odd = order
    while odd % 2 == 0:
        odd //= 2
    recovered = factors(n, order, odd)
    assert recovered == {p, q}
    # A broker who has p and q decrypts Paillier ciphertexts of this key, not only comparisons.
    refused(ParameterError, "would give away lambda", NabeelParameters, secret, n + 1)
    # With the random g_p of `generate`, 1 / mu is no exponent of the group.
    safe = NabeelParameters.generate(TOY, toy=True)
    assert powmod(2, inverse(safe.mu, safe.n), safe.n) != 1


def factors(n: int, order: int, odd: int) -> set[int]:
    """The primes of n from a multiple of the group's exponent: square roots of 1."""
    for base in range(2, 200):
        root = powmod(base, odd, n)
        exponent = odd
        while root not in (1, n - 1) and exponent < order:
            square, exponent = root * root % n, 2 * exponent
            if square == 1:
                p = gcd(root - 1, n)
                return {p, n // p}
            root = square
    raise AssertionError("no base gave a root")


def test_a5_one_known_value_shows_all_values_to_within_one() -> None:
    """From the messages, and the value of one event: every event's value, and every bound."""
    first_value = VALUES[0]
    factor = factor_of(VIEW)
    recovered = [
        first_value + nearest(VIEW.quotient(x, VIEW.values[0]), factor) for x in VIEW.values
    ]
    assert max(abs(a - b) for a, b in zip(recovered, VALUES, strict=True)) <= 1
    assert recovered[0] == first_value
    # d of the known event is r_p (known - s) + r_q with 0 <= r_q < r_p: the bounds follow exactly.
    comparer = NabeelComparer(VIEW.n, VIEW.mu)
    bounds = [first_value - comparer.difference(VIEW.values[0], s) // factor for s in VIEW.bounds]
    assert bounds == [bound for low, high in RANGES for bound in (low, high + 1)]
    # And with one exact bound, values are exact as well, for the same reason.
    exact = [comparer.difference(x, VIEW.bounds[0]) // factor + bounds[0] for x in VIEW.values]
    assert exact == VALUES


def nearest(scaled: int, factor: int) -> int:
    return int((2 * scaled + factor) // (2 * factor))


def test_no_known_value_is_needed_where_somebody_does_not_care() -> None:
    """From the messages alone: an unconstrained attribute has bounds 0 and 2^20; all is read."""
    subscriber = MATCHER.subscriber(SERVER.subscriber_key("bob"))
    full = subscriber.encode(["TRUE"])[:, BODY].reshape(-1, TOY // 4)
    low, high = rows_from(full)
    comparer = NabeelComparer(VIEW.n, VIEW.mu)
    factor, rest = divmod(-VIEW.quotient(high, low), 2**20)
    assert rest == 0 and factor == R_P
    recovered: list[Any] = [comparer.difference(x, low) // factor for x in VIEW.values]
    assert np.array_equal(np.array(recovered, dtype=np.int64), VALUES)


def test_bounds_open_at_one_end_are_the_ends_of_the_domain() -> None:
    """From the messages alone: `salary < c` begins at 0, `salary > d` goes on to the end. So the
    spread of all bounds is the domain; every bound and every value is read."""
    subscriber = MATCHER.subscriber(SERVER.subscriber_key("carol"))
    limits, least = [77, 40_000, 600_000], [5, 900_000]
    texts = [f"salary < {c}" for c in limits] + [f"salary > {d}" for d in least]
    bounds = rows_from(subscriber.encode(texts)[:, BODY].reshape(-1, TOY // 4))
    scaled = [-VIEW.quotient(bound, bounds[0]) for bound in bounds]
    factor = reduce(gcd, scaled)
    lowest = min(scaled)
    assert (max(scaled) - lowest) // factor == 2**20  # so ends are where the domain's are
    recovered = [(at - lowest) // factor for at in scaled]
    assert recovered == [0, 77, 0, 40_000, 0, 600_000, 6, 2**20, 900_001, 2**20]
    comparer, low = NabeelComparer(VIEW.n, VIEW.mu), bounds[scaled.index(lowest)]
    values = [comparer.difference(x, low) // factor for x in VIEW.values]
    assert np.array_equal(np.array(values, dtype=np.int64), VALUES)


def test_events_alone_are_read_where_they_fill_the_domain() -> None:
    """From 5,000 events and no subscription: r_p is their spread by the size of the domain. What
    is read is off by one for values whose noise is near to 0 or to r_p."""
    schema = Schema(halted=Bool(), issue=Category(["AAPL", "GOOG", "IBM"]), level=UInt(8))
    rng = np.random.default_rng(3)
    records = {
        "halted": rng.random(5000) < 0.3,
        "issue": [["AAPL", "GOOG", "IBM"][i] for i in rng.integers(0, 3, 5000)],
        "level": rng.integers(0, 256, 5000),
    }
    matcher = PaillierRangeMatch(schema, TOY, toy=True)
    server = matcher.key_server()
    messages = matcher.publisher(server.publisher_key()).encode(records)[:, BODY]
    key = server.broker_key().export_secret_data()
    comparer = NabeelComparer(integer(key["n"]), integer(key["mu"]))
    plain = schema.encode(records)
    for place, name in enumerate(schema):
        values = rows_from(messages[:, place * TOY // 4 : (place + 1) * TOY // 4])
        back = inverse(values[0], comparer.n2)
        scaled = np.array([int(comparer.difference(x, back)) for x in values], dtype=float)
        share = (scaled - scaled.min()) / np.ptp(scaled)
        recovered = np.minimum(np.floor(share * schema[name].size), schema[name].size - 1)
        wrong = abs(recovered - plain.codes[name][0].astype(float))
        assert wrong.max() <= 1
        assert (wrong == 0).mean() > (0.5 if name == "level" else 0.995)
