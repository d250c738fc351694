"""Text files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from roam.errors import InputError, StoreError

STANDARD_OUTPUT = "-"


def write_at_once(path: Path, content: str) -> None:
    """Write a text file so that whoever reads it finds the old content or the new one, never a part."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(content, encoding="utf-8", newline="")
    partial.replace(path)


def write_lines(path: str | Path, lines: Iterable[str]) -> int:
    """Write lines to a UTF-8 file ("-": standard output), replacing one that is there; return how many.

    The file takes its name when it is complete and on the disk: a failure leaves what was there before.

    Raises:
        InputError: a path that is no file in an existing folder.
        StoreError: a disk that is full or cannot be written to.
    """
    if str(path) == STANDARD_OUTPUT:
        count = 0
        for line in lines:
            sys.stdout.write(f"{line}\n")
            count += 1
        return count
    target = Path(path)
    if not str(path).strip() or target.is_dir() or not target.parent.is_dir():
        raise InputError(f"{str(path)!r} is not a file in an existing folder: create the folder or correct the path")
    try:
        return _write(target, lines)
    except OSError as error:
        raise StoreError(
            f"cannot write {str(path)!r}: {error.strerror or error}; free space or choose another folder"
        ) from error


def _write(target: Path, lines: Iterable[str]) -> int:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    part = Path(name)
    count = 0
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return count
