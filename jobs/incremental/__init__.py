"""``build --incremental``: what was built before, what stays of it, and what is made anew."""
