"""One record of the commitlog: its layout, its fields, its properties."""
