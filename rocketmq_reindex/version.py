"""The version of the package, for all that is written and shown. Everything below may import it."""

__version__ = "0.1.0"
