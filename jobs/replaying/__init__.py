"""``rmq-reindex replay``: messages of a store or an export, sent into a living cluster."""
