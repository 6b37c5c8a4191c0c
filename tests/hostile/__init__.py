"""Input made to harm: names, sizes, queues and keys that a well-meaning broker never writes."""
