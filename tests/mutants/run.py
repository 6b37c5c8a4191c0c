"""Mutants of the product: python -m tests.mutants.run [--count 200] [--seed N] [--jobs 2] [--below udfs/sql] [--again]

Draws small changes to the product (``tests.mutants.draw``), puts each into a copy of the tree as it is committed, and runs the
tests of ``make test`` that reach the changed line, until one fails. No maintained tool does this here: mutmut wraps functions,
which numba cannot compile, and cosmic-ray does not know which tests reach a line, nor that compiled loops are kept on the disk.

Which tests reach a line is measured once for a commit, in .mutants/, by coverage.py. What it cannot see is found by names:

- compiled loops: whoever reaches a line that names the loop, or another loop that names it
- what runs when a module is imported (constants, classes, defaults): whoever reaches a line that names what stands there
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coverage.numbits import numbits_to_nums

from tests.mutants.cover import SETTINGS, TESTS
from tests.mutants.draw import PACKAGES, Mutant, draw, product

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".mutants"
FOLDERS = ("unit", "builds", "hostile", "compiled", "incremental", "golden", "local", "reference", "tools", "smoke", "docs")
"""those of ``make test``, and the tests of compiled code"""
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not matrix")
SECONDS = 60.0
"""For a mutant tests of so many seconds run, the fastest first; the time that they had while the map was measured counts."""
PATIENCE = 90.0
"""Seconds beside four times these: compiled loops may have to be compiled. A mutant that takes longer hangs, and is seen."""
_COMPILED = {"jit", "inlined", "allocating"}
"""the marks of functions that numba compiles"""


@dataclass
class Result:
    """What became of a mutant: killed, hung, ended by a signal, survived, or unreached where no test of the tier reaches it."""

    mutant: dict[str, object]
    status: str
    by: str = ""
    """the test that failed"""
    tests: int = 0
    """how many reach the line, and how many of them ran"""
    ran: int = 0
    diff: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------ the copy


def copied(name: str, commit: str) -> Path:
    """A copy of the tree at a commit, which uses what set-up made here; an earlier copy of the same commit is used again."""
    tree = WORK / name
    if tree.is_dir() and _git(tree, "rev-parse", "HEAD") == commit:
        _git(tree, "checkout", "-q", ".")
        _git(tree, "clean", "-qfd", "tests")
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    WORK.mkdir(exist_ok=True)
    _git(ROOT, "clone", "-q", "--shared", "--no-checkout", ".", str(tree))
    _git(tree, "checkout", "-q", commit)
    subprocess.run([tree / "scripts" / "links"], check=True)
    shutil.copy(ROOT / ".java-home", tree)
    for made in (".venv", "jars", "tests/oracle/target"):
        if (ROOT / made).is_dir():
            subprocess.run(["cp", "-al", ROOT / made, tree / made], check=True)
    # The environment's own words for where the package lies.
    for path in [*(tree / ".venv/lib").glob("python*/site-packages/_rocketmq_reindex.pth"), tree / ".venv/bin/rmq-reindex"]:
        text = path.read_text().replace(str(ROOT), str(tree))
        path.unlink()
        path.write_text(text)
        path.chmod(0o755)
    return tree


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


def _python(tree: Path) -> list[str]:
    return [str(tree / ".venv" / "bin" / "python")]


def _environment(tree: Path, **more: str) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "NUMBA_CACHE_DIR")}
    # The same random numbers with and without a mutant.
    return {**left, "JAVA_HOME": (tree / ".java-home").read_text().strip(), "REINDEX_SEED": "1", **more}


# ------------------------------------------------------------------------------------------------------- the map


class Map:
    """Which tests reach which line of a commit."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self.seconds: dict[str, float] = {}
        self._reach: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._imported: dict[str, set[int]] = defaultdict(set)
        """the lines that ran while no test did"""
        for folder in FOLDERS:
            place = WORK / "cover" / _git(tree, "rev-parse", "--short=12", "HEAD") / folder
            if not (place / "done").exists():
                _measure(tree, folder, place)
            self._read(place)

    def _read(self, place: Path) -> None:
        tests = {}
        for line in (place / "tests").read_text().splitlines():
            number, seconds, name, passed = json.loads(line)
            if passed:
                tests[str(number)], self.seconds[name] = name, seconds
        with sqlite3.connect(place / "coverage") as data:
            rows = data.execute(
                "SELECT path, context, numbits FROM line_bits"
                " JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
            )
            for path, context, bits in rows:
                file = str(Path(path).relative_to(self._tree))
                if not context:
                    self._imported[file].update(numbits_to_nums(bits))
                # A process that a test started has the test's number twice, before and after the bar.
                if test := tests.get(context.split("|")[0]):
                    reached = self._reach[file]
                    for at in numbits_to_nums(bits):
                        reached[at].add(test)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, the fastest first."""
        found = set(self._reach[mutant.path][mutant.line])
        if not self._is_seen(mutant.path, mutant.line):
            # Some tests look at what a module holds, and run no line that names it: those of its folder.
            beside = f"tests/unit/{mutant.path.rpartition('/')[0]}/"
            found |= {test for test in self.seconds if test.startswith(beside)}
            found |= self._by_name(*_names_at(self._tree, mutant.path, mutant.line))
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def _is_seen(self, path: str, line: int) -> bool:
        """Whether coverage.py saw who runs a line.

        A function that runs at an import alone counts for whoever names what it made.
        """
        return _runs_as_python(self._tree, path, line) and not (line in self._imported[path] and not self._reach[path][line])

    def fastest(self, tests: list[str], seconds: float) -> list[str]:
        """As many tests as ``seconds`` are, those of a file together, since they share what they set up."""
        files: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            seconds -= self.seconds[test]
            if seconds < 0 and files:
                break
            files[test.split("::")[0]].append(test)
        return [test for of in files.values() for test in of]

    def _by_name(self, *names: str) -> set[str]:
        found, known, waiting = set[str](), set(names), list(names)
        while waiting:
            for path, line, inside in _uses(self._tree).get(waiting.pop(), ()):
                found |= self._reach[path][line]
                if inside not in known and not self._is_seen(path, line):
                    # A loop that calls this one, or another constant that is made of it. A test that runs loops as plain Python
                    # reaches the line, too, and is not the only one.
                    known.add(inside)
                    waiting.append(inside)
        return found


def _measure(tree: Path, folder: str, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    settings = place / "settings"
    settings.write_text(SETTINGS.format(folder=place))
    environment = _environment(tree, COVERAGE_PROCESS_START=str(settings), **{TESTS: str(place / "tests")})
    began = time.monotonic()
    with (place / "log").open("w") as log:
        command = [*_python(tree), *PYTEST, "-p", "tests.mutants.cover", f"tests/{folder}"]
        subprocess.run(command, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    combine = [*_python(tree), "-m", "coverage", "combine", "-q", f"--rcfile={settings}"]
    subprocess.run(combine, cwd=place, check=True)
    (place / "done").touch()
    print(f"tests/{folder}: measured in {time.monotonic() - began:.0f} s", flush=True)


@functools.cache
def _parsed(tree: Path, path: str) -> ast.Module:
    return ast.parse((tree / path).read_bytes())


def _blocks(module: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes and assignments of a module, and of classes in it, by name."""
    for statement in module.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name, statement
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            for name in ast.walk(target) if target is not None else ():
                if isinstance(name, ast.Name):
                    yield name.id, statement


def _runs_as_python(tree: Path, path: str, line: int) -> bool:
    """Whether a line stands in a function that is not compiled. coverage.py sees who runs it."""
    for node in ast.walk(_parsed(tree, path)):
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or 0):
            return not any(isinstance(mark, ast.Name) and mark.id in _COMPILED for mark in node.decorator_list)
    return False


def _names_at(tree: Path, path: str, line: int) -> list[str]:
    """The names of what stands at a line of a module; of a method or a field also its own."""
    names = []
    for name, block in _blocks(_parsed(tree, path)):
        if block.lineno <= line <= (block.end_lineno or 0):
            names.append(name)
            if isinstance(block, ast.ClassDef):
                inner = _blocks(ast.Module(block.body, []))
                names += [one for one, part in inner if part.lineno <= line <= (part.end_lineno or 0)]
    return names


@functools.cache
def _uses(tree: Path) -> dict[str, list[tuple[str, int, str]]]:
    """Where a name is used: file, line, and the name of what stands there in the module."""
    found: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for path in product(tree):
        for inside, block in _blocks(_parsed(tree, path)):
            for node in ast.walk(block):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if name and isinstance(node, (ast.Name, ast.Attribute)) and name != inside:
                    found[name].append((path, node.lineno, inside))
    return found


# ------------------------------------------------------------------------------------------------- compiled loops


def _stamp(tree: Path) -> str:
    code = "from rocketmq_reindex.storage_format.kernels import cache_folder; print(cache_folder.at_start())"
    command = [*_python(tree), "-c", code]
    return subprocess.run(command, cwd=tree, env=_environment(tree), capture_output=True, text=True, check=True).stdout.strip()


def _compiled_from(tree: Path, mutant: Mutant) -> set[str]:
    """The names of loops, and of constants in them, that know what stands at a mutant's line."""
    waiting = [(mutant.path, name) for name in _names_at(tree, mutant.path, mutant.line)]
    changed = {name for _, name in waiting}
    while waiting:
        path, name = waiting.pop()
        for user, _, inside in _uses(tree).get(name, ()):
            # Other functions know it, too, but are not compiled. Beside it they may make a constant.
            if inside not in changed and (user == path or (user, inside) in _in_loops(tree)):
                changed.add(inside)
                waiting.append((user, inside))
    return changed


@functools.cache
def _in_loops(tree: Path) -> set[tuple[str, str]]:
    """Compiled functions, and constants of modules: file and name."""
    found = set[tuple[str, str]]()
    for path in product(tree):
        for name, block in _blocks(_parsed(tree, path)):
            marks = {mark.id for mark in getattr(block, "decorator_list", ()) if isinstance(mark, ast.Name)}
            if marks & _COMPILED or isinstance(block, (ast.Assign, ast.AnnAssign)):
                found.add((path, name))
    return found


def _keep_compiled(tree: Path, before: str, changed: set[str]) -> Path:
    """Give the changed package the compiled loops that know nothing of the change, by the names in them; the rest is made anew.

    The package itself takes none of them: their folder is named by a digest of all its sources.
    """
    around = tree / "storage_format/kernels/__pycache__"
    now = around / f"rmq-reindex-{_stamp(tree)}"
    now.mkdir(mode=0o700, exist_ok=True)
    for path in (around / f"rmq-reindex-{before}").iterdir():
        # MODULE.FUNCTION-DIGEST
        if path.name.split("-")[0].rpartition(".")[2] not in changed and not (now / path.name).exists():
            os.link(path, now / path.name)
    return now


# ------------------------------------------------------------------------------------------------------- the runs


class Runs:
    """Runs mutants one after another in a copy of the tree."""

    def __init__(self, tree: Path, whole: Path, reach: Map | None, seconds: float) -> None:
        """``whole`` is a tree whose names are known. Without ``reach`` only what ``run`` gets first."""
        self._seconds = seconds
        self._tree, self._whole, self._reach, self._stamp = tree, whole, reach, _stamp(tree)
        self.commit = _git(tree, "rev-parse", "HEAD")
        self._time = int(time.time())

    def run(self, mutant: Mutant, first: list[str]) -> Result:
        """Run ``first``, then the tests that reach the mutant."""
        tests = self._reach.tests_of(mutant) if self._reach else []
        chosen = self._reach.fastest(tests, self._seconds) if self._reach else []
        result = Result(asdict(mutant) | {"text": mutant.text.decode()}, "unreached", tests=len(tests), ran=len(chosen))
        path = self._tree / mutant.path
        source = path.read_bytes()
        result.diff = _diff(source, mutant)
        if not chosen and not first:
            return result
        made = None
        try:
            self._put(path, mutant.applied(source))
            if mutant.package == "storage_format":
                made = _keep_compiled(self._tree, self._stamp, _compiled_from(self._whole, mutant))
            result.status, result.by = self._tried([*first, *chosen], self._seconds * 4 + PATIENCE)
        finally:
            self._put(path, source)
            if made is not None:
                shutil.rmtree(made)
        return result

    def _put(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        # Python takes its compiled file for that of any source of the same second and size.
        self._time += 2
        os.utime(path, (self._time, self._time))

    def _tried(self, tests: list[str], patience: float) -> tuple[str, str]:
        listed = self._tree / ".mutant-tests"
        listed.write_text("\n".join(tests) + "\n")
        command = [*_python(self._tree), *PYTEST, "-x", f"@{listed.name}"]
        with subprocess.Popen(
            command, cwd=self._tree, env=_environment(self._tree), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        ) as running:  # fmt: skip
            try:
                said, _ = running.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.communicate()
                return "hung", ""
        if running.returncode == 0:
            return "survived", ""
        if running.returncode < 0:
            # Somebody ended it, or it ran out of memory: that shows nothing.
            return "ended", signal.Signals(-running.returncode).name
        failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return "killed", failed[0][:200] if failed else said[-300:]


def _diff(source: bytes, mutant: Mutant) -> list[str]:
    """The lines that a mutant changes, before and after."""
    start, end = source.rfind(b"\n", 0, mutant.low) + 1, source.find(b"\n", mutant.high)
    after = source[start : mutant.low] + mutant.text + source[mutant.high : end]
    return [
        f"{mark}{line}" for mark, text in (("-", source[start:end]), ("+", after)) for line in text.decode().splitlines()
    ]  # fmt: skip


def shown(results: Iterable[Result]) -> str:
    """The figures by package."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for name in (str(result.mutant["path"]).split("/")[0], "all"):
            counts[name][result.status] += 1
    words = ("killed", "hung", "ended", "survived", "unreached")
    rows = [f"{'':16}" + "".join(f"{word:>11}" for word in words)]
    rows += [f"{name:16}" + "".join(f"{counts[name][word]:11}" for word in words) for name in (*PACKAGES, "all")]
    return "\n".join(rows)


def _survivors(path: Path) -> tuple[str, list[Mutant]]:
    """The commit of an earlier run, and what survived it."""
    commit, *lines = path.read_text().splitlines()
    found = [json.loads(line) for line in lines]
    left = [one["mutant"] for one in found if one["status"] in ("survived", "unreached")]
    return str(json.loads(commit)["commit"]), [Mutant(**(one | {"text": one["text"].encode()})) for one in left]


def _changed_tests(tree: Path) -> list[str]:
    """Bring today's tests into the tree. Returns the files of tests that are others than there before."""
    shutil.rmtree(tree / "tests")
    shutil.copytree(ROOT / "tests", tree / "tests", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [f"tests/{name}" for name in FOLDERS]
    return [line[3:] for line in _git(tree, "status", "--porcelain", "-uall", *folders).splitlines()
            if Path(line).name.startswith("test_") and not line.startswith(("D", " D"))]  # fmt: skip


def _passes(tree: Path, test: str) -> bool:
    """Whether a file of tests passes without a mutant: it may be of a later product."""
    command = [*_python(tree), *PYTEST, test]
    return not subprocess.run(command, cwd=tree, env=_environment(tree), capture_output=True, check=False).returncode


def _all(trees: list[Runs], mutants: list[Mutant], first: list[str], path: Path) -> list[Result]:
    """Run all, one in each of ``trees`` at a time; what comes out is in the order of the mutants."""
    free = queue.SimpleQueue[Runs]()
    for runs in trees:
        free.put(runs)

    def one(mutant: Mutant) -> Result:
        runs = free.get()
        try:
            return runs.run(mutant, first)
        finally:
            free.put(runs)

    results = []
    with path.open("w") as kept, ThreadPoolExecutor(len(trees)) as pool:
        kept.write(json.dumps({"commit": trees[0].commit}) + "\n")
        for number, (mutant, result) in enumerate(zip(mutants, pool.map(one, mutants), strict=True), start=1):
            results.append(result)
            kept.write(json.dumps(asdict(result)) + "\n")
            kept.flush()
            place = f"{mutant.path}:{mutant.line} {mutant.operator}"
            print(f"{number:4} {result.status:9} {place} {result.ran}/{result.tests} {result.by}", flush=True)
    return results


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--below", default="", help="draw only from files whose path begins so")
    parser.add_argument("--again", action="store_true", help="what survived this seed: run the tests that were changed since")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"of tests for a mutant, the fastest first ({SECONDS:.0f})"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time, each in a copy of the tree (1)")
    options = parser.parse_args()
    path, first, reach = WORK / f"results-{options.seed}.jsonl", list[str](), None
    commit, mutants = _survivors(path) if options.again else (_git(ROOT, "rev-parse", "HEAD"), [])
    trees = [copied(f"tree{number}", commit) for number in range(options.jobs)]
    if options.again:
        first = [test for test in [_changed_tests(tree) for tree in trees].pop() if _passes(trees[0], test)]
        path = path.with_name(f"again-{options.seed}.jsonl")
    else:
        reach, mutants = Map(trees[0]), list(draw(trees[0], options.count, options.seed, options.below))
    print(f"seed {options.seed}, commit {commit[:12]}", flush=True)
    # What is found by names is of the code without mutants, and Python's parser is for one thread alone.
    _uses(trees[0])
    _in_loops(trees[0])
    results = _all([Runs(tree, trees[0], reach, options.seconds) for tree in trees], mutants, first, path)
    for result in results:
        if result.status in ("survived", "unreached"):
            print(f"\n{result.status}: {result.mutant['path']}:{result.mutant['line']}", *result.diff, sep="\n")
    print(f"\n{shown(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
