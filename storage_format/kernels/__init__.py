"""Compiled loops: how they are compiled and kept, and checksums and hashes that run in them."""
