"""Measurements that take minutes or gigabytes: run by name, not in CI."""
