"""The rules for sizes, names and docstrings of the product (``scripts.house``): they hold, and each way to break it is told."""

from __future__ import annotations

from pathlib import Path

from scripts.house import count, faults

ROOT = Path(__file__).resolve().parents[3]


def _write(root: Path, name: str, lines: int, first: str = '"""One."""') -> None:
    path = root / "jobs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([first, *("x = 1" for _ in range(lines - len(first.splitlines())))]) + "\n", encoding="utf-8")


def test_the_product_keeps_the_rule() -> None:
    assert faults(count(ROOT)) == []


def test_files_of_a_natural_size_are_right(tmp_path: Path) -> None:
    _write(tmp_path, "long.py", 400)
    _write(tmp_path, "middle.py", 150)
    _write(tmp_path, "least.py", 60)
    assert faults(count(tmp_path)) == []


def test_a_short_file_says_why(tmp_path: Path) -> None:
    _write(tmp_path, "long.py", 300)
    _write(tmp_path, "__init__.py", 1)
    _write(tmp_path, "also.py", 300)
    _write(tmp_path, "said.py", 59, '"""One.\n\nBy itself: a start imports it.\n"""')
    assert faults(count(tmp_path)) == []
    _write(tmp_path, "bare.py", 59)
    _write(tmp_path, "more.py", 300)
    assert faults(count(tmp_path)) == [
        'jobs/bare.py: under 60 lines: say why in its docstring ("By itself: ..."), or merge it',
    ]  # fmt: skip


def test_a_reason_stands_in_the_first_lines(tmp_path: Path) -> None:
    _write(tmp_path, "long.py", 300)
    _write(tmp_path, "other.py", 300)
    _write(tmp_path, "late.py", 59, '"""One.\n' + "\n" * 12 + 'By itself: too late.\n"""')
    assert len(faults(count(tmp_path))) == 1


def test_a_file_of_more_than_400_lines_is_told(tmp_path: Path) -> None:
    _write(tmp_path, "long.py", 401)
    assert faults(count(tmp_path)) == ["jobs/long.py: 401 lines: at most 400"]


def test_small_files_are_told_by_their_median(tmp_path: Path) -> None:
    for number in range(3):
        _write(tmp_path, f"small_{number}.py", 139)
    assert faults(count(tmp_path)) == ["a file has 139 lines in the median: at least 140"]


def test_imports_are_counted_wherever_they_stand(tmp_path: Path) -> None:
    head = '"""One."""\nimport os\nif os:\n    from a import b\n' + "    import b\n" * 8
    _write(tmp_path, "imports.py", 150, head.rstrip("\n"))
    house = count(tmp_path)
    assert house.imports == 10
    assert faults(house) == ["6.67% of all lines begin an import: less than 6%"]


def test_a_public_function_says_what_it_returns(tmp_path: Path) -> None:
    said = ("Return one.", "Yield each.", "Makes one, and returns it.")
    functions = [f'def said_{number}() -> int:\n    """{text}"""\n' for number, text in enumerate(said)]
    functions += ['def nothing() -> None:\n    """Do it."""\n', 'def _own() -> int:\n    """One."""\n']
    functions += ['class Kept:\n    @property\n    def one(self) -> int:\n        """One."""\n']
    _write(tmp_path, "said.py", 200, "".join(functions).rstrip("\n"))
    assert (count(tmp_path).returning, faults(count(tmp_path))) == (3, [])
    _write(tmp_path, "silent.py", 200, 'class Silent:\n    def one(self) -> int:\n        """One."""\n        return 1')
    assert faults(count(tmp_path)) == ["jobs/silent.py:2: one: say in its docstring what it returns (Return ..., Yield ...)"]


def test_a_class_name_stands_once(tmp_path: Path) -> None:
    _write(tmp_path, "long.py", 300, '"""One."""\nclass Span: ...\nclass _Own: ...')
    assert faults(count(tmp_path)) == []
    _write(tmp_path, "other.py", 300, '"""Two."""\nclass _Own: ...\nclass Span: ...')
    assert faults(count(tmp_path)) == ["class Span: jobs/long.py:2 and jobs/other.py:3: a name stands for one thing"]
