"""The version of the package, for all that is written and shown. It imports nothing, so that every module may import it."""

__version__ = "0.1.0"
