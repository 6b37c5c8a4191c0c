"""Compiled loops: how they are compiled and kept, and checksums, hashes and Java's text that run in them."""
