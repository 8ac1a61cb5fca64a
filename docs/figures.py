"""Sphinx extension by which pages show figures of the benchmarks, from figures.json.

`measured` says what names and formats are. There are

- tables, with some of their columns and rows, in their order, under other titles if they like, and
  with formats or ratios of columns; below the first one of a program stand command and machine::

      ```{figures} bench_ledger / Microseconds and bytes of a round
      :head: rounds
      :columns: encode -> encode, µs | .1f; with ledger ÷ encode -> ratio; bytes

      consecutive
      scattered -> `scattered`
      ```

- figures and ratios in a line::

      {figure}`bench_ledger / Microseconds and bytes of a round / consecutive / encode | .1f`
      {figure}`bench_ledger / Microseconds and bytes of a round / consecutive / encode ÷ limit`

- the machine, ``{machine}`bench_ledger` ``.

A name that the file does not have fails the build, and so does a line with a figure that nobody has
measured yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList
from measured import FIGURES, UnknownFigureError, entry_of, figure, load, markdown, source, split


class Figures(Directive):
    """Table of a program; its command and machine stand below the first one of a page."""

    required_arguments, final_argument_whitespace, has_content = 1, True, True
    option_spec: ClassVar = dict.fromkeys(("columns", "head"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        environment = self.state.document.settings.env
        environment.note_dependency(str(FIGURES))
        name = " ".join(self.arguments[0].split())
        options = {key: " ".join(text.split()) for key, text in self.options.items()}
        try:
            lines = markdown(name, filter(None, map(str.strip, self.content)), **options)
        except UnknownFigureError as error:
            raise self.error(str(error)) from None
        program = split(name, " / ")[0]
        sourced = environment.temp_data.setdefault("ccbps figures", set())
        if program not in sourced:
            sourced.add(program)
            lines += ["", f"*Measured by {source(program)}.*"]
        parent = nodes.container(classes=["figures"])
        self.state.nested_parse(StringList(lines, name), self.content_offset, parent)
        return list(parent.children)


def role(maker: Callable[[str], str]) -> Any:
    """Return a role that shows what a function makes of its text."""

    def run(
        name: str, rawtext: str, text: str, line: int, inliner: Any, *_: Any, **__: Any
    ) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        inliner.document.settings.env.note_dependency(str(FIGURES))
        try:
            return [nodes.Text(maker(text))], []
        except UnknownFigureError as error:
            message = inliner.reporter.error(str(error), line=line)
            return [inliner.problematic(rawtext, rawtext, message)], [message]

    return run


def setup(app: Any) -> dict[str, bool]:
    """Register the directive and the roles."""
    load.cache_clear()
    app.add_directive("figures", Figures)
    app.add_role("figure", role(figure))
    app.add_role("machine", role(lambda name: str(entry_of(name)["machine"])))
    return {"parallel_read_safe": True}
