"""Command-line arguments of all programs: an unknown option's error names the nearest one that there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser, with the nearest options in its errors."""

    given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does."""
        self.given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        super().error(message + self.nearest())

    def nearest(self) -> str:
        """The nearest known option of each unknown one, as the end of an error; empty when there is none."""
        import difflib  # only when something is wrong: programs should start fast

        known = sorted(set(_options(self)))
        out = ""
        for argument in self.given:
            option = argument.partition("=")[0]
            if option.startswith("--") and not any(name.startswith(option) for name in known):
                found = difflib.get_close_matches(option, known, n=1)
                out += f"; {option}: did you mean {found[0]}?" if found else ""
        return out


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Options of a parser and of its commands."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
