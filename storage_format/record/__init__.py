"""The records of the commitlog: the layout, fields and properties of one, and the loop over those of a stretch of the log."""
