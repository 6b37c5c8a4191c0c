"""The scan of a byte range of the log, and how the ranges join into one log."""
