"""JSON with bare numbers as keys."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format import layouts


def test_keys_that_are_numbers() -> None:
    text = '{"offsetTable":{"a@b":{0:25,\n\t1 : 3},"{0:1,2:3}\\"{4:5":{"0":1}}}'
    assert layouts.loads(text) == {"offsetTable": {"a@b": {"0": 25, "1": 3}, '{0:1,2:3}"{4:5': {"0": 1}}}
    assert layouts.loads("[1, 2, {3: [4, 5]}]") == [1, 2, {"3": [4, 5]}]


def test_a_text_without_an_end_takes_no_time() -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        layouts.loads('{"' + '\\"' * 1_000_000)


def test_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        layouts.loads("{a:1}")
