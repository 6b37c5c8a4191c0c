"""ConsumeQueue files: their units, and the order of the units of a queue."""
