"""Compare the files of a store with its log."""
