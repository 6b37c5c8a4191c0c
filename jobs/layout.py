"""What a build leaves in DIR, by name."""

from typing import Final

MANIFEST: Final = "reindex.json"
CONFIG: Final = "config"
TOPICS: Final = f"{CONFIG}/topics.json"
PUBLISHED: Final = ("consumequeue", "batchconsumequeue", "index", "checkpoint", CONFIG, MANIFEST)
"""Names a build writes in DIR; ``--overwrite`` replaces a folder that holds nothing else, and the manifest."""
