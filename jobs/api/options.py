"""``options`` of the Python API."""

from __future__ import annotations

from typing import Any, Literal

from rocketmq_reindex.jobs.api.keywords import keywords_in
from rocketmq_reindex.storage_format.errors import UsageError


def options(command: Literal["build", "verify"], text: str) -> dict[str, Any]:
    """The keyword arguments that options of the command line stand for, for a job or a notebook that is given a text.

    Args:
        command: The function that they are for: ``build`` or ``verify``.
        text: Options as on the command line, quoted as for a shell. An empty text has none.

    Returns:
        Keyword arguments by name.

    Raises:
        UsageError: The command has no such option, the option has no such value, or the command is another (exit status 2).

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.options("build", "--only index,checkpoint --hash-slots 500 --lmq")
        {'only': ('index', 'checkpoint'), 'hash_slots': 500, 'lmq': True}
    """
    if command == "build":
        from rocketmq_reindex.jobs.building.options import build_parser

        return keywords_in(build_parser(), text)
    if command != "verify":
        raise UsageError(f"options: no command {command!r}: take 'build' or 'verify'")
    from rocketmq_reindex.jobs.verifying.options import build_parser

    return keywords_in(build_parser(), text)
