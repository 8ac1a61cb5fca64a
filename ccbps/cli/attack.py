"""``ccbps attack``: attack a simulated deployment, without and with the defence."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from textwrap import fill
from typing import Final

from ccbps.attacks.catalogue import Attack, all_attacks
from ccbps.cli.command import JSON, REPEATED, Command, Option, answer
from ccbps.cli.inputs import check_picture, read_settings
from ccbps.errors import ParameterError

WIDTH: Final = 100
"""Columns of the text."""


def _attack(arguments: Namespace) -> int:
    r"""Run an attack on a simulated deployment, without and with the defence.

    Without a name, the command lists all attacks. With one, it says what the adversary has, carries
    the attack out with the library's own roles and brokers, and prints its figures. With --set, it
    takes the numbers of your own deployment.

    Example:
        ccbps attack
        ccbps attack publication-flood
        ccbps attack publication-flood --set flood=5000 --set limit=50 --plot flood.png
    """
    known = all_attacks()
    if arguments.name is None:
        if arguments.set or arguments.plot is not None:
            raise ParameterError("--set and --plot need the name of an attack")
        answer(arguments, _list(known), attacks=[_described(each) for each in known.values()])
        return 0
    if arguments.name not in known:
        raise ParameterError(f"there is no attack {arguments.name!r}; `ccbps attack` lists them")
    check_picture(arguments.plot)
    attack = known[arguments.name]
    outcome = attack.run(**read_settings("--set", arguments.set))
    settings = ", ".join(f"{name}={value!r}" for name, value in attack.parameters.items())
    about = f"{attack.title}. {attack.about}".replace("`", "")
    paragraphs = [
        *(fill(paragraph, WIDTH) for paragraph in about.split("\n\n")),
        fill(f"The adversary is {attack.adversary}.", WIDTH),
        str(outcome),
        fill(f"Defence: {attack.defence.replace('`', '')}.", WIDTH),
        fill(f"Defaults of --set: {settings}", WIDTH),
    ]
    if attack.taxonomy is not None:
        paragraphs.insert(-3, f"Taxonomy: {attack.taxonomy}")
    if arguments.plot is not None:
        outcome.plot(arguments.plot)
        paragraphs.append(f"picture written to {arguments.plot}")
    answer(arguments, "\n\n".join(paragraphs), **{**_described(attack), **outcome.to_dict()})
    return 0


def _list(known: Mapping[str, Attack]) -> str:
    """Return a table of the attacks, under what they take away."""
    width, lines = max(map(len, known)), []
    for goal in dict.fromkeys(attack.goal for attack in known.values()):
        lines += ["", f"attacks on {goal}"]
        for name, attack in known.items():
            if attack.goal == goal:
                lines.append(f"  {name.ljust(width)}  {attack.title}")
    return "\n".join(lines[1:])


def _described(attack: Attack) -> dict[str, object]:
    """Return what JSON says of an attack."""
    return {
        "attack": attack.name,
        "title": attack.title,
        "goal": attack.goal,
        "adversary": attack.adversary,
        "defence": attack.defence,
        "source": attack.source,
        "taxonomy": None if attack.taxonomy is None else str(attack.taxonomy),
        "parameters": attack.parameters,
    }


ATTACK: Final = Command(
    "attack",
    _attack,
    (
        Option("name NAME", "name of the attack", nargs="?"),
        Option("--set PARAMETER=VALUE", "parameter of the attack", **REPEATED),
        Option("--plot FILE", "picture of the attack's curve (pip install 'ccbps[plot]')"),
        JSON,
    ),
)
