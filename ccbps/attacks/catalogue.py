"""Attacks as data: the adversary, the result and the defence.

An attack is a function. It builds a small deployment, attacks it without and with the defence, and
returns a `ccbps.attacks.Outcome`: figures, and a curve to draw. The decorator `attack` adds it to
the catalogue under the function's name with hyphens, with all data that do not depend on a run.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import wraps
from importlib import import_module
from typing import Any, Final, Literal, ParamSpec

from ccbps.checks import Printable, number, whole
from ccbps.errors import ParameterError
from ccbps.loading import need

Exploit = Literal["semantic", "resource", "implementation"]
Party = Literal["client", "broker"]
Propagation = Literal["single-hop", "multi-hop", "global"]
State = Literal["stateless", "soft", "persistent"]
Content = Literal["independent", "proportional", "inverse"]
Goal = Literal["availability", "confidentiality", "integrity"]
P = ParamSpec("P")

MOST: Final = 100
"""Greatest value of a parameter, as a multiple of its default."""

MODULES: Final = (
    "ccbps.attacks.network.floods",
    "ccbps.attacks.network.filters",
    "ccbps.attacks.network.loads",
    "ccbps.attacks.network.rounds",
    "ccbps.attacks.network.messages",
    "ccbps.attacks.network.scans",
    "ccbps.attacks.network.bogus",
    "ccbps.attacks.network.forgeries",
    "ccbps.attacks.network.replays",
    "ccbps.attacks.network.partition",
    "ccbps.attacks.network.canaries",
    "ccbps.attacks.network.dawn",
    "ccbps.attacks.network.watchers",
    "ccbps.attacks.adding_up",
    "ccbps.attacks.anonymity",
    "ccbps.attacks.schemes.aspe",
    "ccbps.attacks.schemes.prefix",
    "ccbps.attacks.schemes.additive_mask",
    "ccbps.attacks.schemes.paillier_range",
    "ccbps.attacks.schemes.keyword",
    "ccbps.attacks.schemes.access_tree",
    "ccbps.attacks.schemes.commutative",
    "ccbps.attacks.schemes.oblivious_topic",
    "ccbps.attacks.schemes.masked_topic",
    "ccbps.attacks.schemes.tag",
    "ccbps.attacks.schemes.words",
    "ccbps.attacks.schemes.reused_rounds",
    "ccbps.attacks.schemes.broadcast",
    "ccbps.attacks.schemes.garbled",
    "ccbps.attacks.schemes.p3s",
    "ccbps.attacks.schemes.inner_product",
    "ccbps.attacks.schemes.functional",
    "ccbps.attacks.schemes.onion",
    "ccbps.attacks.schemes.three_brokers",
)
"""Modules with attacks, in the order of the catalogue."""


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """Place of a denial-of-service attack in the taxonomy of [WCJ07].

    Attributes:
        exploit: exploited weakness: "semantic" for the protocol's meaning, "resource" for capacity,
            "implementation" for a fault in code.
        source: party that attacks.
        target: party that suffers.
        propagation: reach of the effect: "single-hop", "multi-hop" or "global".
        state: effect after the attacker stops: "stateless" for none, "soft" for one that expires,
            "persistent" for one that stays.
        content: growth of the effect with the number of events that the attacker's messages match:
            "independent", "proportional" or "inverse".
    """

    exploit: Exploit
    source: Party
    target: Party
    propagation: Propagation
    state: State
    content: Content

    def __str__(self) -> str:
        return (
            f"{self.exploit}, {self.source} to {self.target}, {self.propagation}, {self.state}, "
            f"{self.content}"
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure of an attack.

    Attributes:
        name: measured quantity.
        unit: unit of the quantity; empty for counts and shares.
        undefended: value without the defence.
        defended: value with the defence; None if the figure has none.
        expected: value without the defence by a formula; None if there is no formula.
    """

    name: str
    unit: str
    undefended: float
    defended: float | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Curve:
    """Curves of an attack: one quantity over another, without and with the defence.

    Attributes:
        x: label of the x axis, with the unit.
        y: label of the y axis, with the unit.
        at: places on the x axis.
        lines: values at these places, by the name of the line.
        log: axes with a logarithmic scale: "", "x", "y" or "xy".
    """

    x: str
    y: str
    at: tuple[float, ...]
    lines: Mapping[str, tuple[float, ...]]
    log: Literal["", "x", "y", "xy"] = ""

    def __post_init__(self) -> None:
        """Check the lengths of lines.

        Raises:
            ParameterError: a line has another number of values than there are places.
        """
        for name, values in self.lines.items():
            if len(values) != len(self.at):
                raise ParameterError(
                    f"line {name!r} must have {len(self.at)} values, one for each place on the x "
                    f"axis, got {len(values)}"
                )


@dataclass(frozen=True)
class Outcome(Printable):
    """Result of an attack.

    Attributes:
        figures: measured figures.
        curve: curves of the attack.
        attack: name of the attack, once it was run from the catalogue.
    """

    figures: tuple[Figure, ...]
    curve: Curve
    attack: str = ""

    def __getitem__(self, name: str) -> Figure:
        """Return a figure by its name."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        known = ", ".join(repr(figure.name) for figure in self.figures)
        raise KeyError(f"no figure {name!r}; there are {known}")

    @property
    def rows(self) -> list[list[str]]:
        """Rows of the table that `str` prints: the head, and a row for each figure."""
        rows = [["", "without defence", "with defence", "expected"]]
        for figure in self.figures:
            name = f"{figure.name} ({figure.unit})" if figure.unit else figure.name
            values = figure.undefended, figure.defended, figure.expected
            rows.append([name, *("" if each is None else f"{each:,.4g}" for each in values)])
        keep = 4 if any(figure.expected is not None for figure in self.figures) else 3
        return [row[:keep] for row in rows]

    def __str__(self) -> str:
        rows = self.rows
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in rows
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the outcome to plain data for JSON."""
        return {
            "attack": self.attack,
            "figures": [asdict(figure) for figure in self.figures],
            "curve": {**asdict(self.curve), "lines": dict(self.curve.lines)},
        }

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the curves.

        Args:
            path: file for the picture; None to draw it only.

        Returns:
            the figure of matplotlib, which the extra ``plot`` installs.

        Raises:
            ImportError: matplotlib is not installed.
        """
        picture = need("Outcome.plot", "plot").Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = picture.add_subplot(title=self.attack.replace("-", " "))
        axes.set_xlabel(self.curve.x, fontsize=9)
        axes.set_ylabel(self.curve.y, fontsize=9)
        for name, values in self.curve.lines.items():
            style = "--" if name.startswith("with ") else "-"
            axes.plot(self.curve.at, values, style, marker=".", label=name)
        if "x" in self.curve.log:
            axes.set_xscale("log")
        if "y" in self.curve.log:
            axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False)
        if path is not None:
            picture.savefig(path, dpi=144)
        return picture


@dataclass(frozen=True)
class Attack:
    """An attack of the catalogue.

    Attributes:
        name: name in the catalogue, such as "publication-flood".
        title: one line on the adversary's actions.
        goal: property that the attack breaks: "availability", "confidentiality" or "integrity".
        adversary: attacking party, with its keys and capabilities.
        defence: countermeasure, and its place in the library.
        source: reference of the attack, such as "[WCJ07]"; empty for the library's own.
        taxonomy: place in the taxonomy of denial of service; None for an attack that denies none.
        function: function that carries the attack out.
    """

    name: str
    title: str
    goal: Goal
    adversary: str
    defence: str
    source: str
    taxonomy: Taxonomy | None
    function: Callable[..., Outcome]

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the attack and their defaults."""
        found = inspect.signature(self.function).parameters
        return {name: each.default for name, each in found.items()}

    @property
    def about(self) -> str:
        """Description: the first paragraph of the function's documentation."""
        return inspect.cleandoc(self.function.__doc__ or "").partition("\n\nArgs:")[0]

    def run(self, **parameters: Any) -> Outcome:
        """Run the attack.

        Args:
            parameters: parameters that differ from their defaults.

        Raises:
            ParameterError: the attack has no such parameter, or a value is out of bounds.
        """
        unknown = parameters.keys() - self.parameters.keys()
        if unknown:
            known = ", ".join(self.parameters)
            raise ParameterError(
                f"{self.name} has no parameter {min(unknown)!r}; its parameters are {known}"
            )
        return replace(self.function(**parameters), attack=self.name)


_ATTACKS: dict[str, Attack] = {}


def attack(
    *,
    title: str,
    goal: Goal,
    adversary: str,
    defence: str,
    source: str = "",
    taxonomy: Taxonomy | None = None,
) -> Callable[[Callable[P, Outcome]], Callable[P, Outcome]]:
    """Add a function to the catalogue, as a decorator that checks the kind of its arguments.

    All parameters of the function need defaults, with which it takes seconds at most. If a default
    is a whole number, the parameter takes whole numbers, and if it is another number, finite ones.
    No number may be negative, or more than `MOST` times the default; only `seed` may be larger. The
    function itself must check closer bounds, and parameters of other kinds.

    Args:
        title: one line on the adversary's actions.
        goal: property that the attack breaks.
        adversary: attacking party, with its keys and capabilities.
        defence: countermeasure.
        source: reference of the attack.
        taxonomy: place in the taxonomy of denial-of-service attacks.
    """

    def add(function: Callable[P, Outcome]) -> Callable[P, Outcome]:
        defaults = {
            name: each.default
            for name, each in inspect.signature(function).parameters.items()
            if isinstance(each.default, int | float)
        }

        @wraps(function)
        def checked(*args: P.args, **parameters: P.kwargs) -> Outcome:
            for name, value in parameters.items():
                if name in defaults:
                    default = defaults[name]
                    if isinstance(default, int):
                        whole(name, value, 0, None if name == "seed" else MOST * default)
                    else:
                        number(name, value, 0, MOST * default)
            return function(*args, **parameters)

        name = function.__name__.replace("_", "-")
        _ATTACKS[name] = Attack(name, title, goal, adversary, defence, source, taxonomy, checked)
        return checked

    return add


def all_attacks() -> dict[str, Attack]:
    """Return all attacks by name.

    Example:
        >>> from ccbps import attacks
        >>> flood = attacks.all_attacks()["publication-flood"]
        >>> flood.goal
        'availability'
        >>> print(flood.taxonomy)
        resource, client to broker, global, stateless, proportional
    """
    for module in MODULES:
        import_module(module)
    order = {module: place for place, module in enumerate(MODULES)}
    known = sorted(_ATTACKS.values(), key=lambda each: order.get(each.function.__module__, 0))
    return {each.name: each for each in known}


def run(name: str, **parameters: Any) -> Outcome:
    """Run an attack by its name.

    Args:
        name: name of the attack, a key of `all_attacks`.
        parameters: parameters that differ from their defaults.

    Raises:
        ParameterError: there is no such attack, it has no such parameter, or a value is out of
            bounds.

    Example:
        >>> from ccbps import attacks
        >>> outcome = attacks.run("publication-flood", brokers=1, seconds=1)
        >>> outcome["honest events delivered"].undefended < 0.7
        True
        >>> outcome["honest events delivered"].defended
        1.0
    """
    known = all_attacks()
    if name not in known:
        raise ParameterError(f"there is no attack {name!r}; attacks are {', '.join(known)}")
    return known[name].run(**parameters)
