"""``--write-delay`` and ``--consumer-offsets``: the files by which a restored broker knows what was delivered."""
