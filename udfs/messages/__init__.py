"""Records of the log as Arrow batches of messages."""
