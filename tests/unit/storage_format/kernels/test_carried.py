"""Which of the compiled loops that come with a package fit a processor, by the features that it says it has."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.kernels import cache_folder, compiler

V4, V3 = cache_folder.LEVELS
ZEN_3 = {*V3.needed.split(), "adx", "aes", "sse4a", "vaes", "vpclmulqdq"}
SKYLAKE_X = {*V3.needed.split(), "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ICE_LAKE = SKYLAKE_X | {"vpclmulqdq", "gfni"}


@pytest.mark.parametrize(
    ("features", "level"),
    [
        (ICE_LAKE, V4),
        # Its loops would ask for an instruction that it does not have.
        (SKYLAKE_X, V3),
        (ZEN_3, V3),
        (ZEN_3 - {"pclmul"}, None),
        (ZEN_3 - {"avx2"}, None),
        ({"64bit", "sse2"}, None),
        ({"neon", "crc"}, None),
        (set(), None),
    ],
)
def test_the_best_level_that_fits(features: set[str], level: cache_folder.Level | None) -> None:
    known = dict.fromkeys((*V4.needed.split(), "neon", "crc"), False)
    assert cache_folder.fitting(known | dict.fromkeys(features, True)) == level
    assert cache_folder.fitting(dict.fromkeys(features, True)) == level


def test_each_feature_of_a_level_is_needed() -> None:
    for level in cache_folder.LEVELS:
        for name in level.needed.split():
            assert cache_folder.fitting(dict.fromkeys(level.needed.split(), True) | {name: False}) != level, name


def test_the_loops_of_a_level_fold_as_its_processors_do() -> None:
    assert compiler.folding(V4.features) == (True, True)
    assert compiler.folding(V3.features) == (True, False)


def test_a_checkout_has_none() -> None:
    assert cache_folder.carried_level() is None
    assert not cache_folder.is_carried("loop.walk")
    assert cache_folder.carried_content("loop.walk") == b""
