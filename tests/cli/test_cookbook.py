"""Recipes of the cookbook for a shell."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.command_line import Shell
from tests.support.recipes import Recipe, recipes

RECIPES = [recipe for recipe in recipes() if recipe.blocks[0].kind == "shell"]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_prints_what_it_says(recipe: Recipe, shell: Shell) -> None:
    commands, shown = recipe.blocks
    printed = ""
    for line in commands.lines:
        if line.startswith("ccbps "):
            printed += shell.done(line)
        else:
            run = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True)
            printed += run.stdout
    assert printed.splitlines()[-len(shown.lines) :] == shown.lines
