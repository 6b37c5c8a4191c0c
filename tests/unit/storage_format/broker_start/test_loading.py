"""Which files a start loads. The real stores' answers to the same states: tests/serving/test_refusals.py."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.broker_start.listing import FILE, FOLDER, OTHER, Listed, ListedQueue, Listing, parse_int
from rocketmq_reindex.storage_format.broker_start.loading import KINDS, ConfiguredSizes, Loading, load

SIZES = ConfiguredSizes(segment=1000, queue=400, batch=460, timer_log=520)


def name(start: int) -> str:
    return f"{start:020d}"


def file(path: str, size: int) -> Listed:
    return Listed(path.rpartition("/")[2], path, FILE, size)


def folder(path: str) -> Listed:
    return Listed(path.rpartition("/")[2], path, FOLDER)


def queue(topic: str, number: str, *files: Listed, batch: bool = False) -> ListedQueue:
    return ListedQueue(topic, number, f"consumequeue/{topic}/{number}", files, batch)


def kinds(found: Loading) -> list[str]:
    return [refusal.kind for refusal in found.refusals]


def test_a_whole_store() -> None:
    segments = [file(f"commitlog/{name(start)}", 1000) for start in (2000, 0, 1000)]
    units = file(f"consumequeue/T/0/{name(0)}", 400)
    found = load(Listing(segments, [queue("T", "0", units)], [file("index/1", 5)], file("checkpoint", 4096)), SIZES, "5.5.1")
    assert found.refusals == ()
    assert [entry.name for entry in found.segments] == [name(0), name(1000), name(2000)]
    assert [(loaded.topic, loaded.queue, loaded.files) for loaded in found.queues] == [("T", 0, (units,))]
    assert [entry.name for entry in found.indexes] == ["1"]


@pytest.mark.parametrize("release", ["4.9.8", "5.3.3"])
def test_the_last_file_without_bytes(release: str) -> None:
    """5.x removes it, but only where no folder's name lies behind it."""
    empty = file(f"commitlog/{name(1000)}", 0)
    found = load(Listing([file(f"commitlog/{name(0)}", 1000), empty]), SIZES, release)
    assert kinds(found) == (["log-file-size"] if release == "4.9.8" else [])
    assert found.removed == (() if release == "4.9.8" else (empty.path,))
    assert kinds(load(Listing([empty, folder("commitlog/z")]), SIZES, "5.3.3")) == ["log-file-size"]


def test_names_are_ordered_as_java_orders_them() -> None:
    """A character beyond the BMP begins with a surrogate, which is below U+FFFD."""
    beyond, below = file("commitlog/\U00010000", 0), file("commitlog/\ufffd", 0)
    assert load(Listing([beyond, below]), SIZES, "5.5.1").removed == (below.path,)


@pytest.mark.parametrize(("entry", "kind"), [
    (file("commitlog/x", 1000), "log-file-name"),
    (file(f"commitlog/{'9' * 20}", 1000), "log-file-name"),
    (file(f"commitlog/{name(0)}", 999), "log-file-size"),
    (Listed(name(0), "commitlog/pipe", OTHER, 1000), "log-file-size"),
])  # fmt: skip
def test_what_is_no_segment(entry: Listed, kind: str) -> None:
    found = load(Listing([entry, file(f"commitlog/{name(5000)}", 1000)]), SIZES, "5.5.1")
    assert [(refusal.kind, refusal.path) for refusal in found.refusals] == [(kind, entry.path)]


def test_a_file_of_an_odd_name_is_loaded() -> None:
    odd = [file("commitlog/7", 1000), file(f"commitlog/{name(1500)}", 1000), file("commitlog/+1", 1000)]
    found = load(Listing(odd), SIZES, "5.5.1")
    assert (set(found.odd), len(found.segments)) == ({entry.path for entry in odd}, 3)


def test_the_folder_of_a_queue_has_the_number_as_its_name() -> None:
    bad = file(f"consumequeue/T/007/{name(0)}", 1)
    assert kinds(load(Listing(queues=[queue("T", "007", bad)]), SIZES, "5.5.1")) == []
    assert kinds(load(Listing(queues=[queue("T", "007"), queue("T", "7", bad)]), SIZES, "5.5.1")) == ["queue-file-size"]


def test_queue_types_that_disagree() -> None:
    """Once for each topic; 4.9 knows no batch queues."""
    wrong = [queue("B", "0"), queue("B", "1"), queue("S", "0", batch=True), queue("odd", "x", batch=True)]
    listing = Listing(queues=wrong, queue_types={"B": "BatchCQ"})
    assert kinds(load(listing, SIZES, "5.3.3")) == ["queue-type", "queue-type"]
    assert kinds(load(listing, SIZES, "4.9.8")) == []
    right = Listing(queues=[queue("B", "0", batch=True), queue("S", "0")], queue_types={"B": "BatchCQ"})
    assert kinds(load(right, SIZES, "5.3.3")) == []


def test_the_index() -> None:
    entries = [folder("index/2"), file("index/1", 5), file("index/3", 5), file("index/x", 5)]
    new, old = (load(Listing(indexes=entries), SIZES, release) for release in ("5.5.1", "4.9.8"))
    assert (kinds(new), [entry.name for entry in new.indexes]) == (["index-folder"], ["1", "3"])
    assert (kinds(old), [entry.name for entry in old.indexes]) == ([], ["1"])


def test_what_has_a_name_of_its_own() -> None:
    listing = Listing(
        checkpoint=folder("checkpoint"), lock=Listed("lock", "lock", OTHER), abort=folder("abort"),
        timer_log=[file(f"timerlog/{name(0)}", 1)], timer_wheel=file("timerwheel", 5), timer_check=folder("timercheck"),
    )  # fmt: skip
    both = ["checkpoint-not-a-file", "lock-not-a-file"]
    assert kinds(load(listing, SIZES, "4.9.8")) == both
    timers = ["timer-check-not-a-file", "timer-wheel-size", "timer-log-file-size"]
    assert kinds(load(listing, SIZES, "5.5.1")) == [*both, "abort-not-a-file", *timers]


@pytest.mark.parametrize(("holder", "who"), [(77, "process 77"), (0, "a process that is not known")])
def test_a_lock_that_is_held(holder: int, who: str) -> None:
    found = load(Listing(lock=file("lock", 4), lock_holder=holder), SIZES, "5.5.1")
    assert kinds(found) == ["lock-held"]
    assert who in found.refusals[0].detail


@pytest.mark.parametrize(("text", "number"), [
    ("0", 0), ("007", 7), ("+7", 7), ("-7", -7), ("٧", 7), ("2147483647", 2**31 - 1), ("2147483648", None), ("", None),
    ("+", None), ("1 ", None), ("1\n", None), ("²", None), ("1_0", None), ("9" * 5000, None),
])  # fmt: skip
def test_parse_int(text: str, number: int | None) -> None:
    assert parse_int(text) == number


def test_every_kind_of_refusal_is_one_that_is_explained() -> None:
    assert all(text and not text.endswith(".") for text in KINDS.values())
