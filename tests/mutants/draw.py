"""Which mutants there are: small changes to the product's code, each of which a test should see.

A place in the code has one mutant or several, by these operators:

- ``border``: ``<`` for ``<=``, ``==`` for ``!=``, ``in`` for ``not in``, and the like
- ``number``: one more, one less, and for the sentinels 0 and -1 the other
- ``condition``: the other branch of ``if``, ``while`` and ``a if b else c``, ``and`` for ``or``, ``not`` left out
- ``constant``: the other truth value, two constants that stand beside each other in a call or a tuple changed over
- ``statement``: a call whose result nobody takes, an assignment to an attribute or an item, a ``raise`` left out
- ``text``: an empty text in place of a message, a note, an advice: of what has a space in it
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("jobs", "udfs", "files", "storage_format")
_BORDERS: dict[type[ast.cmpop], tuple[bytes, tuple[bytes, ...]]] = {
    ast.Lt: (b"<", (b"<=", b">")),
    ast.LtE: (b"<=", (b"<", b">=")),
    ast.Gt: (b">", (b">=", b"<")),
    ast.GtE: (b">=", (b">", b"<=")),
    ast.Eq: (b"==", (b"!=",)),
    ast.NotEq: (b"!=", (b"==",)),
    ast.In: (b"in", (b"not in",)),
    ast.NotIn: (b"not in", (b"in",)),
    ast.Is: (b"is", (b"is not",)),
    ast.IsNot: (b"is not", (b"is",)),
}


@dataclass(frozen=True)
class Mutant:
    """``text`` stands for the bytes from ``low`` to ``high`` of a file; ``line`` is where they begin."""

    path: str
    line: int
    operator: str
    low: int
    high: int
    text: bytes

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    def applied(self, source: bytes) -> bytes:
        return source[: self.low] + self.text + source[self.high :]


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


class _Places(ast.NodeVisitor):
    """Collects the mutants of one file: a list for each place."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[list[Mutant]] = []
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        low = self._starts[node.lineno - 1] + node.col_offset
        return low, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _put(self, operator: str, low: int, high: int, *texts: bytes) -> None:
        line = self._source.count(b"\n", 0, low) + 1
        self.found.append([Mutant(self._path, line, operator, low, high, text) for text in texts])

    def _negate(self, test: ast.expr) -> None:
        low, high = self._span(test)
        self._put("condition", low, high, b"(not (" + self._source[low:high] + b"))")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if any(isinstance(part, ast.Constant) and " " in str(part.value).strip() for part in node.values):
            self._put("text", *self._span(node), b'""')
        for inner in ast.walk(node):
            # Before Python 3.12 the places of what stands in a text may be wrong.
            if isinstance(inner, ast.IfExp) and self._is_there(inner):
                self.visit(inner)

    def _is_there(self, node: ast.expr) -> bool:
        low, high = self._span(node)
        try:
            found = ast.parse(b"(" + self._source[low:high] + b")", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(found) == ast.dump(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for (left, right), kind in zip(itertools.pairwise(sides), node.ops, strict=True):
            word, others = _BORDERS[type(kind)]
            low = self._source.find(word, self._span(left)[1], self._span(right)[0])
            if low >= 0:
                self._put("border", low, low + len(word), *others)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        low, high = self._span(node)
        if isinstance(node.value, bool):
            self._put("constant", low, high, b"False" if node.value else b"True")
        elif isinstance(node.value, int):
            sentinel = (b"(-1)",) if node.value == 0 else ()
            self._put("number", low, high, b"%d" % (node.value + 1), b"(%d)" % (node.value - 1), *sentinel)
        elif isinstance(node.value, str) and " " in node.value.strip():
            self._put("text", low, high, b'""')

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        low, high = self._span(node)
        if isinstance(node.op, ast.Not):
            self._put("condition", low, high, b"bool(" + self._source[slice(*self._span(node.operand))] + b")")
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int):
            self._put("number", low, high, b"%d" % (1 - node.operand.value), b"(%d)" % (-1 - node.operand.value))
            return
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        for left, right in itertools.pairwise(node.values):
            low = self._source.find(word, self._span(left)[1], self._span(right)[0])
            if low >= 0:
                self._put("condition", low, low + len(word), other)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._change_over(node.args)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if isinstance(node.ctx, ast.Load):
            self._change_over(node.elts)
        self.generic_visit(node)

    def _change_over(self, nodes: list[ast.expr]) -> None:
        for left, right in itertools.pairwise(nodes):
            if _is_constant(left) and _is_constant(right) and ast.dump(left) != ast.dump(right):
                (low, end), (begin, high) = self._span(left), self._span(right)
                source = self._source
                self._put("constant", low, high, source[begin:high] + source[end:begin] + source[low:end])

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            self._leave_out(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._leave_out(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._leave_out(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._leave_out(node)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _leave_out(self, node: ast.stmt) -> None:
        self._put("statement", *self._span(node), b"pass")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        # Without its decorators and the types of its arguments.
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Says to mypy what is known."""


def mutants_of(root: Path, path: str) -> list[list[Mutant]]:
    """The mutants of one file, a list for each place in it."""
    source = (root / path).read_bytes()
    places = _Places(path, source)
    places.visit(ast.parse(source))
    return places.found


def product(root: Path) -> list[str]:
    """The files of the product, from ``root`` on."""
    return sorted(str(path.relative_to(root)) for package in PACKAGES for path in (root / package).rglob("*.py"))


def draw(root: Path, count: int, seed: int, below: str = "") -> Iterator[Mutant]:
    """Draw ``count`` places, each as likely as any other, and one mutant of each. The same seed and code: the same mutants.

    ``below``: only of files whose path from ``root`` on begins so.
    """
    places = [place for path in product(root) if path.startswith(below) for place in mutants_of(root, path)]
    rng = random.Random(seed)
    rng.shuffle(places)
    for place in places:
        if not count:
            return
        mutant = rng.choice(place)
        source = (root / mutant.path).read_bytes()
        try:
            changed = ast.dump(ast.parse(mutant.applied(source)))
        except (SyntaxError, ValueError):
            continue
        if changed != ast.dump(ast.parse(source)):
            count -= 1
            yield mutant
