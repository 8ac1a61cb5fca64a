"""The command line: what people do by hand. ``ccbps --help`` says what there is."""

from ccbps.cli.program import main

__all__ = ["main"]
