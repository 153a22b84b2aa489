"""`python -m pinnfuse`: the command `pinnfuse` of a checkout that was not installed."""

import sys

from pinnfuse.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
