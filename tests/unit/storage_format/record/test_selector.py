"""What RocketMQ's SQL92 says of properties: three values, texts that are numbers, and what is no expression.

``tests/oracle/test_selector.py`` asks RocketMQ's own filter.
"""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.record.selector import Selector, SelectorError


@pytest.mark.parametrize(
    ("text", "properties", "taken"),
    [
        ("a > 5", {"a": "5.5"}, False),  # read as a whole number, which it is not
        ("a > 5.0", {"a": "5.5"}, True),
        ("a > 5.0", {"a": " 1e3d "}, True),
        ("a = 5", {"a": "2147483648"}, False),
        ("a > 5L", {"a": "5"}, False),  # a long constant of few digits is an int
        ("a < 2147483648", {"a": "2147483647"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a = b", {}, True),
        ("a = 'x'", {}, False),
        ("NOT a = 'x'", {}, False),
        ("a = 'x' OR TRUE", {}, True),
        ("a > 1 OR TRUE", {"a": "x"}, False),
        ("TRUE OR a > 1", {"a": "x"}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
        ("a NOT IN ('x')", {}, False),
        ("a NOT CONTAINS 'x'", {}, False),
        ("a CONTAINS ''", {"a": "x"}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("TAGS /* c */ is not -- c\n null", {"TAGS": "x"}, True),
        ("a", {"a": "true"}, False),
        ("a > 5 OR TRUE", {"a": "9" * 5000}, False),  # no number that 64 bits hold, as for Java
        ("a = 5", {"a": "0" * 5000 + "5"}, True),
        ("a = 3", {"a": "٣"}, True),  # Character.digit knows it
        ("a = -5", {"a": "-" + "0" * 5000 + "5"}, True),
        ("a > 5.0", {"a": "9" * 5000}, True),
    ],
)
def test_answers(text: str, properties: dict[str, str], taken: bool) -> None:
    assert Selector(text).matches(properties) is taken


def test_what_is_no_expression() -> None:
    for text in (
        "",
        "a >",
        "5",
        "a = NULL",
        "a BETWEEN 3 AND 1",
        "a > 'x'",
        "'a",
        "a = 5 b",
        "5 IN ('5')",
        "(" * 5000,
        "99999999999999999999 = a",
        "9" * 5000 + " = a",
        "a" + " IS NOT NULL" * 600,
        "a" + " = b" * 600,
        "NOT " * 150 + "TRUE",
    ):
        with pytest.raises(SelectorError):
            Selector(text)


def test_long_chains() -> None:
    assert Selector(" OR ".join(["a = 'x'"] * 20_000)).matches({"a": "x"})
    assert Selector("a = '1' AND b = '2'").names == ("a", "b")
