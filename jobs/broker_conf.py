"""Settings from a broker's own properties file (``MessageStoreConfig``)."""

from __future__ import annotations

from typing import Any

from storage_format.consume_queue import UNIT_SIZE
from storage_format.errors import UsageError

_NUMBERS = {
    "mappedFileSizeCommitLog": "segment_size",
    "mappedFileSizeConsumeQueue": "cq_file_size",
    "maxHashSlotNum": "hash_slots",
    "maxIndexNum": "index_items",
}


def read_properties(text: str) -> dict[str, str]:
    """``name = value`` lines of a Java properties file; comments and continued lines as ``Properties.load`` takes them."""
    found: dict[str, str] = {}
    joined = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        joined += line
        if len(joined) - len(joined.rstrip("\\")) & 1:
            joined = joined[:-1]
            continue
        at = min((joined.find(c) for c in "=: \t" if c in joined), default=len(joined))
        name, value = joined[:at].rstrip(), joined[at:].lstrip(" \t")
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(" \t")
        found[name] = value
        joined = ""
    return found


def settings_of(text: str, path: str) -> dict[str, Any]:
    """What a broker.conf says of sizes, roots, delay levels and LMQ, by the names of ``BuildSettings``."""
    conf = read_properties(text)
    found: dict[str, Any] = {}
    for name, setting in _NUMBERS.items():
        if name in conf:
            try:
                found[setting] = int(conf[name].strip())
            except ValueError:
                raise UsageError(f"{path}: {name} is {conf[name]!r}, not a number") from None
    if "cq_file_size" in found:
        # MessageStoreConfig.getMappedFileSizeConsumeQueue rounds up to whole units.
        found["cq_file_size"] = -(-found["cq_file_size"] // UNIT_SIZE) * UNIT_SIZE
    if conf.get("storePathRootDir", "").strip():
        found["store"] = conf["storePathRootDir"].strip()
    if conf.get("storePathCommitLog", "").strip():
        # MixAll.MULTI_PATH_SPLITTER
        roots = [root.strip() for root in conf["storePathCommitLog"].split(",")]
        found["commitlogs"] = tuple(root for root in roots if root)
    if conf.get("messageDelayLevel", "").strip():
        found["delay_levels"] = conf["messageDelayLevel"].strip()
    switches = [conf.get(name, "false").strip().lower() == "true" for name in ("enableLmq", "enableMultiDispatch")]
    if all(switches):
        found["lmq"] = True
    return found
