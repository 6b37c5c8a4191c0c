"""``rmq-reindex replay``: messages of a store, sent into a living cluster."""
