"""`python -m roam` is the `roam` command."""

from __future__ import annotations

import sys

from roam.cli import main

if __name__ == "__main__":
    sys.exit(main())
