"""Entry for spark-submit: ``spark-submit ... jobs/build.py STORE --out DIR ...``."""

from __future__ import annotations

import sys

from jobs.cli import build

if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
