"""Spark's Python daemon, and what its workers need."""
