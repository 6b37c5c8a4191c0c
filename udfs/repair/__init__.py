"""Mend the damaged stretches of a log: decide what stands there, and write the new segments."""
