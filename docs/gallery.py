"""Make attack_gallery.md: every attack of the catalogue, run, with its figures and its picture.

`make docs` writes the page and docs/images/attack_*.svg, which are not part of the repository;
`python docs/gallery.py` does it alone.
"""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib as mpl

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from leakage_table import table

from ccbps.attacks import Attack, Outcome, all_attacks
from ccbps.attacks import run as carry_out

PAGE = DOCS / "attack_gallery.md"
HEAD = """# Gallery of attacks

Every attack of `ccbps.attacks`, carried out when this page was made, with the defaults of its
function: without the defence, and with it. `ccbps attack NAME` prints the same, and `--set` takes
the numbers of your own deployment. [Attack your own deployment](attack_your_own.md) says how to
read the figures.
"""
SETTINGS = {"svg.hashsalt": "ccbps", "svg.fonttype": "none", "font.family": "sans-serif"}


def outcome_of(name: str) -> Outcome:
    """Carry an attack out, and draw it."""
    with warnings.catch_warnings(), mpl.rc_context(SETTINGS):
        warnings.simplefilter("ignore")  # of broken schemes, which are attacked here
        outcome = carry_out(name)
        picture = DOCS / "images" / f"attack_{name.replace('-', '_')}.svg"
        outcome.plot().savefig(picture, metadata={"Date": None})
    return outcome


def section(attack: Attack, outcome: Outcome) -> str:
    """Return the section of an attack."""
    (_, *head), *rows = outcome.rows
    lines = [
        f"### {attack.name}",
        "",
        f"{attack.title}. {attack.about}",
        "",
        f"- **Adversary:** {attack.adversary}.",
        f"- **Defence:** {attack.defence}.",
    ]
    if attack.taxonomy is not None:
        lines.append(f"- **Taxonomy:** {attack.taxonomy}.")
    picture = f"images/attack_{attack.name.replace('-', '_')}.svg"
    return "\n".join(
        [*lines, "", table(["figure", *head], rows), f"![{attack.title}]({picture})", ""]
    )


def gallery(outcomes: dict[str, Outcome]) -> str:
    """Return the page."""
    known, parts = all_attacks(), [HEAD]
    for goal in dict.fromkeys(attack.goal for attack in known.values()):
        parts.append(f"## Attacks on {goal}\n")
        parts += [
            section(known[name], outcome)
            for name, outcome in outcomes.items()
            if known[name].goal == goal
        ]
    return "\n".join(parts)


def write() -> None:
    """Write the page and its pictures, unless they are newer than the library."""
    if PAGE.exists():
        sources = [*DOCS.parent.glob("ccbps/**/*.py"), Path(__file__)]
        if PAGE.stat().st_mtime > max(path.stat().st_mtime for path in sources):
            return
    names = [*all_attacks()]
    with ProcessPoolExecutor(2) as pool:
        outcomes = dict(zip(names, pool.map(outcome_of, names), strict=True))
    PAGE.write_text(gallery(outcomes), encoding="utf-8")


if __name__ == "__main__":
    write()
