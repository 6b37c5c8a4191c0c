"""Tell whether a build is sure to need its engine, which then starts while Python still imports. Nothing slow is imported here.

By itself: it decides while Python still imports the build.
"""

from rocketmq_reindex.jobs.building import inputs as building_inputs, options as building_options, scanning
from rocketmq_reindex.jobs.incremental import last_build
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.storage_format.errors import ReindexError


def needs_engine(settings: building_options.BuildSettings, inputs: building_inputs.Inputs) -> bool:
    """Return whether an engine is needed for certain. An incremental run looks more closely once it holds the lock of DIR."""
    if settings.dry_run:
        return False
    if not settings.incremental:
        return True
    try:
        standing = output.standing(inputs.target)
        if output.lacks_manifest(inputs.target):
            # It may be put back, and then nothing may be new.
            return False
        return standing is None or last_build.is_new(scanning.store_of(settings, inputs.target), standing.digest, inputs.log)
    except (ReindexError, OSError):
        # The run itself meets the same error, and reports it.
        return False
