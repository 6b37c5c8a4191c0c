"""What a build passes to the recorder of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary


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
        """Look, just before publishing, whether this run is still the one that is recorded. Raises InputError if not."""

    def built_from(self, scan: Scan, accepted: list[RangeSummary], until: int) -> None:
        """The build is made from these ranges of the log, which was read up to the offset ``until``."""
