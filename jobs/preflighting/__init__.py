"""``preflight``: what the start of a broker will do to a store, said without a broker, and without writing anything."""
