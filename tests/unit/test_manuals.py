"""Man pages and completion: all options of all commands are in them, and a shell completes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.cli import COMMANDS
from rocketmq_reindex.jobs.command.options import ABOUT, all_parsers, parser_of
from scripts import manuals
from tests.docs.pages import ROOT

FILES = dict(manuals.files())


def options(command: str) -> list[str]:
    return [name for action in parser_of(command)._actions for name in action.option_strings if name.startswith("--")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_man_page_has_all_that_help_has(command: str) -> None:
    text = FILES[f"share/man/man1/rmq-reindex-{command}.1"]
    plain = text.replace("\\-", "-")
    lines = plain.splitlines()
    assert lines[0].startswith(f'.TH RMQ-REINDEX-{command.upper()} "1" "" "rocketmq-reindex ')
    assert lines[lines.index(".SH NAME") + 1] == f"rmq-reindex-{command} - {COMMANDS[command][1]}"
    assert all(f"\\fB{name}\\fR" in plain for name in options(command) if name != "--help")
    assert all(example in lines for example in ABOUT[command].examples)
    assert {".SH EXAMPLES", ".SH EXIT STATUS", ".SH SEE ALSO"} <= set(lines)
    assert all(str(status) in lines for status in ABOUT[command].statuses)


def test_the_page_of_the_program_names_all_commands() -> None:
    text = FILES["share/man/man1/rmq-reindex.1"].replace("\\-", "-")
    assert all(f".BR rmq-reindex-{command} (1)\n{told}" in text for command, (_, told) in COMMANDS.items())


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
@pytest.mark.parametrize("name", ["rmq-reindex", *(f"rmq-reindex-{command}" for command in COMMANDS)])
def test_groff_has_nothing_to_say(name: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8"], input=FILES[f"share/man/man1/{name}.1"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == ""


@pytest.mark.parametrize("shell", manuals.SHELLS)
def test_the_completion_has_all_options(shell: str) -> None:
    text = FILES[manuals.SHELLS[shell]]
    for command in COMMANDS:
        assert command in text
        assert all((name if shell != "fish" else f"-l {name[2:]}") in text for name in options(command))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pre"], ["preflight"]),
        (["build", "/store", "--on-d"], ["--on-damage"]),
        (["build", "/store", "--on-damage", ""], ["fail", "stop", "salvage"]),
        (["verify", "/store", "--engine", "l"], ["local"]),
    ],
)
def test_bash_completes(words: list[str], found: list[str], tmp_path: Path) -> None:
    place = tmp_path / "rmq-reindex"
    place.write_text(FILES[manuals.SHELLS["bash"]])
    script = 'source "$0"; COMP_WORDS=(rmq-reindex "$@"); COMP_CWORD=$#; _shtab_rmq_reindex; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, place, *words], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (found, "")


def test_parsers_need_pythons_own_library_alone() -> None:
    """A wheel is built where no package is but those that make these files; and a command starts fast."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from rocketmq_reindex.jobs.command.options import all_parsers; print(len(all_parsers()))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script, ROOT], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(len(all_parsers())), "")


def test_the_same_sources_give_the_same_files() -> None:
    assert dict(manuals.files()) == FILES
