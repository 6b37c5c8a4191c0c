"""A store as it stands, whole or broken: its segments and folders, its owner, and the lock that a broker holds."""
