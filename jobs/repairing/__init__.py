"""``rmq-reindex repair``: a new commitlog that a broker accepts whole, with the files derived from it."""
