"""What happened to a message: all records that belong to it, as a timeline."""
