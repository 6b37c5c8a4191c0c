"""``inspect``: show what one file of a store holds."""
