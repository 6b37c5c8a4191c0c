"""``fetch``: a build found, its files brought here, and swapped in."""
