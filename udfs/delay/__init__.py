"""Join scheduled messages with their delivered copies, in tasks."""
