"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os


def write_whole(path: str, text: str) -> None:
    """Write beside its place, then put it under its name. Raises OSError, with what stood there as it was."""
    aside = f"{path}.{os.getpid()}"
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise
