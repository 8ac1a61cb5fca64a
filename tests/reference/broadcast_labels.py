"""Slow twin of `ccbps.encodings.broadcast.encoding`: one pair at a time.

It has a table of lines for each digit and slot, and a cipher context for every pad.

What a formula f delivers is a matrix sigma (x) beta f, one bit for each slot of a matrix of slots;
sigma_b and beta_v are products of masks, written as sets of their numbers. A label of private bits
is added by the subscriber. An AND of e and w opens a gate:

- new slots E_b, one for each row, and W_v, one for each column, with new masks rho_b and S_v;
- the subscriber adds rho_b to E_b, S_v to W_v and rho_b S_v to slot (b, v);
- e delivers sigma (x) (1, S) e to E beside the slots, w delivers (1, rho) (x) beta w to W on top
  of the slots;
- the broker adds E_b W_v to slot (b, v), gates inside e and w first.

A scan delivers sigma (x) (beta eq + gamma g), where its digits together are z -> eq z + g: a gate,
with the first digits as the left part, sigma (x) ((1, S) eq + (0, gamma) g), and the others as
the right part, (1, rho) (x) (beta eq + gamma g). The scan's last digit has no eq. It is cut so that
slots and rows are fewest, a leaf counted as one of the widest digit.

A table delivers, for a digit with value x, a sum of products of masks times entries[x]. The sum
of all that a digit delivers at a slot is one *line* for each value, masked with that value's pad:

- plain: the line with select bits 0 goes to the slot. Row q is this line plus the one with select
  bits q;
- programmed: as plain, but a mask that stands alone before a table whose entries sum to one is
  what makes all lines sum to zero; so the last row is the sum of the others, and is not sent;
- direct: a digit of one bit, and tables that sum to one before no mask: the line is the value, plus
  something, and the slot gets the line with select bit 0; the broker adds the select bit.

The root's line has to have a pad: where all that digits deliver there is direct, the first digit is
plain all the same. Where no digit delivers anything, the narrowest one has a plain line of zeros.

Numbers. Slot 0 is the root. Gates are opened in the order of a depth-first walk, a gate before its
parts, the left part before the right one; each takes the next slots, E before W, and the next
masks, rho before S. Rows are in the order of digits, then slots, then select bits. In that order
digits at slots become direct if they can be; else programmed by the first mask, in the order of
the walk, that is not yet so, is in no other product there, and that no mask in these needs.

Source: as `ccbps.encodings.broadcast.window_slots`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.programs.branching import Label
from ccbps.programs.formula import And, Formula, Lookup, Scan, Sum

Product = frozenset[int]
"""Numbers of masks."""
Vector = Sequence[Product | None]
"""Coefficients; None where nothing is delivered."""
Matrix = list[list[int]]
"""Numbers of slots."""
NOTHING: Product = frozenset()
NONCE_BYTES = 12


def bits_of(row: bytes) -> list[int]:
    """The lowest bit of each byte first."""
    return [byte >> i & 1 for byte in row for i in range(8)]


def bytes_of(bits: Sequence[int]) -> bytes:
    padded = [*bits, *[0] * (-len(bits) % 8)]
    return bytes(
        sum(bit << i for i, bit in enumerate(padded[at : at + 8]))
        for at in range(0, len(padded), 8)
    )


def labels_of(random: bytes, widths: Sequence[int]) -> list[list[bytes]]:
    """Labels by digit and value: the lowest bits of the first byte are the value plus a shift."""
    labels, at = [], 0
    for width in widths:
        low = (1 << width) - 1
        shift, own = random[at] & low, []
        for value in range(1 << width):
            label = bytearray(random[at : at + 16])
            label[0] = label[0] & ~low | shift ^ value
            own.append(bytes(label))
            at += 16
        labels.append(own)
    assert at == len(random)
    return labels


def pad(label: bytes, nonce: bytes, place: int, count: int) -> list[int]:
    """So many bits of AES under a label."""
    encryptor = Cipher(algorithms.AES128(label), modes.ECB()).encryptor()
    row = b""
    for block in range(-(-count // 128)):
        row += encryptor.update(nonce + place.to_bytes(2, "little") + block.to_bytes(2, "little"))
    return bits_of(row)[:count]


@dataclass(frozen=True)
class Part:
    """A product of masks times a table's entry."""

    masks: Product
    entries: tuple[Label, ...]
    odd: bool


class BroadcastTwin:
    """A formula's slots and rows for one pair of inputs.

    Attributes:
        slots: number of slots.
        masks: number of masks.
        gates: E, W and targets, in the order in which the broker adds products.
        tables: tables that a digit delivers at a slot, by digit and slot.
        digits: digits used.
        kinds: number of a mask, "direct" or "plain", for each of `tables`.
        free: masks that are drawn.
        rows: number of rows that are sent.
    """

    def __init__(self, formula: Formula, widths: Sequence[int]) -> None:
        self.widths = list(widths)
        self.slots, self.masks = 1, 0
        self.gates: list[tuple[list[int], list[int], Matrix]] = []
        self.known: list[tuple[int, Product, Label]] = []
        tables: defaultdict[tuple[int, int], list[Part]] = defaultdict(list)
        self._tables = tables
        self._deliver(formula, [NOTHING], [NOTHING], [[0]])
        if not tables and self.widths:
            tables[self.widths.index(min(self.widths)), 0] = []
        self.tables = {key: tables[key] for key in sorted(tables)}
        self.digits = sorted({digit for digit, _ in tables})
        self.kinds: dict[tuple[int, int], int | str] = {}
        self._defined: dict[int, tuple[int, int]] = {}
        direct = {key for key, parts in self.tables.items() if self._is_direct(key, parts)}
        at_root = [key for key in self.tables if key[1] == 0]
        if direct.issuperset(at_root):
            direct -= set(at_root[:1])
        for key, parts in self.tables.items():
            self.kinds[key] = "direct" if key in direct else self._kind(key, parts)
        self.free = [mask for mask in range(self.masks) if mask not in self._defined]
        # Pad bits of a digit are numbered slot by slot.
        self.pad_bits: dict[tuple[int, int], int] = {}
        counts: defaultdict[int, int] = defaultdict(int)
        for (digit, slot), kind in self.kinds.items():
            if kind != "direct":
                self.pad_bits[digit, slot] = counts[digit]
                counts[digit] += 1
        self.pads = {digit: counts[digit] for digit in self.digits}
        self.rows = sum(self._rows(key) for key in self.tables)

    # -- the walk -------------------------------------------------------------------------------

    def _deliver(self, f: Formula, sigma: Vector, beta: Vector, targets: Matrix) -> None:
        if isinstance(f, Sum):
            for part in f.parts:
                self._deliver(part, sigma, beta, targets)
        elif isinstance(f, And):
            e, w, rho, s = self._open(targets)
            left = [[e[b], *row] for b, row in enumerate(targets)]
            self._deliver(f.left, sigma, [NOTHING, *s], left)
            self._deliver(f.right, [NOTHING, *rho], beta, [w, *targets])
            self.gates.append((e, w, targets))
        elif isinstance(f, Lookup):
            for b, v, slot in _places(targets):
                self._add(f.digit, slot, sigma[b], beta[v], f.entries, f.odd)
        elif isinstance(f, Scan):
            self._scan(f, 0, len(f.steps), sigma, [None] * len(beta), beta, targets)
        else:
            assert isinstance(f, Label)
            assert not f.event
            for b, v, slot in _places(targets):
                one, other = sigma[b], beta[v]
                assert one is not None
                assert other is not None
                self.known.append((slot, one | other, f))

    def _scan(
        self, f: Scan, start: int, stop: int, sigma: Vector, beta: Vector, gamma: Vector,
        targets: Matrix,
    ) -> None:  # fmt: skip
        last = stop == len(f.steps)
        if stop - start == 1:
            digit, equal, value = f.steps[start]
            for b, v, slot in _places(targets):
                if not last:
                    self._add(digit, slot, sigma[b], beta[v], equal, True)
                self._add(digit, slot, sigma[b], gamma[v], value, False)
            return
        middle = start + best_cut(stop - start, len(sigma), len(gamma), last, max(self.widths))[1]
        e, w, rho, s = self._open(targets)
        left = [[e[b], *row] for b, row in enumerate(targets)]
        self._scan(f, start, middle, sigma, [NOTHING, *s], [None, *gamma], left)
        self._scan(f, middle, stop, [NOTHING, *rho], beta, gamma, [w, *targets])
        self.gates.append((e, w, targets))

    def _open(self, targets: Matrix) -> tuple[list[int], list[int], list[Product], list[Product]]:
        """E, W, rho and S; what the subscriber adds to E, W and the targets."""
        n, v = len(targets), len(targets[0])
        e = [self.slots + i for i in range(n)]
        w = [self.slots + n + i for i in range(v)]
        rho = [frozenset([self.masks + i]) for i in range(n)]
        s = [frozenset([self.masks + n + i]) for i in range(v)]
        self.slots += n + v
        self.masks += n + v
        one = Label(one=True)
        self.known += [(slot, mask, one) for slot, mask in zip(e + w, rho + s, strict=True)]
        self.known += [(slot, rho[b] | s[v], one) for b, v, slot in _places(targets)]
        return e, w, rho, s

    def _add(
        self, digit: int, slot: int, one: Product | None, other: Product | None,
        entries: tuple[Label, ...], odd: bool,
    ) -> None:  # fmt: skip
        if one is not None and other is not None:
            assert len(entries) == 1 << self.widths[digit]
            self._tables[digit, slot].append(Part(one | other, entries, odd))

    # -- kinds ----------------------------------------------------------------------------------

    def _is_direct(self, key: tuple[int, int], parts: list[Part]) -> bool:
        plain = all(part.odd and not part.masks for part in parts)
        return self.widths[key[0]] == 1 and bool(parts) and plain

    def _kind(self, key: tuple[int, int], parts: list[Part]) -> int | str:
        for part in parts:
            same = sum(p.masks == part.masks for p in parts)
            if not part.odd or len(part.masks) != 1 or same > 1:
                continue
            (mask,) = part.masks
            others = {m for p in parts if p.masks != part.masks for m in p.masks}
            if mask not in self._defined and mask not in self._needed(others):
                self._defined[mask] = key
                return mask
        return "plain"

    def _needed(self, masks: set[int]) -> set[int]:
        """These masks, those of which they are computed, those of which these are, and so on."""
        found: set[int] = set()
        while masks:
            mask = masks.pop()
            if mask not in found:
                found.add(mask)
                if mask in self._defined:
                    parts = self.tables[self._defined[mask]]
                    masks |= {m for p in parts if p.masks != {mask} for m in p.masks}
        return found

    def _rows(self, key: tuple[int, int]) -> int:
        kind, others = self.kinds[key], (1 << self.widths[key[0]]) - 1
        return 0 if kind == "direct" else others if kind == "plain" else others - 1

    # -- messages -------------------------------------------------------------------------------

    def interest_bits(
        self,
        interest: Sequence[int],
        free: Sequence[int],
        shifts: dict[int, int],
        pads: dict[int, list[list[int]]],
    ) -> list[int]:
        """Slots and rows.

        Args:
            interest: the private bits.
            free: masks that are drawn.
            shifts: select bits of each digit's value 0.
            pads: of each digit, by value.
        """
        drawn = dict(zip(self.free, free, strict=True))

        def value(label: Label) -> int:
            return (label.one + sum(interest[i] for i in label.interest)) & 1

        def mask(number: int) -> int:
            if number in drawn:
                return drawn[number]
            key = self._defined[number]
            bit = sum(row[self.pad_bits[key]] for row in pads[key[0]])
            for part in self.tables[key]:
                if part.masks != {number}:
                    bit += product(part.masks) * sum(map(value, part.entries))
            drawn[number] = bit & 1
            return drawn[number]

        def product(masks: Product) -> int:
            return int(all(mask(number) for number in masks))

        slots = [0] * self.slots
        for slot, masks, label in self.known:
            slots[slot] ^= product(masks) & value(label)
        rows = []
        for (digit, slot), parts in self.tables.items():
            lines = []
            for v in range(1 << self.widths[digit]):
                lines.append(sum(product(part.masks) * value(part.entries[v]) for part in parts))
                if self.kinds[digit, slot] != "direct":
                    lines[v] += pads[digit][v][self.pad_bits[digit, slot]]
            by_select = [lines[q ^ shifts[digit]] & 1 for q in range(len(lines))]
            if self.kinds[digit, slot] not in ("direct", "plain"):
                assert not sum(by_select) & 1
            slots[slot] ^= by_select[0]
            rows += [by_select[0] ^ line for line in by_select[1:][: self._rows((digit, slot))]]
        return slots + rows

    def answer(
        self, bits: Sequence[int], selects: dict[int, int], opened: dict[int, list[int]]
    ) -> int:
        """What the broker computes from slots and rows and what labels open."""
        return self.decoded(bits, selects, opened)[0]

    def decoded(
        self, bits: Sequence[int], selects: dict[int, int], opened: dict[int, list[int]]
    ) -> list[int]:
        """What slots hold when the broker is done."""
        values, rows = list(bits[: self.slots]), list(bits[self.slots :])
        for (digit, slot), parts in self.tables.items():
            q = selects[digit]
            if self.kinds[digit, slot] == "direct":
                values[slot] ^= q & len(parts) & 1
                continue
            own = [rows.pop(0) for _ in range(self._rows((digit, slot)))]
            if self.kinds[digit, slot] != "plain":
                own.append(sum(own) & 1)
            values[slot] ^= opened[digit][self.pad_bits[digit, slot]] ^ [0, *own][q]
        assert not rows
        for e, w, targets in self.gates:
            for b, v, slot in _places(targets):
                values[slot] ^= values[e[b]] & values[w[v]]
        return values

    def event(self, values: Sequence[int], random: bytes) -> bytes:
        """The event message: the labels of the digits used."""
        labels = labels_of(random, [self.widths[digit] for digit in self.digits])
        return b"".join(own[value] for own, value in zip(labels, values, strict=True))

    def interest(
        self, interest: Sequence[int], random: bytes, nonce: bytes, free: Sequence[int]
    ) -> bytes:
        """The interest message."""
        assert len(nonce) == NONCE_BYTES
        labels = labels_of(random, [self.widths[digit] for digit in self.digits])
        shifts, pads = {}, {}
        for place, (digit, own) in enumerate(zip(self.digits, labels, strict=True)):
            shifts[digit] = own[0][0] & (1 << self.widths[digit]) - 1
            pads[digit] = [pad(label, nonce, place, self.pads[digit]) for label in own]
        return nonce + bytes_of(self.interest_bits(interest, free, shifts, pads))

    def decode(self, event: bytes, interest: bytes) -> int:
        """The answer for a pair of messages."""
        nonce, body = interest[:NONCE_BYTES], interest[NONCE_BYTES:]
        selects, opened = {}, {}
        for place, digit in enumerate(self.digits):
            label = event[16 * place : 16 * place + 16]
            selects[digit] = label[0] & (1 << self.widths[digit]) - 1
            opened[digit] = pad(label, nonce, place, self.pads[digit])
        return self.answer(bits_of(body)[: self.slots + self.rows], selects, opened)


def _places(targets: Matrix) -> list[tuple[int, int, int]]:
    return [(b, v, slot) for b, row in enumerate(targets) for v, slot in enumerate(row)]


@cache
def best_cut(digits: int, n: int, v: int, last: bool, width: int) -> tuple[int, int]:
    """Slots and rows of a scan's part, and its left part's digits: of equal sums the fewest."""
    if digits == 1:
        rows = ((1 << width) - 1) * n * v
        if not last:
            # E_0 is direct if it is one bit; of each S and rho one row is not sent.
            rows -= (n - 1) + (v - 1) + (width == 1)
        return rows, 0
    return min(
        (
            n + v + best_cut(left, n, v + 1, False, width)[0]
            + best_cut(digits - left, n + 1, v, last, width)[0],
            left,
        )
        for left in range(1, digits)
    )  # fmt: skip
