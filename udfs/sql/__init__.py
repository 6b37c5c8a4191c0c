"""Data sources and functions for Spark SQL."""
