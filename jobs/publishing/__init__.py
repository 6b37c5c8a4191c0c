"""Where a run writes, what counts there, and how what was written becomes visible: all of it or nothing."""
