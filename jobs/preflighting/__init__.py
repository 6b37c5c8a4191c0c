"""``preflight``: say what the start of a broker will do to a store, without a broker, and without writing anything."""
