"""Count the files of the product, and say where they break the rules for sizes, names and docstrings: make house."""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("jobs", "udfs", "files", "storage_format")
MEDIAN_MIN = 140
IMPORTS_MAX = 0.06
"""of all lines, those that begin an import"""
SHORT, LONG = 60, 400
"""lines: a file with fewer says why, no file has more"""
REASON = "By itself: "
"""begins the reason of a short file, in its docstring"""
_FIRST_LINES = 12
_IMPORT = re.compile(r"\s*(from \S+ import|import )")
_NOTHING = ("", "None", "NoReturn", "Iterator[None]")
"""what functions return that give their callers nothing; the last is that of a context"""
_SAID = re.compile(r"\b([Rr]eturn|[Yy]ield)s?\b")


@dataclass(frozen=True)
class House:
    """Numbers of the files: lines by path, and how many lines begin an import."""

    lines: dict[str, int]
    imports: int
    unexplained: tuple[str, ...]
    """short files that give no reason"""
    returning: int
    """public functions that return a value, and have a docstring"""
    silent: tuple[str, ...]
    """those whose docstring does not say what they return"""
    classes: dict[str, tuple[str, ...]]
    """where each public class stands, by its name"""

    @property
    def median(self) -> float:
        """Lines of a file, in the median."""
        return statistics.median(self.lines.values())

    @property
    def share(self) -> float:
        """The share of lines that begin an import."""
        return self.imports / sum(self.lines.values())

    def __str__(self) -> str:
        return (
            f"{len(self.lines)} files, {sum(self.lines.values())} lines, median {self.median:g}, "
            f"{self.share:.2%} begin an import, {len(self.unexplained)} short files without a reason, "
            f"{self.returning - len(self.silent):,} of {self.returning:,} docstrings say what is returned"
        )


def count(root: Path) -> House:
    """Count the product's files below ``root``. An ``__init__.py`` that only names its package needs no reason."""
    lines: dict[str, int] = {}
    imports, unexplained, returning, silent = 0, list[str](), 0, list[str]()
    classes: dict[str, tuple[str, ...]] = {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        name, text = str(path.relative_to(root)), path.read_text(encoding="utf-8").splitlines()
        lines[name] = len(text)
        imports += sum(_IMPORT.match(line) is not None for line in text)
        explained = path.name == "__init__.py" or any(line.startswith(REASON) for line in text[:_FIRST_LINES])
        if len(text) < SHORT and not explained:
            unexplained.append(name)
        tree = ast.parse("\n".join(text))
        for part in tree.body:
            if isinstance(part, ast.ClassDef) and not part.name.startswith("_"):
                classes[part.name] = (*classes.get(part.name, ()), f"{name}:{part.lineno}")
        for function, docstring in _returning(tree):
            returning += 1
            silent += [] if _SAID.search(docstring) else [f"{name}:{function.lineno}: {function.name}"]
    return House(lines, imports, tuple(unexplained), returning, tuple(silent), classes)


def _returning(node: ast.AST) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield the public functions and methods that return a value, with their docstrings. A property is no function."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.ClassDef) and not part.name.startswith("_"):
            yield from _returning(part)
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            given, docstring = ast.unparse(part.returns) if part.returns else "", ast.get_docstring(part)
            is_property = any(ast.unparse(decorator).endswith("property") for decorator in part.decorator_list)
            if docstring and given not in _NOTHING and not is_property:
                yield part, docstring


def faults(house: House) -> list[str]:
    """Return where the rule is broken, a line for each fault."""
    found = []
    if house.median < MEDIAN_MIN:
        found.append(f"a file has {house.median:g} lines in the median: at least {MEDIAN_MIN}")
    if house.share >= IMPORTS_MAX:
        found.append(f"{house.share:.2%} of all lines begin an import: less than {IMPORTS_MAX:.0%}")
    why = f'say why in its docstring ("{REASON}..."), or merge it'
    found += [f"{name}: under {SHORT} lines: {why}" for name in house.unexplained]
    found += [f"{name}: {lines} lines: at most {LONG}" for name, lines in house.lines.items() if lines > LONG]
    found += [f"{function}: say in its docstring what it returns (Return ..., Yield ...)" for function in house.silent]
    twice = ((name, places) for name, places in house.classes.items() if len(places) > 1)
    found += [f"class {name}: {' and '.join(places)}: a name stands for one thing" for name, places in twice]
    return found


if __name__ == "__main__":
    counted = count(Path(__file__).resolve().parent.parent)
    print(counted)
    broken = faults(counted)
    print("\n".join(broken), end="\n" if broken else "", file=sys.stderr)
    sys.exit(1 if broken else 0)
