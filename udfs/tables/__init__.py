"""Rows of the Delta tables."""
