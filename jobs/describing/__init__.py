"""Describe a store by its files and a sample of its log: no file is read whole, and no record is counted."""
