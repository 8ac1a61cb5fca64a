"""``python -m ccbps``: the command line."""

import sys

from ccbps.cli import main

if __name__ == "__main__":
    sys.exit(main())
