"""Three brokers with one bit for each share, event and interest: a twin of `ccbps.shares`.

It knows nothing of lanes, of words or of sums of four rows. Values are lists of the three shares;
broker i uses those numbered i and i + 1 only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.forms.digits import DigitForm

Bit = list[int]
"""Shares x_0, x_1 and x_2 of a bit."""


def vectors(form: DigitForm, sent: Sequence[Bit]) -> tuple[list[list[Bit]], list[Bit]]:
    """Return the one-hot vectors of all digits, and the bits that the publisher computed."""
    out, place = [], 0
    for width in form.digit_bits:
        vector = [list(bit) for bit in sent[place : place + (1 << width) - 1]]
        place += len(vector)
        last = [1, 0, 0]
        for bit in vector:
            last = [a ^ b for a, b in zip(last, bit, strict=True)]
        out.append([*vector, last])
    return out, [list(bit) for bit in sent[place:]]


def messages(
    form: DigitForm, sent: Sequence[Bit], rows: Sequence[Bit], masks: Sequence[Sequence[int]]
) -> tuple[list[Bit], Bit]:
    """Evaluate an event with an interest.

    Args:
        form: the lookups and layers.
        sent: shares of the event's bits.
        rows: shares of the interest's bits.
        masks: for each of the keys k_0, k_1 and k_2, a bit for each gate.

    Returns:
        What brokers 0, 1 and 2 send for each gate, and the shares of the answer.
    """
    digits, values = vectors(form, sent)
    values += rows[form.table_rows[-1] :]
    said = []
    for gate in (gate for layer in form.program.layers for gate in layer):
        pairs = [(values[a], values[b]) for a, b in gate.products]
        for table in gate.tables:
            start = form.table_rows[table]
            vector = digits[form.tables[table]]
            pairs += [(bit, rows[start + value]) for value, bit in enumerate(vector)]
        z = []
        for i in range(3):
            j = (i + 1) % 3
            part = masks[i][len(said)] ^ masks[j][len(said)]
            for x, y in pairs:
                part ^= x[i] & y[i] ^ x[i] & y[j] ^ x[j] & y[i]
            for operand in gate.operands:
                part ^= values[operand][i]
            z.append(part)
        values.append(z)
        said.append(z)
    return said, values[-1]


def product_shares(
    left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the parts of brokers 0, 1 and 2 of products, without masks.

    Args:
        left: shares 0, 1 and 2 of the first factors.
        right: shares of the second ones.
    """
    out = []
    for i in range(3):
        j = (i + 1) % 3
        pairs = zip(left[i], left[j], right[i], right[j], strict=True)
        out.append([a & c ^ a & d ^ b & c for a, b, c, d in pairs])
    return out


def times_key(
    answers: Sequence[Bit], key: Sequence[int], masks: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return what brokers 0, 1 and 2 seal of one bit of an event's key, for each answer.

    Args:
        answers: shares of each answer.
        key: shares of the bit.
        masks: for each of the keys k_0, k_1 and k_2, a bit for each answer.
    """
    out = []
    for lane, answer in enumerate(answers):
        (one, two, three) = product_shares([[a] for a in answer], [[bit] for bit in key])
        parts = one[0], two[0], three[0]
        out.append(
            [part ^ masks[i][lane] ^ masks[(i + 1) % 3][lane] for i, part in enumerate(parts)]
        )
    return out
