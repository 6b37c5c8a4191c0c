"""What ``rmq-reindex preflight`` says of a start, held against real stores that start."""
