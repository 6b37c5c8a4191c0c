"""SQL92 over the properties of a message, with the answers of RocketMQ's own filter (``SelectorParser``, 5.5).

What is not known is neither true nor false. A property is a text; beside a number it is read as one of that kind, and where it
is none, the message is not taken, whatever else the expression says: the broker's filter fails there
(``ExpressionMessageFilter.isMatchedByCommitLog``). Text behind the expression, which that parser passes over, is an error here.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]


class SelectorError(ValueError):
    """The text is no expression."""


class _Failed(Exception):
    """The expression has no answer for a message."""


class _Long(int):
    """A number that does not fit into 32 bits: a text beside it may be as long."""


# ----------------------------------------------------------------------------------------------------------------------- values
# Comparisons, as ``ComparisonExpression`` makes them of Java's own classes.

_INTEGER: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""what ``String.trim`` takes away"""


def _integer(text: str, bits: int) -> int:
    # Character.digit looks at 16 bits.
    if not _INTEGER.fullmatch(text) or (not text.isascii() and any(ord(character) > 0xFFFF for character in text)):
        raise _Failed
    try:
        # Zeros in front count for Python's bound on digits, and for nothing in Java.
        number = int(("-" if text[0] == "-" else "") + (text.lstrip("+-").lstrip("0") or "0"))
    except ValueError:
        raise _Failed from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _Failed
    return number


def _double(text: str) -> float:
    match = _DOUBLE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise _Failed
    sign, nothing, endless, decimal, hexadecimal = match.groups()
    try:
        value = math.nan if nothing else math.inf if endless else float(decimal) if decimal else float.fromhex(hexadecimal)
    except OverflowError:
        value = math.inf
    return -value if sign == "-" else value


def _as_kind_of(text: str, number: Any) -> Any:
    return _double(text) if type(number) is float else _integer(text, 64 if type(number) is _Long else 32)


def _order(left: Any, right: Any) -> int:
    """Return -1, 0 or 1, as ``compareTo`` of two values of one class."""
    if type(left) is float:
        # Double.compareTo: NaN is above all and equal to itself, and 0.0 is above -0.0.
        left, right = ((math.isnan(each), 0.0 if math.isnan(each) else each, math.copysign(1, each)) for each in (left, right))
        if left[0] and right[0]:
            return 0
    return int(left > right) - int(left < right)


def _compared(left: Any, right: Any) -> int:
    kinds = type(left), type(right)
    if kinds[0] is kinds[1]:
        return _order(left, right)
    if bool in kinds:
        if kinds == (bool, str):
            raise _Failed
        return _order(left.lower() == "true", right) if kinds[0] is str else -1
    if kinds[0] is str:
        return _order(_as_kind_of(left, right), right)
    if kinds[1] is str:
        return _order(left, _as_kind_of(right, left))
    if float in kinds:
        return _order(float(left), float(right))
    return _order(int(left), int(right))


def _equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return _compared(left, right) == 0


def _ordered(left: Any, right: Any, accept: Callable[[int], bool]) -> bool | None:
    if left is None or right is None:
        return None
    if type(left) is str and type(right) is str:
        left, right = _double(left), _double(right)
    return accept(_compared(left, right))


# ------------------------------------------------------------------------------------------------------------------ expressions


class _Node(NamedTuple):
    """A part of an expression. ``value`` is that of a constant, ``name`` that of a property."""

    evaluate: Evaluate
    boolean: bool = False
    constant: bool = False
    value: Any = None
    name: str = ""
    depth: int = 0
    """how many others are within it, one in another"""


_DEPTH_MAX: Final = 100


def _above(parts: Sequence[_Node]) -> int:
    """Return the depth of what is made of some parts. Raises SelectorError where Python could not evaluate it."""
    depth = 1 + max(part.depth for part in parts)
    if depth > _DEPTH_MAX:
        raise SelectorError("too many parts within each other")
    return depth


def _constant(value: Any) -> _Node:
    return _Node(lambda _: value, boolean=value is None or type(value) is bool, constant=True, value=value)


def _boolean(evaluate: Evaluate, *parts: _Node) -> _Node:
    return _Node(evaluate, boolean=True, depth=_above(parts))


def _negated(node: _Node) -> _Node:
    def evaluate(properties: Properties) -> Any:
        value = node.evaluate(properties)
        return type(value)(-value) if type(value) in (int, _Long, float) else None

    return _Node(evaluate, depth=_above([node]))


def _not(node: _Node) -> _Node:
    def evaluate(properties: Properties) -> bool | None:
        value = node.evaluate(properties)
        return None if value is None else not value

    return _boolean(evaluate, node)


def _logic(nodes: list[_Node], decides: bool) -> _Node:
    """Return an OR of nodes, which one that is true decides, or an AND, which one that is false decides."""

    def evaluate(properties: Properties) -> bool | None:
        known = True
        for node in nodes:
            value: bool | None = node.evaluate(properties)
            if value is decides:
                return value
            known &= value is not None
        return (not decides) if known else None

    return nodes[0] if len(nodes) == 1 else _boolean(evaluate, *nodes)


def _in_text(node: _Node, test: Callable[[str], bool], searched: str, wanted: bool) -> _Node:
    def evaluate(properties: Properties) -> bool:
        value = node.evaluate(properties)
        return bool(searched) and type(value) is str and test(value) is wanted

    return _boolean(evaluate, node)


_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}

# ----------------------------------------------------------------------------------------------------------------------- parser

_WORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *_TESTS})
_TOKEN: Final = re.compile(
    r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
    r"(?:(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)|(?P<text>'(?:''|[^'])*')|(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])|(?P<end>$))"
)


class _Parser:
    """Reads the grammar of ``SelectorParser.jj`` from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self.names = text, 0, list[str]()
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise SelectorError(f"no expression goes on with {self._text[self._at : self._at + 20].strip()!r}")
        self._at, self._kind, self._word = match.end(), match.lastgroup or "end", match[match.lastgroup or "end"]
        self._where = f"before {self._word!r}" if self._word else "at the end"
        if self._kind == "name" and self._word.upper() in _WORDS:
            self._kind, self._word = "word", self._word.upper()

    def _takes(self, *words: str) -> str:
        """Take the next token if it is one of some words or signs; return which, or nothing."""
        word = self._word if self._kind in ("word", "sign") and self._word in words else ""
        if word:
            self._next()
        return word

    def _need(self, word: str) -> None:
        if not self._takes(word):
            raise SelectorError(f"{word} is missing {self._where}")

    def _string(self) -> str:
        if self._kind != "text":
            raise SelectorError(f"a text in quotes is missing {self._where}")
        text = self._word[1:-1].replace("''", "'")
        self._next()
        return text

    def parse(self) -> _Node:
        node = self._as_boolean(self._or())
        if self._kind != "end":
            raise SelectorError(f"{self._word!r} follows the expression")
        return node

    def _as_boolean(self, node: _Node) -> _Node:
        if node.boolean:
            return node
        if node.name:
            # A property is a text: as a condition it is false.
            return _boolean(lambda properties: None if node.evaluate(properties) is None else False, node)
        raise SelectorError("a condition is missing: a number or a text is neither true nor false")

    def _chain(self, word: str, part: Callable[[], _Node], decides: bool) -> _Node:
        nodes = [part()]
        while self._takes(word):
            nodes.append(part())
        return nodes[0] if len(nodes) == 1 else _logic(list(map(self._as_boolean, nodes)), decides)

    def _or(self) -> _Node:
        return self._chain("OR", self._and, decides=True)

    def _and(self) -> _Node:
        return self._chain("AND", self._equality, decides=False)

    def _equality(self) -> _Node:
        left = self._comparison()
        while sign := self._takes("=", "<>", "IS"):
            if sign == "IS":
                negative = bool(self._takes("NOT"))
                self._need("NULL")
                is_null = _boolean(lambda properties, node=left: node.evaluate(properties) is None, left)  # type: ignore[misc]
                left = _not(is_null) if negative else is_null
                continue
            right = self._comparison()
            if any(node.constant and node.value is None for node in (left, right)):
                raise SelectorError("nothing is equal to NULL: write IS NULL")
            if left.constant and right.constant and left.boolean and not right.boolean:
                raise SelectorError("TRUE and FALSE cannot be compared with a number or a text")
            pair = left, right
            equal = _boolean(lambda properties, pair=pair: _equal(*(node.evaluate(properties) for node in pair)), *pair)  # type: ignore[misc]
            left = equal if sign == "=" else _not(equal)
        return left

    def _comparison(self) -> _Node:
        left = self._unary()
        while True:
            if sign := self._takes(*_ORDERS):
                left = self._order(left, sign, self._unary())
                continue
            negative = bool(self._takes("NOT"))
            word = self._takes("BETWEEN", "IN", *_TESTS)
            if not word:
                if negative:
                    raise SelectorError(f"BETWEEN, IN or the like is missing {self._where}")
                return left
            left = self._with_word(left, word, negative)

    def _with_word(self, left: _Node, word: str, negative: bool) -> _Node:
        if word == "BETWEEN":
            low = self._unary()
            self._need("AND")
            return self._between(left, low, self._unary(), negative)
        if word == "IN":
            return self._in(left, negative)
        part = self._string()
        return _in_text(left, lambda text: _TESTS[word](text, part), part, not negative)

    def _order(self, left: _Node, sign: str, right: _Node) -> _Node:
        for node in (left, right):
            if node.boolean or (node.constant and type(node.value) is str):
                raise SelectorError(f"{sign} compares numbers")
        accept = _ORDERS[sign]
        return _boolean(lambda properties: _ordered(left.evaluate(properties), right.evaluate(properties), accept), left, right)

    def _between(self, value: _Node, low: _Node, high: _Node, negative: bool) -> _Node:
        if negative:
            return _logic([self._order(value, "<", low), self._order(value, ">", high)], decides=True)
        both = _logic([self._order(value, ">=", low), self._order(value, "<=", high)], decides=False)
        if low.constant and high.constant and _compared(high.value, low.value) < 0:
            raise SelectorError(f"nothing is between {low.value} and {high.value}")
        return both

    def _in(self, left: _Node, negative: bool) -> _Node:
        if not left.name:
            raise SelectorError("IN needs a property before it")
        self._need("(")
        texts = {self._string()}
        while self._takes(","):
            texts.add(self._string())
        self._need(")")

        def evaluate(properties: Properties) -> bool | None:
            value = left.evaluate(properties)
            return None if value is None else (value in texts) is not negative

        return _boolean(evaluate, left)

    def _unary(self) -> _Node:
        if not (sign := self._takes("+", "-", "NOT")):
            return self._primary()
        node = self._unary()
        return node if sign == "+" else _negated(node) if sign == "-" else _not(self._as_boolean(node))

    def _primary(self) -> _Node:
        if self._takes("("):
            node = self._or()
            self._need(")")
            return node
        if word := self._takes("TRUE", "FALSE", "NULL"):
            return _constant({"TRUE": True, "FALSE": False, "NULL": None}[word])
        if self._kind == "text":
            return _constant(self._string())
        kind, word = self._kind, self._word
        if kind not in ("float", "integer", "name"):
            raise SelectorError(f"a value is missing {self._where}")
        self._next()
        if kind == "name":
            self.names.append(word)
            return _Node(lambda properties: properties.get(word), name=word)
        return _constant(_number(word) if kind == "integer" else _float(word))


_DIGITS_MAX, _SHOWN = 19, 40


def _number(word: str) -> int:
    digits = word.rstrip("lL")
    if len(digits) > _DIGITS_MAX or (number := int(digits)) >= 1 << 63:
        raise SelectorError(f"{word[:_SHOWN]} is more than 64 bits hold")
    return number if number < 1 << 31 else _Long(number)


def _float(word: str) -> float:
    number = float(word)
    if not 0 < number < math.inf:
        raise SelectorError(f"{word[:_SHOWN]} is not a number above 0 that 64 bits hold")
    return number


class Selector:
    """An expression. ``text`` is how it was given, ``names`` are those of the properties in it."""

    def __init__(self, text: str) -> None:
        """Raises SelectorError for a text that is no expression, with what is wrong."""
        try:
            parser = _Parser(text)
            self._node = parser.parse()
        except RecursionError:
            raise SelectorError("too many parts within each other") from None
        self.text, self.names = text, tuple(dict.fromkeys(parser.names))

    def matches(self, properties: Properties) -> bool:
        """Return whether a message with these properties is taken."""
        try:
            return self._node.evaluate(properties) is True
        except _Failed:
            return False
