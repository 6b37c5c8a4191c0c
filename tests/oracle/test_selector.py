"""``export --sql`` and RocketMQ's own filter of 5.5.0 answer alike, for random expressions and messages."""

from __future__ import annotations

import random
import subprocess

import pytest

from rocketmq_reindex.storage_format.record.selector import Selector, SelectorError
from tests.oracle.scenarios import FOLDER, java_home

COUNT = 4000
NAMES = ("a", "b", "TAGS", "$x_1", "A")
VALUES = (
    "5", "-5", "+5", "05", "5.0", "5.5", " 5 ", "5e0", "5d", "x", "", "TRUE", "true", "2147483647", "2147483648", "NaN",
    "-0.0", "0", "9223372036854775807", "Infinity", "٣", "it's", "0x1p2", "1_0",
)  # fmt: skip
NUMBERS = ("5", "0", "5.0", "-5", "5L", "2147483648", "9223372036854775807", "1e1", ".5", "5.", "- -5", "+5")
TEXTS = ("'5'", "'x'", "'it''s'", "''", "'true'", "'-'")
BROKEN = (
    "a >", "a = NULL", "5", "'x'", "-a", "a > 'x'", "TRUE > 1", "a BETWEEN 3 AND 1", "5 IN ('5')", "a NOT", "a IN ()",
    "1.0e999 = a", "TRUE = 5",
)  # fmt: skip


def value(rng: random.Random) -> str:
    return rng.choice((*NAMES, *NUMBERS, rng.choice(TEXTS), rng.choice(("TRUE", "false", "NULL"))))


def expression(rng: random.Random, depth: int = 0) -> str:
    kind = rng.randrange(11 if depth < 3 else 7)
    left = value(rng)
    word = rng.choice(("", "not ", "NOT "))
    if kind < 2:
        return f"{left} {rng.choice(('=', '<>', '>', '>=', '<', '<='))} {value(rng)}"
    if kind == 2:
        return f"{left} is {word}null"
    if kind == 3:
        return f"{left} {word}{rng.choice(('CONTAINS', 'startswith', 'EndsWith'))} {rng.choice(TEXTS)}"
    if kind == 4:
        return f"{left} {word}BETWEEN {value(rng)} AND {value(rng)}"
    if kind == 5:
        return f"{left} {word}IN ({', '.join(rng.choices(TEXTS, k=rng.randrange(1, 7)))})"
    if kind == 6:
        return rng.choice((left, *BROKEN, f"/* c */ {left} = 5", f"{left} = 5 = TRUE", f"{left} /* ** */ is null"))
    if kind == 7:
        return f"NOT {expression(rng, depth + 1)}"
    both = expression(rng, depth + 1), expression(rng, depth + 1)
    return rng.choice(("{} AND {}", "{} or {}", "({}) OR ({})", "({}) = ({})", "NOT ({}) AND {}")).format(*both)


def ours(text: str, properties: dict[str, str]) -> str:
    try:
        selector = Selector(text)
    except SelectorError as error:
        # That parser passes over what stands behind an expression.
        return "behind" if "follows the expression" in str(error) else "-"
    return str(int(selector.matches(properties)))


@pytest.mark.random
def test_it_answers_as_the_brokers_filter(seed: int) -> None:
    rng = random.Random(seed)
    asked = []
    for _ in range(COUNT):
        names = rng.sample(NAMES, rng.randrange(len(NAMES) + 1))
        asked.append((expression(rng), {name: rng.choice(VALUES) for name in names}))
    lines = ("\x1f".join((text, *(word for pair in properties.items() for word in pair))) for text, properties in asked)
    done = subprocess.run(
        [FOLDER / "run", "5.5.0", "Select"], input="\n".join(lines) + "\n", env=java_home(), capture_output=True, text=True,
        encoding="utf-8", check=True,
    )  # fmt: skip
    found = [ours(*each) for each in asked]
    told = done.stdout.split()
    assert len(told) == COUNT
    wrong = [
        (each, mine, theirs) for each, mine, theirs in zip(asked, found, told, strict=True) if mine not in (theirs, "behind")
    ]
    assert not wrong, wrong[:20]
    assert min(map(found.count, "01-")) > COUNT // 20
