"""The command line ``ccbps``, for work by hand."""

from ccbps.cli.program import main

__all__ = ["main"]
