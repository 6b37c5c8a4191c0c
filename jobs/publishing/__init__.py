"""Where a run writes, and how what it wrote becomes visible: all of it or nothing."""
