"""What jobs ask of Spark: a session, and an engine to run in it."""
