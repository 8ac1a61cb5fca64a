"""Draw the speed chart of the landing page from figures.json: pairs that a broker decides."""

from __future__ import annotations

import math

from drawing import BROKER, IDENTITY, INK, PUBLISHER, QUIET, Drawing
from measured import value_of

BOX = "bench_matchers / Box of 16+16+20 bits: bytes, microseconds / {} / match a pair"
LIMIT = "bench_formula / Box of 16+16+20 bits / FormulaMatch, limit / broker"
TRIO = "bench_three_brokers / One broker, nanoseconds a pair, by the bits of a digit / 4 / broker"
MPYC = "bench_trio / The same box with MPyC / MPyC, three processes / us a pair"
Colours = tuple[str, str, str]

# (name, figure, microseconds of one of it, colours)
BARS: tuple[tuple[str, str, float, Colours], ...] = (
    ("limit: XOR of both messages", LIMIT, 1e-3, IDENTITY),
    ("ThreeBrokerMatch, one of three", TRIO, 1e-3, PUBLISHER),
    ("TagMatch, prepared", BOX.format("TagMatch"), 1, PUBLISHER),
    ("FormulaMatch", BOX.format("FormulaMatch box"), 1, BROKER),
    ("BranchingMatch", BOX.format("BranchingMatch box"), 1, BROKER),
    ("BroadcastMatch", BOX.format("BroadcastMatch box"), 1, BROKER),
    ("GarbledMatch", BOX.format("GarbledMatch box"), 1, BROKER),
    ("OFSGPMatch, of the literature", BOX.format("OFSGPMatch of 4,048 instructions"), 1, BROKER),
    ("peer: MPyC, three parties", MPYC, 1, IDENTITY),
)
TOP, ROW, LEFT, RIGHT = 46, 30, 236, 640
LEAST = 2
"""Power of ten at the left end of the scale."""


def draw_speed() -> str:
    """Return the chart: a bar for each matcher, on a logarithmic scale."""
    rates = [(name, 1e6 / (float(value_of(f) or 0) * unit), c) for name, f, unit, c in BARS]
    most = math.ceil(math.log10(max(rate for _, rate, _ in rates)))
    scale = (RIGHT - LEFT) / (most - LEAST)
    height = TOP + ROW * len(rates) + 34
    drawing = Drawing("Pairs of an event and a subscription that a broker decides", height)
    title = (
        "Pairs of an event and a subscription (box of 52 bits) that one core decides in a second"
    )
    drawing.text(10, 22, title, INK, size=13.5)
    for power in range(LEAST, most + 1):
        x = LEFT + (power - LEAST) * scale
        drawing.line([(x, TOP - 8), (x, height - 30)], arrow=False, colour="#dddddd")
        drawing.text(x, height - 12, f"10^{power}", QUIET, anchor="middle", size=11.5)
    for row, (name, rate, colours) in enumerate(rates):
        y = TOP + row * ROW
        drawing.text(LEFT - 8, y + 15, name, INK, anchor="end")
        drawing.bar(LEFT, y, (math.log10(rate) - LEAST) * scale, 20, colours)
        drawing.text(
            LEFT + (math.log10(rate) - LEAST) * scale + 6, y + 15, counted(rate), QUIET, size=11.5
        )
    return drawing.svg()


def counted(rate: float) -> str:
    """Return a rate in words, with two digits."""
    for size, word in ((1e6, " million"), (1e3, " thousand"), (1, "")):
        if rate >= size:
            return f"{float(f'{rate / size:.2g}'):g}{word}"
    return f"{rate:.2g}"
