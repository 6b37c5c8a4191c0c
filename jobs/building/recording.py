"""What a build passes to the recorder of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.storage_format.scan.range_summary import RangeSummary


class Unrecorded:
    """Records nothing. ``jobs.tables`` overrides these methods to write the rows of the run."""

    has_rows = False
    """whether a published build gets rows"""

    def recording(
        self, manifest: str, published: Callable[[], bool], complete: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Return a context for the whole run; its end records the outcome.

        ``manifest`` is the path of the manifest once ``published()`` is true; ``complete`` is called when all rows are written.
        """
        _ = manifest, published, complete
        return contextlib.nullcontext()

    def check(self) -> None:
        """Raises InputError when it is known by now that the run cannot be recorded: then nothing may be published."""

    def wait_started(self) -> None:
        """Wait until the start of the run is recorded. Raises InputError as ``check``."""

    def built_from(self, scan: Scan, accepted: list[RangeSummary], until: int) -> None:
        """The build is made from these ranges of the log, which was read up to the offset ``until``."""
