"""Put the units of each queue in order."""
