"""Examples in docstrings: everything that users call has one, and all of them run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Iterator

import pytest

import ccbps
from ccbps import CcbpsError

FINDER = doctest.DocTestFinder()
PACKAGES = (
    "ccbps",
    "ccbps.keys",
    "ccbps.network",
    "ccbps.rounds",
    "ccbps.matching",
    "ccbps.matching.broken",
    "ccbps.predicates",
    "ccbps.delivery",
    "ccbps.functional",
    "ccbps.sharing",
)


def modules() -> Iterator[str]:
    """Modules whose dependencies are there."""
    for found in pkgutil.walk_packages(ccbps.__path__, "ccbps.", onerror=lambda name: None):
        if found.name.endswith("compiled_kernels"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as missing:
            if not found.name.startswith("ccbps.spark"):
                raise AssertionError(f"{found.name} cannot be imported") from missing
        else:
            yield found.name


EXAMPLES = {
    f"{name}:{test.name.removeprefix(name).lstrip('.')}": test
    for name in ["ccbps", *modules()]
    for test in FINDER.find(importlib.import_module(name))
    if test.examples
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_does_what_it_says(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    with warnings.catch_warnings():
        # Broken schemes warn when they are made; their examples need not.
        warnings.simplefilter("ignore")
        runner.run(EXAMPLES[name], out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_exported_has_an_example(package: str) -> None:
    module = importlib.import_module(package)
    things = {name: getattr(module, name) for name in module.__all__}
    bare = [
        name
        for name, thing in things.items()
        if inspect.isroutine(thing)
        or (inspect.isclass(thing) and not issubclass(thing, CcbpsError | Warning))
        if ">>> " not in (thing.__doc__ or "")
    ]
    assert bare == []


def test_everything_of_spark_has_an_example() -> None:
    spark = pytest.importorskip("ccbps.spark", exc_type=ImportError)
    shown = {name: inspect.getdoc(getattr(spark, name)) or "" for name in spark.__all__}
    assert [name for name, text in shown.items() if "Example" not in text] == []
