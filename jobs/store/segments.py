"""The commitlog's segments, listed by the same code on the driver as for Spark SQL's data sources."""

from rocketmq_reindex.udfs.scan.segments import Commitlog, check_unchanged, list_segments, meant_by

__all__ = ["Commitlog", "check_unchanged", "list_segments", "meant_by"]
