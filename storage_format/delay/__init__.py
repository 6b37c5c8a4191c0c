"""Delayed, timed and half messages in a log: which of them were delivered, and which a broker still has to deliver."""
