"""Which offsets lie in stretches, and which segments a sample takes."""

from __future__ import annotations

from rocketmq_reindex.jobs.verifying.parts import between, sampled
from rocketmq_reindex.storage_format.scan.ranges import Segment


def test_a_stretch_ends_before_its_end() -> None:
    stretches = [(10, 20), (30, 30), (40, 41)]
    assert [at for at in range(50) if between(at, stretches)] == [*range(10, 20), 40]


def test_a_sample_is_spread_and_has_the_last_segment() -> None:
    segments = [Segment(str(k), "", k, k + 1, k + 1) for k in range(10)]
    assert sampled(segments, 1) == segments
    assert [one.start for one in sampled(segments, 0.3)] == [0, 3, 6, 9]
    assert [one.start for one in sampled(segments, 0.01)] == [0, 9]
