"""How the benchmark programs refuse: one line that says what to do, and exit code 2."""

from __future__ import annotations

import sys

from roam.errors import RoamError


def refused(program: str, error: RoamError | ModuleNotFoundError) -> int:
    """Say on standard error what is wrong, or which package is missing; returns the exit code."""
    if isinstance(error, ModuleNotFoundError):
        name = error.name or "a package"
        print(f"{program}: {name} is not installed: pip install -c constraints.txt {name}", file=sys.stderr)
    else:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
