"""``rmq-reindex import``: a store that boots, of rows as ``rmq-reindex export`` writes them."""
