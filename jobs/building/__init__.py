"""The steps of a build, and what it is asked and tells: settings, plan, scan, decisions, writing, manifest, summary."""
