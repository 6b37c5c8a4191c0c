"""The judge of ``rmq-reindex repair``: damaged stores are repaired, and started by the real RocketMQ."""
