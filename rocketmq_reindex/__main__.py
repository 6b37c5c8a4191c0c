"""``python -m rocketmq_reindex``: the command line."""

import sys

from rocketmq_reindex.jobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
