"""Names that a package loads on first use, and the extras that parts of the library need."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

EXTRAS: Final = {
    "arrow": ("pyarrow",),
    "groups": ("coincurve",),
    "metrics": (
        "prometheus_client",
        "prometheus_client.core",
        "prometheus_client.openmetrics.exposition",
    ),
    "mqtt": ("paho", "amqtt"),
    "networks": ("networkx",),
    "pairings": ("pymcl", "py_arkworks_bls12381"),
    "plot": ("matplotlib.figure",),
    "spark": ("pyarrow", "pyspark"),
    "testing": ("pytest", "hypothesis"),
}
"""Modules that each extra installs, by the extra's name."""


def need(part: str, extra: str, hint: str = "") -> ModuleType:
    """Import the modules of an extra, and return the first.

    Args:
        part: the part of the library that needs the extra, for the error.
        extra: a key of `EXTRAS`.
        hint: a sentence for the end of the error.

    Raises:
        ImportError: one of the modules is not installed.
    """
    try:
        modules = [import_module(name) for name in EXTRAS[extra]]
    except ModuleNotFoundError as error:
        if not any(f"{name}.".startswith(f"{error.name}.") for name in EXTRAS[extra]):
            raise  # it is installed, and lacks something itself
        end = f". {hint}" if hint else ""
        raise ImportError(
            f"{part} needs {error.name}: pip install 'ccbps[{extra}]'{end}", name=error.name
        ) from None
    return modules[0]


def on_first_use(package: str, hint: str = "") -> bool:
    """Let a package load its names when they are first used, and return True.

    The package imports its names where only type checkers look::

        if TYPE_CHECKING or not on_first_use(__name__):
            from ccbps.predicates import Schema as Schema

    This function reads these imports in the package's source. It gives the package ``__all__`` in
    the order of the source, a ``__getattr__`` that makes each import, and loads each module inside
    the package, on first use, and a ``__dir__`` of these names and the packages inside. Without the
    source, it returns False, and the imports run at once.

    Args:
        package: name of the package or module that calls this function.
        hint: end of the error for a name that the package does not have.
    """
    module = sys.modules[package]
    get_source = getattr(getattr(module.__spec__, "loader", None), "get_source", None)
    source = get_source(package) if get_source else None
    if source is None:
        return False
    homes, inside = dict(_imports(source)), getattr(module, "__path__", [])

    def load(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif inside and not name.startswith("_") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{hint}", name=name, obj=module
            )
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        # What a tool that walks the package can load without an error.
        from pkgutil import iter_modules  # here, since importing a package lists no folder

        packages = [part.name for part in iter_modules(inside) if part.ispkg]
        return sorted([*homes, *filter(_is_usable, packages)])

    module.__dict__.update(__getattr__=load, __dir__=names, __all__=[*homes])
    return True


def _is_usable(package: str) -> bool:
    """Tell whether a package's extra is installed, if it needs one."""
    return all(map(find_spec, EXTRAS.get(package, ())))


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield the names and modules of the imports under the first ``if`` of a source."""
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    for node in block.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                listed = import_module(node.module).__all__ if alias.name == "*" else [alias.name]
                yield from ((name, node.module) for name in listed)
