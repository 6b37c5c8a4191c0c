"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os


def write_whole(path: str, text: str) -> None:
    """Write a file beside ``path``, then rename it. Raises OSError that names ``path``; what was there is then as before."""
    aside = f"{path}.{os.getpid()}"
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError):
            error.filename = path
        raise
