"""Spoils a copy of what is derived from a log (ConsumeQueue, IndexFiles, checkpoint), or the log, in one place."""

from __future__ import annotations

from tests.tools import spoil_index, spoil_queues, spoil_rest
from tests.tools.spoiling import Kinds

KINDS: Kinds = {**spoil_queues.KINDS, **spoil_index.KINDS, **spoil_rest.KINDS}
