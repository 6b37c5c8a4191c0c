"""Consumer groups: how far each is in its queues, what it has left, and a new file of their offsets."""
