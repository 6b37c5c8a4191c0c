"""Tools that make logs and spoil them."""
