"""Recipes of the cookbook for Spark."""

from __future__ import annotations

import doctest

import pytest
from pyspark.sql import SparkSession

from tests.support.recipes import Recipe, recipes

RECIPES = [recipe for recipe in recipes() if recipe.blocks[0].name.startswith("spark")]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_does_what_it_says(recipe: Recipe, spark: SparkSession) -> None:
    code = "\n".join(recipe.blocks[0].lines)
    test = doctest.DocTestParser().get_doctest(code, {"spark": spark}, recipe.title, recipe.page, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.DONT_ACCEPT_TRUE_FOR_1)
    assert runner.run(test, out=said.append).failed == 0, "".join(said)
    assert runner.tries > 5
