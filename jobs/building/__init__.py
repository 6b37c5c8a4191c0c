"""The steps of a build: settings, plan, scan, decisions, writing, manifest, summary; and what ``--incremental`` keeps."""
