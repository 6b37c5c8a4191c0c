"""What an engine raises when a process of its own is gone."""

from __future__ import annotations


class WorkerLostError(Exception):
    """A process of the engine has ended before its work: its task is lost, and the run with it."""
