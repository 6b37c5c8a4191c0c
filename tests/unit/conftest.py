"""How hypothesis runs here: no deadline (the first call of a kernel compiles it), and a failure tells how to repeat it."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("unit")
