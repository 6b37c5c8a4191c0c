"""The Python API: ``build``, ``verify``, ``query``, ``inspect``, ``report`` and ``fetch`` as functions."""
