"""What must stay small however large the log is, measured in small: the full numbers are tests/bench."""
