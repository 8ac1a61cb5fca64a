"""What a broker of PaillierRangeMatch recovers, by `ccbps.attacks.schemes.paillier_range`.

A broker has its key (n, mu, and T modulo n), and the messages. The attacks use nothing else, but
for what their names say; what they find is compared with the secrets at the end. The modulus is a
toy for speed only: no attack but the fourth's last check would be slower than a few products.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ccbps import Bool, Category, Schema, UInt
from ccbps.algebra.modular import integer, inverse, lcm, powmod
from ccbps.attacks.schemes import paillier_range as attack
from ccbps.attacks.schemes.views import codes_of, watch
from ccbps.ciphers.nabeel import NabeelParameters
from ccbps.ciphers.paillier import PaillierSecretKey
from ccbps.errors import ParameterError
from ccbps.matching.broken import PaillierRangeMatch
from tests.support.refusals import refused

TOY = 512
SCHEMA = Schema(salary=UInt(20))
VALUES = [40_000, 40_000, 41_500, 39_999, 500_000, 3, 1_048_575]
RANGES = [(30_000, 50_000), (41_000, 90_000), (7, 12), (0, 77), (100_000, 100_000)]
MATCHER = PaillierRangeMatch(SCHEMA, TOY, toy=True)
SERVER = MATCHER.key_server()


TEXTS = [f"salary BETWEEN {low} AND {high}" for low, high in RANGES]
BOUNDS = [bound for low, high in RANGES for bound in (low, high + 1)]
VIEW = watch(MATCHER, {"salary": VALUES}, TEXTS, SERVER)
COMPARER = attack.comparer_of(VIEW)
SEEN = attack.read_column(VIEW.events, 0, TOY)


def bounds_of(texts: list[str]) -> list[int]:
    """Messages of low and of high + 1, range after range."""
    bodies = watch(MATCHER, [], texts, SERVER).interests
    return attack.read_column(bodies.reshape(2 * len(texts), -1), 0, TOY)


# For checking what was found, no more.
R_P = integer(SERVER.key.export_secret_data()["attributes"][0]["r"])


def test_a1_two_publications_alone_show_their_scaled_difference() -> None:
    """From two events and no subscription at all: r_p (a - b) up to less than r_p."""
    for b, y in zip(VALUES, SEEN, strict=True):
        for a, recovered in zip(VALUES, attack.divide(COMPARER, SEEN, y), strict=True):
            assert abs(recovered - R_P * (a - b)) < R_P
            if abs(a - b) > 1:  # so it also shows which of the two is greater
                assert (recovered > 0) == (a > b)
    # Without r_p: ratios of differences of values, from four events, to a relative 10^-3.
    (salaries,) = attack.divide(COMPARER, [SEEN[4]], SEEN[0])
    (others,) = attack.divide(COMPARER, [SEEN[2]], SEEN[5])
    assert int(salaries) / int(others) == pytest.approx(460_000 / 41_497, rel=1e-3)


def test_a2_two_subscriptions_show_their_exact_scaled_difference() -> None:
    """From two bounds: r_p (s - s') with no error; so equality and order of all bounds."""
    bounds = bounds_of(TEXTS)
    scaled = attack.divide(COMPARER, bounds, bounds[0])
    assert scaled == [R_P * (BOUNDS[0] - bound) for bound in BOUNDS]


def test_a3_a_greatest_common_divisor_of_bounds_is_the_factor() -> None:
    """From three bounds or more: r_p, which every client holds as a secret."""
    assert attack.find_factor(COMPARER, bounds_of(TEXTS)) == R_P


def test_a4_generator_n_plus_1_gives_the_factors_of_n() -> None:
    """From n and mu where g_p = n + 1: lambda = 1 / mu mod n, then p and q, then every message."""
    secret = PaillierSecretKey.generate(TOY, toy=True)
    n, n2 = secret.public.n, secret.public.n2
    p, q = secret.primes()
    mu = inverse((powmod(n + 1, lcm(p - 1, q - 1), n2) - 1) // n, n)  # what the broker is given

    order = inverse(mu, n)
    assert order == lcm(p - 1, q - 1)
    assert attack.factor_modulus(n, order) == {p, q}
    # A broker who has p and q decrypts Paillier ciphertexts of this key, not only comparisons.
    refused(ParameterError, "would give away lambda", NabeelParameters, secret, n + 1)
    # With the random g_p of `generate`, 1 / mu is no exponent of the group.
    safe = NabeelParameters.generate(TOY, toy=True)
    assert powmod(2, inverse(safe.mu, safe.n), safe.n) != 1


def test_a5_one_known_value_shows_all_values_to_within_one() -> None:
    """From the messages, and the value of one event: every event's value, and every bound."""
    bounds = bounds_of(TEXTS)
    factor = attack.find_factor(COMPARER, bounds)
    recovered = attack.read_nearly(COMPARER, SEEN, factor, VALUES[0])
    assert max(abs(a - b) for a, b in zip(recovered, VALUES, strict=True)) <= 1
    assert recovered[0] == VALUES[0]
    # A bound has no noise: it is read exactly, and from one exact bound, so are the values.
    assert attack.read_exactly(COMPARER, SEEN, bounds, VALUES[0]) == (VALUES, BOUNDS)


def test_no_known_value_is_needed_where_somebody_does_not_care() -> None:
    """From the messages alone: an unconstrained attribute has bounds 0 and 2^20; all is read."""
    values, bounds = attack.read_open_ends(COMPARER, SEEN, bounds_of(["TRUE"]), 2**20)
    assert bounds == [0, 2**20]
    assert values == VALUES


def test_bounds_open_at_one_end_are_the_ends_of_the_domain() -> None:
    """From the messages alone: `salary < c` begins at 0, `salary > d` goes on to the end. So the
    spread of all bounds is the domain; every bound and every value is read."""
    limits, least = [77, 40_000, 600_000], [5, 900_000]
    texts = [f"salary < {c}" for c in limits] + [f"salary > {d}" for d in least]
    values, bounds = attack.read_open_ends(COMPARER, SEEN, bounds_of(texts), 2**20)
    assert bounds == [0, 77, 0, 40_000, 0, 600_000, 6, 2**20, 900_001, 2**20]
    assert values == VALUES
    refused(
        ParameterError,
        "both ends",
        attack.read_open_ends,
        COMPARER,
        SEEN,
        bounds_of(["salary BETWEEN 10 AND 20", "salary BETWEEN 7 AND 90"]),
        2**20,
    )


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
    view, plain = watch(matcher, records, []), codes_of(schema, records)
    for place, name in enumerate(schema):
        values = attack.read_column(view.events, place, TOY)
        read = attack.read_filled_domain(attack.comparer_of(view), values, schema[name].size)
        wrong = abs(read - plain[:, place])
        assert wrong.max() <= 1
        assert (wrong == 0).mean() > (0.5 if name == "level" else 0.995)


def test_differences_beyond_doubles_are_read() -> None:
    """As with moduli of some thousand bits."""
    levels = [7, 0, 15, 3, 8]
    comparer = SimpleNamespace(n2=97, offsets=lambda messages, by: [m << 1100 for m in messages])
    assert attack.read_filled_domain(comparer, levels, 16).tolist() == levels  # type: ignore[arg-type]
