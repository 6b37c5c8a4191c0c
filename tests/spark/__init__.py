"""Builds on a real Spark session, and the command line from outside."""
