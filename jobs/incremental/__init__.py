"""``build --incremental``: what was built before, which files stay, and which are written again."""
