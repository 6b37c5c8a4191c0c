"""The Python API: each command as a function of its name."""
