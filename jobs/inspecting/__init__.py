"""``inspect``: what one file holds, by its kind."""
