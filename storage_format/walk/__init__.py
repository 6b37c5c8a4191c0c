"""The loop over the records of a stretch of the log, and what it notes down."""
