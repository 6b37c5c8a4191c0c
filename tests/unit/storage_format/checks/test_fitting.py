"""Which versions fit what a store holds."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.store.fitting import Fit, Sign, fit
from rocketmq_reindex.storage_format.versions import NEWEST, VERSIONS

TAGS, OFFSET, NO_OFFSET = Sign("tags", oldest="5.4"), Sign("offset", oldest="5.5"), Sign("no offset", newest="5.4")
NO_TAGS, CONFIRM, EMPTY = Sign("no tags", newest="5.3"), Sign("confirm", oldest="5.3"), Sign("count 0", newest="4.9")


@pytest.mark.parametrize(
    ("signs", "found"),
    [
        ([], Fit(VERSIONS, NEWEST)),
        ([OFFSET, TAGS], Fit(("5.5",), "5.5")),
        ([TAGS], Fit(("5.5", "5.4"), "5.5")),
        ([NO_OFFSET, TAGS], Fit(("5.4",), "5.4")),
        ([NO_OFFSET, NO_TAGS], Fit(("5.3", "4.9"), "5.3")),
        ([NO_OFFSET, NO_TAGS, CONFIRM], Fit(("5.3",), "5.3")),
        ([EMPTY], Fit(("4.9",), "4.9")),
        ([OFFSET, NO_TAGS], Fit(("5.5",), "5.5", mixed=True)),
    ],
)
def test_the_newest_that_fits(signs: list[Sign], found: Fit) -> None:
    assert fit(signs) == fit(signs[::-1]) == found
