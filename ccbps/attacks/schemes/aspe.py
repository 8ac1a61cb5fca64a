"""ASPE: scalar products keep linear relations, and codes are whole numbers.

The cipher is linear, so known plaintexts give its key. The matcher multiplies every ciphertext by a
secret factor, against which one more known event is enough. Without known plaintexts, cross-ratios
of products do not depend on key and factors. Of the values that fit them, only the right ones are
whole codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import gcd
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.residues import Residues
from ccbps.arrays import Bools, Bytes, Randomness, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import (
    View,
    codes_of,
    guess_by_hits,
    make_broken,
    read_answers,
    read_hits,
    watch,
)
from ccbps.checks import whole
from ccbps.ciphers.aspe import ModularAspe, RealAspe
from ccbps.errors import ParameterError
from ccbps.matching.broken.aspe import AspeMatch
from ccbps.predicates import Schema, UInt

Array = NDArray[Any]
Readings = tuple[Array, set[tuple[int, int]]]
"""Codes of events, and bounds as (attribute, doubled bound)."""

MOST_GAP: Final = 48
"""One more than the greatest distance of neighbouring values that is guessed."""


def read_ciphertexts(matcher: AspeMatch, bodies: Bytes) -> Array:
    """Return the ciphertexts of bodies, shape (bodies, ciphertexts, *ciphertext)."""
    shape, primes = matcher.layout()
    numbers = np.ascontiguousarray(bodies).view("<u4" if primes else "<f8")
    return numbers.reshape(len(bodies), -1, *shape)


def read_bounds(matcher: AspeMatch, interests: Bytes) -> Array:
    """Return the ciphertexts of all bounds, without corners, shape (bounds, *ciphertext)."""
    bounds = read_ciphertexts(matcher, interests)[:, :-2]
    return bounds.reshape(-1, *bounds.shape[2:])


# -- known plaintext ------------------------------------------------------------------------------


def solve_real_key(points: Reals, seen: Reals) -> RealAspe:
    """Return the key of the real cipher from d + 1 known points.

    Args:
        points: points in the clear, shape (d + 1, d).
        seen: ciphertexts of these points.

    Example:
        >>> import os
        >>> import numpy as np
        >>> from ccbps.attacks.schemes.aspe import solve_real_key
        >>> from ccbps.ciphers.aspe import RealAspe
        >>> key, points = RealAspe.generate(2, os.urandom), np.array([[1, 2], [4, 0], [0, 5]])
        >>> recovered = solve_real_key(points, key.encrypt_points(points))
        >>> np.allclose(recovered.matrix, key.matrix)
        True
    """
    lifted = np.column_stack([points, -0.5 * (points**2).sum(axis=1)])
    return RealAspe(np.linalg.solve(lifted, seen))


def solve_modular_key(ring: Residues, differences: Array, seen: Reals) -> ModularAspe:
    """Return the key of the modular cipher from d + 1 known differences.

    Args:
        ring: arithmetic modulo P.
        differences: rows (w, -c) in the clear, integers, shape (d + 1, d + 1).
        seen: ciphertexts of these differences with factors 1.
    """
    return ModularAspe(ring, ring.matmul(ring.inverse(ring.of(differences)), seen))


def solve_events(
    matcher: AspeMatch, view: View, known: Array
) -> tuple[Array, set[tuple[int, int]]]:
    """Read all events and bounds, from the codes of the first d + 2 events or more.

    Every known event gives d + 1 equations for the key, and adds one unknown, its factor.

    Args:
        matcher: matcher of the messages.
        view: view of the broker.
        known: codes of the first events, shape (known, d).

    Returns:
        codes of all events, shape (events, d), and all bounds as (attribute, doubled bound): a
        lower bound c is 2c - 1, an upper one 2c + 1.

    Raises:
        ParameterError: the known events do not determine the key.
    """
    plain = np.column_stack([2 * known, np.ones(len(known), dtype=np.int64)])
    events = read_ciphertexts(matcher, view.events)[:, 0]
    bounds = read_bounds(matcher, view.interests)
    solve = _solve_residues if matcher.exact else _solve_reals
    return solve(plain, events, bounds)


def _solve_reals(plain: Array, events: Array, bounds: Array) -> Readings:
    n, scales = plain.shape[1], np.maximum(1, abs(plain).max(axis=0))  # unknowns of about one size
    system = _equations(plain / scales, events[: len(plain)])
    _, sizes, basis = np.linalg.svd(system)
    if len(sizes) < system.shape[1] - 1 or sizes[system.shape[1] - 2] < 1e-12 * sizes[0]:
        raise ParameterError("the known events leave more than one key; more of them are needed")
    key = basis[-1][: n * n].reshape(n, n) / scales
    read = np.linalg.solve(key, events.T).T
    rows = bounds @ key
    places = np.argmax(abs(rows[:, :-1]), axis=1)
    values = np.rint(-rows[:, -1] / np.take_along_axis(rows, places[:, None], axis=1)[:, 0])
    doubled = np.rint(read[:, :-1] / read[:, -1:]).astype(np.int64)
    return doubled // 2, set(zip(places.tolist(), values.astype(int).tolist(), strict=True))


def _solve_residues(plain: Array, events: Array, bounds: Array) -> Readings:
    # One prime is enough: values are smaller.
    ring, (prime, *_) = Residues(1), Residues(1).primes
    n = plain.shape[1]
    narrow, columns = _without_blinds(events[:, 0], bounds[:, 0], n, ring)
    seen = narrow[: len(plain)].astype(np.int64).astype(object)
    solution = _null_vector(_equations(plain.astype(object), seen).tolist(), prime)
    key = ring.reduced(np.array(solution[: n * n], dtype=float).reshape(1, n, n))
    read = (ring.inverse(key)[0] @ narrow.T).T.astype(np.int64).astype(object) % prime
    doubled = np.array(
        [row[:-1] * pow(int(row[-1]), -1, prime) % prime for row in read], dtype=np.int64
    )
    recovered = set()
    for row in (columns @ key[0] % prime).astype(np.int64).tolist():
        place = next(at for at, value in enumerate(row) if value)
        value = -row[-1] * pow(row[place], -1, prime) % prime
        recovered.add((place, value - prime if value > prime // 2 else value))
    return doubled // 2, recovered


def _equations(plain: Array, seen: Array) -> Array:
    """Return the system A (q, 1) = factor * Q for known q and Q.

    The unknowns are the rows of A, one after the other, and the factors.
    """
    m, n = seen.shape
    system = np.zeros((m * n, n * n + m), dtype=seen.dtype)
    for i in range(m):
        for row in range(n):
            system[i * n + row, row * n : (row + 1) * n] = plain[i]
            system[i * n + row, n * n + i] = -seen[i, row]
    return system


def _null_vector(rows: list[list[int]], prime: int) -> list[int]:
    """Return the vector that a matrix of nullity 1 takes to 0, modulo a prime."""
    pivots: list[int] = []
    for column in range(len(rows[0])):
        done = len(pivots)
        pivot = next((r for r in range(done, len(rows)) if rows[r][column] % prime), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        scale = pow(rows[done][column], -1, prime)
        rows[done] = [value * scale % prime for value in rows[done]]
        for r, row in enumerate(rows):
            if r != done and row[column] % prime:
                by = row[column]
                rows[r] = [(x - by * y) % prime for x, y in zip(row, rows[done], strict=True)]
        pivots.append(column)
    free = set(range(len(rows[0]))) - set(pivots)
    if len(free) != 1:
        raise ParameterError("the known events leave more than one key; more of them are needed")
    out = [0] * len(rows[0])
    out[min(free)] = 1
    for row, column in zip(rows, pivots, strict=False):
        out[column] = -row[min(free)] % prime
    return out


def _without_blinds(seen: Array, bounds: Array, n: int, ring: Residues) -> tuple[Array, Array]:
    """Return events and bounds of n numbers with the products that the ciphertexts have.

    The dimensions that randomize exact messages do not contribute to products. So the table of
    products has rank n, and is a product of two narrow tables.
    """
    queries, columns = (part.astype(float)[None] for part in (seen, bounds))
    products = ring.matmul(queries, columns.transpose(0, 2, 1))
    for chosen in combinations(range(2 * n - 2), n):
        try:
            middle = ring.inverse(products[:, :n, chosen])
        except ParameterError:  # two bounds of one attribute too many
            continue
        right = ring.matmul(middle, products[:, :n])
        return products[0][:, chosen] % ring.primes[0], right[0].T % ring.primes[0]
    raise ParameterError("the bounds of the first subscription do not span all dimensions")


# -- ciphertexts alone ----------------------------------------------------------------------------


def group_bounds(bounds: Array) -> list[tuple[Array, Array]]:
    """Group bounds by attribute: those of one attribute are linearly dependent.

    Args:
        bounds: ciphertexts of bounds over the real numbers, shape (bounds, d + 1).

    Returns:
        for each attribute the places of its bounds, and a basis of their plane, shape (d + 1, 2).
    """
    bounds = bounds / np.linalg.norm(bounds, axis=1)[:, None]
    left, groups = np.arange(len(bounds)), []
    while len(left) > 2:
        best = np.zeros(len(left), dtype=np.bool_)
        for other in left[1:]:
            _, sizes, basis = np.linalg.svd(bounds[[left[0], other]])
            inside = np.linalg.norm(bounds[left] @ basis[2:].T, axis=1) < 1e-9
            # Two of nearly one value span nothing; two of different attributes, few others.
            if sizes[1] > 1e-3 and inside.sum() > best.sum():
                best = inside
        if not best.any():
            break
        members, left = left[best], left[~best]
        groups.append((members, np.linalg.svd(bounds[members])[2][:2].T))
    return groups


def _bracket(a: Array, b: Array) -> Array:
    """Return the determinants of points of a line; in a cross-ratio their scales cancel."""
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


def read_whole_numbers(events: Array, *others: Array) -> list[Array]:
    """Read the codes of an attribute's events, up to a shift and a reflection.

    The adversary guesses the two distances of three neighbouring values, and cross-ratios give all
    other values. A guess is right where all of them are whole numbers.

    Args:
        events: points of a projective line, shape (events, 2).
        others: further points, whose positions need not be whole numbers.

    Returns:
        the places of the events, and of each of `others`; nothing if no three neighbours are near
        enough.
    """
    angles = np.arctan2(events[:, 1], events[:, 0]) % np.pi
    order = np.argsort(angles)
    distinct = events[order[np.diff(angles[order], prepend=-1) > 1e-11]]
    near, far = (grid.reshape(-1) for grid in np.mgrid[1:MOST_GAP, 1:MOST_GAP].astype(float))
    least_first = np.argsort(near + far, kind="stable")  # multiples of a right guess are no news
    near, far = near[least_first], far[least_first]
    some = distinct[:: max(1, len(distinct) // 24)]

    def read(at: int, points: Array, near: Any, far: Any) -> Array:
        a, b, c = distinct[at], distinct[at + 1], distinct[at + 2]
        top, below = _bracket(points, a) * _bracket(b, c), _bracket(points, c) * _bracket(b, a)
        # z (z_b - z_c) / ((z - z_c) z_b) = top / below with z_a = 0
        return np.asarray(top * near * (near + far) / (top * near + below * far))

    for at in range(len(distinct) - 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            z = read(at, some, near[:, None], far[:, None])
            good = np.flatnonzero((abs(z - np.rint(z)) < 0.02).all(axis=1))
        for guess in good:
            solution = read(at, events, near[guess], far[guess])
            different = len(np.unique(np.rint(solution))) == len(distinct)
            if different and (abs(solution - np.rint(solution)) < 0.1).all():
                return [read(at, points, near[guess], far[guess]) for points in (events, *others)]
    return []


def read_by_cross_ratios(matcher: AspeMatch, view: View) -> Iterator[tuple[Array, Array]]:
    """Read events and bounds from ciphertexts alone, attribute by attribute.

    Values count from the least one of all events, so they are the codes themselves where an event
    has code 0.

    Args:
        matcher: matcher of the messages, over the real numbers.
        view: view of the broker; its key is not used.

    Yields:
        the values of all events, and the closed bounds in ascending order, half-way between two
        values. Open ends are drawn outside of the domain, and so recognizable.
    """
    seen = read_ciphertexts(matcher, view.events)[:, 0]
    corners = read_ciphertexts(matcher, view.interests)[:, -2:]
    bounds = read_bounds(matcher, view.interests)
    for members, basis in group_bounds(bounds):
        coefficients = bounds[members] @ basis
        zeros = np.stack([-coefficients[:, 1], coefficients[:, 0]], axis=1)
        low, high = corners[:, 0] @ basis, corners[:, 1] @ basis
        if not (places := read_whole_numbers(seen @ basis, zeros, low, high)):
            continue
        values, ends, low, high = places
        direction = np.sign(np.median(high - low))  # a box's lower corner is sent first
        values, ends = direction * values, direction * ends
        first, size = values.min(), round(np.ptp(values)) + 1
        closed = abs(ends - first - size / 2) <= size
        yield np.rint(values - first), np.sort(ends[closed] - first)


def read_noisy_values(products: Array, size: int) -> Array:
    """Read values whose codes have secret noise of up to a quarter of a step.

    Of all readings with the least and the greatest event at the domain's ends, the right one has
    its values concentrated around whole numbers.

    Args:
        products: products of the events with two bounds, shape (events, 2).
        size: number of values of the domain.

    Returns:
        whole values up to a shift, or their mirror image.
    """
    # Angles have their only jump at infinity, outside of all values.
    count = len(products)
    angles = np.sort(np.arctan2(products[:, 0], products[:, 1]) % np.pi)
    jump = (np.argmax(np.diff(angles, append=angles[0] + np.pi)) + 1) % count
    turned = np.arctan2(products[:, 0], products[:, 1]) - angles[jump]
    line = np.tan(turned % np.pi - (angles[jump - 1] - angles[jump]) % np.pi / 2)
    unit = (line - line.min()) / np.ptp(line)
    best, solution = 0.0, np.zeros(count)
    for width in size - 1 + np.linspace(-0.5, 0.5, 5):
        for bend in np.exp(np.linspace(-4, 4, 32 * size)):
            values = width * unit / (unit + bend * (1 - unit))
            phase = np.exp(2j * np.pi * values).mean()
            if abs(phase) > best:
                best, solution = abs(phase), np.rint(values - np.angle(phase) / (2 * np.pi))
    return solution


def divide_factors(matcher: AspeMatch, view: View) -> Array:
    """Return the differences of all events and bounds, from exact ciphertexts alone.

    A product is the difference of doubled code and bound, times a factor of the event and one of
    the bound. Greatest common divisors of rows and columns are these factors.

    Args:
        matcher: exact matcher of the messages.
        view: view of the broker; its key is not used.

    Returns:
        Python integers, shape (events, bounds): differences up to their signs.
    """
    _, primes = matcher.layout()
    ring = Residues(len(primes))
    queries = read_ciphertexts(matcher, view.events)[:, 0].astype(float).transpose(1, 0, 2)
    bounds = read_bounds(matcher, view.interests).astype(float).transpose(1, 2, 0)
    products = ring.integers(ring.matmul(ring.reduced(queries.copy()), ring.reduced(bounds.copy())))
    of_events = np.array([gcd(*row) for row in products], dtype=object)
    of_bounds = np.array([gcd(*column) for column in products.T], dtype=object)
    return np.asarray(products // (of_events[:, None] * of_bounds))


# -- attacks --------------------------------------------------------------------------------------

TALLIES: Final = Schema(small=UInt(6), middle=UInt(10), large=UInt(16))


def _draw(
    events: int, subscriptions: int, seed: int
) -> tuple[dict[str, Array], list[str], Randomness]:
    """Draw events, the first two at the ends of all domains, and subscriptions."""
    random = np.random.default_rng(whole("seed", seed, 0))
    sizes = [TALLIES[name].size for name in TALLIES]
    codes = np.stack([random.integers(0, size, events) for size in sizes])
    codes[:, 0], codes[:, 1] = 0, np.array(sizes) - 1
    limits = np.sort([random.integers(1, size - 1, (subscriptions, 2)) for size in sizes], axis=2)
    texts = [
        f"small >= {low[0]} AND middle BETWEEN {low[1]} AND {high[1]} AND large <= {high[2]}"
        for low, high in limits.transpose(1, 2, 0)
    ]
    return dict(zip(TALLIES, codes, strict=True)), texts, random.bytes


def _compare(values: Array, codes: Array) -> tuple[float, float]:
    """Return the share of values that are right, and the median error as a share of the domain."""
    error = abs(values - codes)
    sizes = [TALLIES[name].size for name in TALLIES]
    return float(np.mean(error < 0.5)), float(np.median(error / sizes))


def _guess(shown: dict[str, Bools], codes: Array, known: int) -> tuple[float, float]:
    """Compare guesses from what is shown of events, of which the first ones are known."""
    guesses = [
        guess_by_hits(shown[name][: len(codes)], values[:known])
        for name, values in zip(TALLIES, codes.T, strict=True)
    ]
    return _compare(np.stack(guesses, axis=1), codes[known:])


@attack(
    title="Cross-ratios of ASPE ciphertexts give every value and every bound",
    goal="confidentiality",
    adversary="a broker with messages and the schema, without a key or a known value",
    defence="`TagMatch` or `FormulaMatch`; their brokers are even given one event in ten",
)
def break_aspe(*, events: int = 300, subscriptions: int = 30, seed: int = 11) -> Outcome:
    """Read all events and bounds of three attributes of 6, 10 and 16 bits from their ciphertexts.

    Events reach both ends of every domain. A value counts where it is read exactly. The brokers of
    the other matchers see the same events and subscriptions, know one event in ten, and take for
    every other event the mean of the known ones that look most like it.

    Args:
        events: number of events, 30 or more.
        subscriptions: number of subscriptions, 2 or more.
        seed: seed of events, subscriptions and keys.

    Example:
        >>> from ccbps.attacks import break_aspe
        >>> outcome = break_aspe(events=300, subscriptions=10)
        >>> outcome["values read"].undefended
        1.0
        >>> outcome["values read"].defended < 0.5
        True
    """
    whole("events", events, 30, 3000)
    records, texts, randomness = _draw(events, whole("subscriptions", subscriptions, 2, 300), seed)
    matcher = make_broken(AspeMatch, TALLIES)
    view, codes = watch(matcher, records, texts, randomness=randomness), codes_of(TALLIES, records)
    limits = [TALLIES.parse(text).box().ranges for text in texts]
    sizes = [TALLIES[name].size for name in TALLIES]

    def read(count: int) -> tuple[float, float, float]:
        """Return shares of values and bounds read from the first events, and the median error."""
        seen, bounds = View(view.key, view.events[:count], view.interests), 0.0
        plain = np.tile(np.array(sizes) / 2, (count, 1))  # a guess, for what is not read
        for values, ends in read_by_cross_ratios(matcher, seen):
            size = int(values.max()) + 1
            if size not in sizes:
                continue
            place = sizes.index(size)
            plain[:, place] = values
            ranges = np.array([box[TALLIES.names[place]] for box in limits])
            lows, highs = ranges[ranges[:, 0] > 0, 0], ranges[ranges[:, 1] < size - 1, 1]
            truth = np.sort(np.concatenate([lows - 0.5, highs + 0.5]))
            if len(ends) == len(truth):
                bounds += float(np.mean(abs(ends - truth) < 0.1)) / len(sizes)
        return *_compare(plain, codes[:count]), bounds

    hits = read_hits(TALLIES, records, texts)
    answers = dict.fromkeys(TALLIES, read_answers(TALLIES, records, texts))
    counts = tuple(sorted({count for count in (20, 40, 80, 160, 500) if count < events} | {events}))
    readings = [read(count) for count in counts]
    tagged, answered = (
        [_guess(shown, codes[:count], count // 10) for count in counts] for shown in (hits, answers)
    )
    share, error, bounds = readings[-1]
    return Outcome(
        (
            Figure("values read", "", share, tagged[-1][0]),
            Figure("values read, FormulaMatch as defence", "", share, answered[-1][0]),
            Figure("bounds read", "", bounds),
            Figure("median error", "of the domain", error, tagged[-1][1]),
            Figure(
                "median error, FormulaMatch as defence", "of the domain", error, answered[-1][1]
            ),
        ),
        Curve(
            "events that the broker has",
            "values read exactly (share)",
            counts,
            {
                "without defence": tuple(share for share, *_ in readings),
                "with TagMatch": tuple(share for share, _ in tagged),
                "with FormulaMatch": tuple(share for share, _ in answered),
            },
        ),
    )


@attack(
    title="Known events give the key of ASPE",
    goal="confidentiality",
    adversary="a broker with messages that knows some events, and no key",
    defence="`TagMatch` in place of `AspeMatch`",
    source="[CGB10]",
)
def solve_aspe(*, events: int = 200, subscriptions: int = 10, seed: int = 5) -> Outcome:
    """Solve for the key of d = 3 attributes from d + 2 known events.

    Each known event gives d + 1 equations, with a factor of its own that is unknown as well.

    Args:
        events: number of events, 10 or more.
        subscriptions: number of subscriptions.
        seed: seed of events, subscriptions and keys.

    Example:
        >>> from ccbps.attacks import solve_aspe
        >>> outcome = solve_aspe()
        >>> outcome["known events until all are read"].undefended
        5.0
    """
    records, texts, randomness = _draw(
        whole("events", events, 10, 20_000), whole("subscriptions", subscriptions, 1, 300), seed
    )
    # The first two are at the ends of all domains: no points in general position.
    records = {name: np.roll(values, -2) for name, values in records.items()}
    codes, counts = codes_of(TALLIES, records), tuple(range(1, len(TALLIES) + 5))
    hits = read_hits(TALLIES, records, texts)
    lines: dict[str, list[float]] = {}
    for label, exact in (("without defence", False), ("without defence, exact numbers", True)):
        matcher = make_broken(AspeMatch, TALLIES, exact=exact)
        view = watch(matcher, records, texts, randomness=randomness)
        for known in counts:
            try:
                read, _ = solve_events(matcher, view, codes[:known])
            except ParameterError:
                read = np.full_like(codes, -1)
            share = np.mean(read[known:] == codes[known:])
            lines.setdefault(label, []).append(float(share))
    lines["with TagMatch"] = [_guess(hits, codes, known)[0] for known in counts]
    real, modular, tagged = lines.values()
    until = [
        min((n for n, share in zip(counts, line, strict=True) if share == 1), default=np.inf)
        for line in (real, modular)
    ]
    name, enough = "known events until all are read", len(TALLIES) + 2
    return Outcome(
        (
            Figure(name, "", float(until[0]), expected=enough),
            Figure(f"{name}, exact numbers", "", float(until[1]), expected=enough),
            Figure("values read", "", real[-1], tagged[-1], 1.0),
        ),
        Curve(
            "known events",
            "values of other events read exactly (share)",
            counts,
            {label: tuple(line) for label, line in lines.items()},
        ),
    )
