"""``--tables``: the Delta tables in which runs leave their rows."""
