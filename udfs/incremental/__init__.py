"""Reuse what an earlier run scanned and wrote."""
