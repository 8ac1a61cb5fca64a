"""The cookbook: many recipes, each short, complete and with a page that explains it.

`make docs` runs the examples. Recipes for a shell and for Spark are run in `tests/cli` and in
`tests/spark`.
"""

from __future__ import annotations

import re

import pytest

from tests.support.recipes import COOKBOOK, Recipe, recipes

RECIPES = recipes()
MOST = 15
"""Lines that a recipe may have, with its output."""
GENERATED = {"../leakage.md"}
"""Pages that are made with the documentation."""


def complaints(recipe: Recipe) -> list[str]:
    """List the rules that a recipe breaks."""
    out = []
    code = [block for block in recipe.blocks if block.kind != "text"]
    if len(code) != 1:
        out.append("a recipe has one block of code")
    if sum(len(block.lines) for block in recipe.blocks) > MOST:
        out.append(f"a recipe has at most {MOST} lines")
    for block in code:
        if block.kind == "{doctest}" and (":skipif: True" in block.options) != (
            block.name.startswith("spark")
        ):
            out.append("examples run, except those of Spark, which run elsewhere")
        elif block.kind not in ("{doctest}", "shell"):
            out.append(f"nothing runs a block of {block.kind}")
    links = {*re.findall(r"\]\(([\w./]+\.md)", recipe.text.rpartition("```")[2])}
    if not links or not all((COOKBOOK / link).exists() for link in links - GENERATED):
        out.append("a link to a page comes last")
    return out


def test_there_are_many_recipes_with_titles_of_their_own() -> None:
    assert len(RECIPES) >= 30
    assert len({recipe.title for recipe in RECIPES}) == len(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_is_short_and_ends_with_a_link(recipe: Recipe) -> None:
    assert complaints(recipe) == []


def test_no_recipe_uses_the_names_of_another() -> None:
    names = [block.name for recipe in RECIPES for block in recipe.blocks if block.name]
    assert len(names) >= 30
    assert len({*names}) == len(names)


def test_broken_rules_are_noticed() -> None:
    def recipe(*lines: str, head: str = "{doctest} a", end: str = "[x](../broker.md)") -> Recipe:
        return Recipe("", "", "\n".join([f"```{head}", *lines, "```", end]))

    assert complaints(recipe(*[">>> 1"] * MOST)) == []
    assert complaints(recipe(">>> 1", head="{doctest} spark\n:skipif: True")) == []
    for wrong in (
        recipe(*[">>> 1"] * (MOST + 1)),
        recipe(">>> 1", head="{doctest} a\n:skipif: True"),
        recipe(">>> 1", head="{doctest} spark"),
        recipe("x = 1", head="python"),
        recipe(">>> 1", end="```text\n1\n```"),
        recipe(">>> 1", end="[x](../no_page.md)"),
        Recipe("", "", "[x](../broker.md)"),
    ):
        assert len(complaints(wrong)) == 1, wrong
