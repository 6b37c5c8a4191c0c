"""The plain reference gives what RocketMQ gave: it may then judge the code under test."""

from collections.abc import Callable

import pytest

from tests.golden.stores import NAMES, GoldenStore, index_in_order
from tests.reference.build import reference_build


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("queue_order", ["broker", "logical", "fail"])
def test_equals_the_brokers_rebuild(name: str, queue_order: str, golden_store: Callable[[str], GoldenStore]) -> None:
    store = golden_store(name)
    settings = store.broker_settings() | {
        "queue_order": queue_order,
        "crc": "all",
        "segment_size": max(path.stat().st_size for path in (store.path / "commitlog").iterdir()),
    }
    built = reference_build(store.path, **settings)
    expected = store.rebuilt()
    summary = built.summary
    assert (summary.exit, summary.decisions, summary.torn_tail, summary.warnings) == (0, [], None, [])
    queues = {path: content for path, content in built.files.items() if path.startswith("consumequeue/")}
    assert queues == {path: content for path, content in expected.items() if path.startswith("consumequeue/")}
    assert index_in_order(built.files) == index_in_order(expected)
    assert built.files["checkpoint"] == expected["checkpoint"]


def test_index_files_are_named_in_order(golden_store: Callable[[str], GoldenStore]) -> None:
    store = golden_store("wide-keys")
    built = reference_build(store.path, **store.broker_settings())
    names = [path.removeprefix("index/") for path in built.files if path.startswith("index/")]
    assert names == sorted(set(names))
    assert names[0] == "0" * 17
    assert {len(name) for name in names} == {17}
