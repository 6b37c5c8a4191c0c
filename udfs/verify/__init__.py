"""Compare the files of a store with its log, or two stores with each other."""
