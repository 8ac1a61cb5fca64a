"""Attacks on `ThreeBrokerMatch`: colluding brokers, and one broker if masks are missing or reused.

A bit is the sum of three shares, and broker i holds shares i and i + 1, numbers modulo 3. So two
brokers hold all three. Brokers send one another masked messages; without masks, or with masks that
are used twice, these reveal sums of events.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import whole
from ccbps.keys.plain_key import PARTIES
from ccbps.matching.three_brokers.matcher import ThreeBrokerMatch
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, expand
from ccbps.shares.masks import MaskStreams
from ccbps.shares.replicated import Evaluation, lanes, whole_vectors


def sum_of_shares(held: Mapping[int, tuple[Bytes, Bytes]]) -> Bytes:
    """Add up the distinct shares that some brokers hold.

    Args:
        held: shares i and i + 1 of each broker i that takes part.

    Returns:
        bits of the messages, if two brokers or more take part; otherwise uniform bits.
    """
    shares = {
        (broker + place) % PARTIES: share
        for broker, pair in held.items()
        for place, share in enumerate(pair)
    }
    return np.asarray(np.bitwise_xor.reduce([*shares.values()]))


def null_space(rows: Bytes) -> list[list[int]]:
    """Return sets of rows that add up to 0 modulo 2, one for each row that depends on others.

    Args:
        rows: rows of bits.
    """
    pivots: dict[int, tuple[int, int]] = {}
    sets = []
    for number, bits in enumerate(rows):
        value, chosen = int("".join(map(str, bits)), 2), 1 << number
        while value:
            top = value.bit_length()
            if top not in pivots:
                pivots[top] = value, chosen
                break
            value, chosen = value ^ pivots[top][0], chosen ^ pivots[top][1]
        else:
            sets.append([place for place in range(len(rows)) if chosen >> place & 1])
    return sets


def sums_from_lookups(
    x_0: Bytes, x_1: Bytes, y_1: Bytes, sent: Bools
) -> list[tuple[list[int], int]]:
    """Read sums of events from broker 1's bits for broker 0 in one lookup, without masks.

    Broker 1 sends x_1 (y_1 + y_2) + x_2 y_1. Broker 0 lacks y_2, which is multiplied by x_1. For
    sets of events whose x_1 add up to 0, the rest is the sum of x_2 y_1, and broker 0 has y_1.

    Args:
        x_0: share 0 of the vectors of events, shape (events, values of the digit).
        x_1: share 1 of them.
        y_1: share 1 of the table of an interest, shape (values of the digit,).
        sent: bits that broker 1 sends, shape (events,).

    Returns:
        sets of events, and for each the product of y_1 with the sum of their vectors, modulo 2.
    """
    sums = []
    for chosen in null_space(x_1):
        own = int(((x_0 ^ x_1)[chosen].astype(int) @ y_1).sum())
        known = int((x_1[chosen].astype(int) @ y_1).sum())
        sums.append((chosen, (int(sent[chosen].sum()) + known + own) % 2))
    return sums


@attack(
    title="Two of three brokers read every event",
    goal="confidentiality",
    adversary="brokers of `ThreeBrokerMatch` that pool their keys and what they receive",
    defence="operators who do not work together, one for each broker",
    source="[AFLNO16]",
)
def three_brokers_together(*, events: int = 50, bits: int = 16, seed: int = 1) -> Outcome:
    """Add up the shares of events that brokers hold.

    A broker alone has two of three shares, both uniform. Its best guess is right for half of the
    bits, and so for no event.

    Args:
        events: number of events, 1 or more.
        bits: number of bits of a value, 4 to 32.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import three_brokers_together
        >>> print(three_brokers_together(events=20)["events read"])
        Figure(name='events read', unit='', undefended=1.0, defended=0.0, expected=1.0)
    """
    whole("events", events, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    schema = Schema(x=UInt(whole("bits", bits, 4, 32)))
    matcher, keys = (
        ThreeBrokerMatch.box(schema),
        [BrokerKey.generate(random.bytes) for _ in range(PARTIES)],
    )
    records = {"x": random.integers(0, 1 << bits, events)}
    publics, form = [key.public for key in keys], matcher.form
    publisher = matcher.publisher(publics, randomness=random.bytes)
    sent, true = publisher.encode(records), form.event_rows(schema.encode(records))
    held = {}
    for party, key in enumerate(keys):
        opened = key.open(party, publisher.hellos[party], matcher.digest)
        part = sent if party else sent[:, :HEAD_BYTES]
        held[party] = expand(party, opened, "event", part, form.event_bits)
    read, right = [], []
    for count in range(1, PARTIES + 1):
        summed = sum_of_shares({party: held[party] for party in range(count)})
        read.append(float((summed == true).all(axis=1).mean()))
        right.append(float((summed == true).mean()))
    return Outcome(
        (
            Figure("events read", "", read[1], read[0], 1.0),
            Figure("bits guessed rightly", "", right[1], right[0], 1.0),
        ),
        Curve(
            "brokers of one operator",
            "bits guessed rightly (share)",
            tuple(range(1, PARTIES + 1)),
            {"without defence": tuple(right), "with three operators": (right[0],) * PARTIES},
        ),
    )


@attack(
    title="Without masks, one broker reads sums of events",
    goal="confidentiality",
    adversary="broker 0 of `ThreeBrokerMatch`, with its shares and what broker 1 sends to it",
    defence="masks that are used once: they live in memory only, and a new connection has new ones",
    source="[AFLNO16]",
)
def three_brokers_unmasked(*, events: int = 60, seed: int = 1) -> Outcome:
    """Read sums of the events that one interest meets.

    Once it meets more events than a digit has values, some sets of them have shares that add up to
    0, and what broker 1 sends for those tells a sum over their vectors. With masks, the same
    computation is right half of the time, as a guess is.

    Args:
        events: number of events, 40 to 500.
        seed: seed of events, interest and shares.

    Example:
        >>> from ccbps.attacks import three_brokers_unmasked
        >>> sums = three_brokers_unmasked()["sums read"]
        >>> sums.undefended == sums.expected and abs(sums.defended) < 25
        True
    """
    whole("events", events, 40, 500)
    random = np.random.default_rng(whole("seed", seed, 0))
    schema = Schema(x=UInt(16))
    form = ThreeBrokerMatch.box(schema).form
    values = random.integers(0, 1 << 16, events)

    def shared(bits: Bytes) -> list[Bytes]:
        first, second = random.integers(0, 2, (2, *bits.shape), dtype=np.uint8)
        return [first, second, bits ^ first ^ second]

    x = [
        whole_vectors(share, form.digit_bits, not number)
        for number, share in enumerate(shared(form.event_rows(schema.encode({"x": values}))))
    ]
    y = shared(random.integers(0, 2, (1, form.rows), dtype=np.uint8))
    asked = [lanes(share) for share in y]
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    # The first gate that is one lookup.
    place, table = next(
        (place, gate.tables[0])
        for place, gate in enumerate(form.program.layers[0])
        if len(gate.tables) == 1
    )
    width = form.digit_bits[form.tables[table]]
    start = sum(1 << each for each in form.digit_bits[: form.tables[table]])
    digit = slice(start, start + (1 << width))
    own = y[1][0, form.table_rows[table] : form.table_rows[table + 1]]
    whole_x = (x[0] ^ x[1] ^ x[2])[:, digit].astype(int)

    def read(count: int, masked: bool) -> int:
        """Return the number of right sums, less that of wrong ones."""
        streams = MaskStreams(random.bytes(32), random.bytes(32)).unit(0)

        def masks(shape: tuple[int, ...]) -> Words:
            return streams(shape) if masked else np.zeros(shape, dtype=np.uint64)

        steps = evaluation.steps((x[1][:count], x[2][:count]), (asked[1], asked[2]), masks)
        sent = (next(steps)[place, :, 0] & np.uint64(1)).astype(np.bool_)
        sums = sums_from_lookups(x[0][:count, digit], x[1][:count, digit], own, sent)
        return sum(
            1 if (whole_x[some] @ own).sum() % 2 == read_bit else -1 for some, read_bit in sums
        )

    counts = sorted({round(events * part) for part in (0.25, 0.5, 0.75, 1)})
    without, masked = ([read(count, each) for count in counts] for each in (False, True))
    # Vectors of share 1 have an even sum, so all but one of their bits are independent.
    return Outcome(
        (Figure("sums read", "", without[-1], masked[-1], events - (1 << width) + 1),),
        Curve(
            "events",
            "sums read, less those read wrongly",
            tuple(counts),
            {"without defence": tuple(without), "with masks": tuple(masked)},
        ),
    )
