"""``verify``: the log against queues, index and checkpoint."""
