"""conf/defaults.json, the command line and BuildSettings name the same defaults."""

import json
from pathlib import Path

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.storage_format.integers import INT64_MAX

CONF = Path(__file__).resolve().parents[2] / "conf" / "defaults.json"
FIELDS = {"commitlog": "commitlogs", "include-topic": "include_topics", "exclude-topic": "exclude_topics"}


def test_defaults_file_and_settings_agree() -> None:
    settings = BuildSettings("store", "out")
    for option, entry in json.loads(CONF.read_text()).items():
        assert entry["why"]
        value = getattr(settings, FIELDS.get(option, option.replace("-", "_")))
        wanted = entry["value"]
        if isinstance(value, tuple):
            assert list(value) == (wanted or []), option
        elif wanted is None:
            assert value in (0, "", INT64_MAX), option
        else:
            assert value == wanted, option
