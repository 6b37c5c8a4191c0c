"""Coverage-guided fuzzing (atheris) of everything that reads bytes from a store.

Each target is a module with ``check(data)``, which raises where the project and an independent plain reading differ,
``seeds(rng)``, ``DICTIONARY`` and ``MAX_LEN``. The record loops run as plain Python (``NUMBA_DISABLE_JIT=1``), where atheris
sees their branches and ``guard`` sees every index; what is found is run once more through the compiled loops.
"""

TARGETS = ("scan", "properties", "queue", "index", "checkpoint")
