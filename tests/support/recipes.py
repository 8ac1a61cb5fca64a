"""Recipes of the cookbook, as its pages have them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

COOKBOOK = Path(__file__).resolve().parents[2] / "docs" / "cookbook"
FENCED = re.compile(r"^```(\S+) ?(\S*)\n((?:.*\n)*?)```$", re.M)


@dataclass(frozen=True)
class Block:
    """A block of code or output.

    Attributes:
        kind: "{doctest}", "shell" or "text".
        name: the namespace in which a doctest runs.
        options: options of the directive.
        lines: lines that are not empty.
    """

    kind: str
    name: str
    options: list[str]
    lines: list[str]


@dataclass(frozen=True)
class Recipe:
    """A heading, and what is below it."""

    page: str
    title: str
    text: str

    @property
    def blocks(self) -> list[Block]:
        """Blocks of the recipe, in their order."""
        out = []
        for kind, name, body in FENCED.findall(self.text):
            lines = [line for line in body.splitlines() if line.strip()]
            options = [line for line in lines if re.match(r":\w+: ", line)]
            out.append(Block(kind, name, options, lines[len(options) :]))
        return out


def recipes() -> list[Recipe]:
    """Return all recipes, page by page."""
    return [
        Recipe(path.name, *part.split("\n", 1))
        for path in sorted(COOKBOOK.glob("*.md"))
        for part in path.read_text("utf-8").split("\n## ")[1:]
    ]
