"""The checks that compare the files derived from a log with what the log says they should be."""
