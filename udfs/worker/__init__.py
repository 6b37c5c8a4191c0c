"""The processes that tasks run in, Spark's workers and those of the local engine, and how each runs one task."""
