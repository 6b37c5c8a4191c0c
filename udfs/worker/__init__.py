"""Spark's Python daemon and its workers."""
