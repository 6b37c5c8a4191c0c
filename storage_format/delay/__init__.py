"""Delayed, timed and half messages in a log: which were delivered, which a broker has to deliver; its timer files."""
