"""IndexFiles: their layout, how they are cut, built, read and searched."""
