"""Draw tiles, words, lines and arrows as SVG, for the pictures of the documentation.

Orange is the publisher's, green the subscriber's, blue the broker's, as in the plots of the
benchmarks.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

WIDTH = 740
FONT = "DejaVu Sans, Verdana, Arial, sans-serif"
# (fill, line, text)
PUBLISHER = ("#ffe8d1", "#ff7f0e", "#5c2b00")
SUBSCRIBER = ("#def2de", "#2ca02c", "#0f4410")
CHOSEN = ("#8fd18f", "#2ca02c", "#0b330c")
BROKER = ("#a9cdea", "#1f77b4", "#0b2f4a")
IDENTITY = ("#ffffff", "#9a9a9a", "#555555")
INK, QUIET, FAINT = "#222222", "#666666", "#dddddd"
TILE = 28


class Drawing:
    """Tiles and words on a white ground, as SVG."""

    def __init__(self, title: str, height: int) -> None:
        self._title, self._height = title, height
        self._parts: list[str] = []

    def tile(
        self,
        x: float,
        y: float,
        width: float,
        text: str,
        colours: tuple[str, str, str],
        *,
        dashed: bool = False,
    ) -> None:
        """Draw a box with its left upper corner at x, y; `^` starts a superscript."""
        fill, line, ink = colours
        dashes = ' stroke-dasharray="3 2"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{TILE}" rx="4" '
            f'fill="{fill}" stroke="{line}"{dashes}/>'
        )
        self.text(x + width / 2, y + TILE / 2 + 4.5, text, ink, anchor="middle")

    def bar(
        self, x: float, y: float, width: float, height: float, colours: tuple[str, str, str]
    ) -> None:
        """Draw a bar of a chart with its left upper corner at x, y."""
        fill, line, _ = colours
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="3" '
            f'fill="{fill}" stroke="{line}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = INK,
        *,
        anchor: str = "start",
        size: float = 12.5,
    ) -> None:
        """Write words with their base line at y."""
        base, _, raised = text.partition("^")
        inner = escape(base)
        if raised:
            inner += f'<tspan dy="-5" font-size="10.5">{escape(raised)}</tspan>'
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{colour}">{inner}</text>'
        )

    def bracket(self, left: float, right: float, y: float, text: str) -> None:
        """Draw a line under some tiles, and a text under it."""
        self._parts.append(
            f'<path d="M{left:g} {y:g} v5 H{right:g} v-5" fill="none" stroke="{QUIET}"/>'
        )
        self.text((left + right) / 2, y + 19, text, QUIET, anchor="middle", size=11.5)

    def line(
        self, points: list[tuple[float, float]], *, arrow: bool = True, colour: str = QUIET
    ) -> None:
        """Draw straight strokes from point to point, the last one with an arrow's head."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}"/>')
        if arrow:
            (x0, y0), (x, y) = points[-2:]
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
            u, v = (x - x0) / length * 7, (y - y0) / length * 7
            corners = f"{x:.1f},{y:.1f} {x - u - v / 2:.1f},{y - v + u / 2:.1f} "
            corners += f"{x - u + v / 2:.1f},{y - v - u / 2:.1f}"
            self._parts.append(f'<polygon points="{corners}" fill="{QUIET}"/>')

    def curve(self, points: list[tuple[float, float]], colour: str) -> None:
        """Draw a thick line from point to point, with a dot at each."""
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        self._parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>' for x, y in points
        ]

    def svg(self) -> str:
        """Return the whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" '
            f'width="{WIDTH}" height="{self._height}" font-family="{FONT}">'
        )
        ground = f'<rect width="{WIDTH}" height="{self._height}" rx="6" fill="#ffffff"/>'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, ground, *self._parts, "</svg>"]) + "\n"
