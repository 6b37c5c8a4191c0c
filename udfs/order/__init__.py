"""Put the units of each queue in order, by the queue order policy."""
