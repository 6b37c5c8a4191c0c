"""Stores in the browser: pages that show what lies in them, on loopback alone."""
