"""Scan ranges of the log: units, index items, topics and one summary of each range."""
