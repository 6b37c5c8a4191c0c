"""``rmq_python`` as Spark starts it, with a small archive: what it runs, and what it never runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.worker import environment
from scripts import dist
from tests import ROOT
from tests.tools.faulty_disk import namespace, unsent_pages
from tests.tools.faulty_processes import wait_until

PYTHON = '#!/bin/sh\n[ -z "$MARK" ] || echo ran >> "$MARK"\nexec python3 "$@"\n'
"""of the archive"""
ASKED = "import os, sys; print(os.environ['PYSPARK_DRIVER_PYTHON'], *sys.argv[1:], sys.stdin.read())"
DAY = 86400


class Host:
    """A folder with what Spark sends, and a user's home."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        """``size``: how many bytes more the archive has."""
        self.here, self.home = folder / "here", folder / "home"
        for path in (self.here, self.home):
            path.mkdir()
        # A folder on Python's path instead of the zip.
        (self.here / "rocketmq_reindex.zip").symlink_to(ROOT)
        self.archive = self.here / environment.ARCHIVE
        self.pack({"bin/python": (PYTHON.encode(), 0o755), "lib/deep/data": (b"d" * (9999 + size), 0o644)})
        self.mark = folder / "mark"
        self.environment = {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def pack(self, members: dict[str, tuple[bytes, int]]) -> None:
        """What `make dist` does last."""
        dist.pack(self.archive, members)
        dist.put_program(self.archive, self.here / environment.PROGRAM)
        self.name = f"environment-{environment.digest_of(str(self.archive))}"

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "rmq-reindex"

    def start(self, *before: str, **more: str) -> subprocess.Popen[str]:
        words = [*before, f"./{environment.PROGRAM}", "-c", ASKED, "a b", ""]
        return subprocess.Popen(
            words, cwd=self.here, env=self.environment | more, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *before: str, **more: str) -> tuple[int, str, list[str]]:
        """Exit status, the environment that ran, lines of stderr."""
        process = self.start(*before, **more)
        out, err = process.communicate("given")
        ran, _, rest = out.partition("/bin/python ")
        assert rest == ("a b  given\n" if ran else "")
        return process.returncode, ran, err.splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_it_is_unpacked_once_for_the_user_alone(host: Host) -> None:
    before = os.umask(0)
    try:
        assert host.run() == (0, str(host.cache / host.name), [])
    finally:
        os.umask(before)
    found = host.cache / host.name
    assert (found / "lib" / "deep" / "data").read_bytes() == b"d" * 9999
    assert {path.stat().st_mode & 0o777 for path in (found, found / "bin", found / "lib/deep", found / "bin/python")} == {0o700}
    assert (found / "lib" / "deep" / "data").stat().st_mode & 0o777 == 0o600
    long_ago = time.time() - 9 * DAY
    os.utime(found, (long_ago, long_ago))
    # Nothing is unpacked any more: the archive need not be sent.
    host.archive.unlink()
    assert host.run() == (0, str(found), [])
    # It was used.
    assert found.stat().st_mtime > long_ago + DAY
    assert {path.name for path in host.cache.iterdir()} == {host.name, "rmq-reindex.lock"}


@pytest.mark.parametrize("what", ["gone", "empty", "list gone", "python gone"])
def test_one_that_lost_a_file_is_unpacked_anew(what: str, host: Host) -> None:
    """As where somebody cleans up by age, or a disk was full: what is missing would end a task somewhere in its work."""
    found = host.cache / host.name
    assert host.run() == (0, str(found), [])
    lost = {"list gone": found / "unpacked.txt", "python gone": found / "bin/python"}.get(what, found / "lib" / "deep" / "data")
    lost.unlink()
    if what == "empty":
        lost.touch()
    assert host.run() == (0, str(found), [])
    assert (found / "lib" / "deep" / "data").read_bytes() == b"d" * 9999
    assert sorted(path.name for path in host.cache.iterdir()) == [host.name, "rmq-reindex.lock"]
    before = found.stat().st_ino
    assert host.run() == (0, str(found), [])
    assert found.stat().st_ino == before


def test_one_whose_file_a_host_has_added_to_is_kept(host: Host) -> None:
    """As where each start of Python adds the host's own certificates to those of certifi, and other executors run."""
    found = host.cache / host.name
    assert host.run() == (0, str(found), [])
    before = found.stat().st_ino
    with (found / "lib" / "deep" / "data").open("ab") as file:
        file.write(b"more")
    assert host.run() == (0, str(found), [])
    assert found.stat().st_ino == before
    assert (found / "lib" / "deep" / "data").read_bytes() == b"d" * 9999 + b"more"


def test_its_exit_status_is_pythons(host: Host) -> None:
    words = [str(host.here / environment.PROGRAM), "-c", "import sys; sys.exit(7)"]
    assert subprocess.run(words, env=host.environment, check=False).returncode == 7


def test_the_folder_that_is_named(host: Host, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "named")
    (tmp_path / "named").mkdir(mode=0o700)
    assert host.run(RMQ_REINDEX_CACHE_DIR=str(tmp_path / "link")) == (0, str(tmp_path / "named" / host.name), [])
    assert host.run(XDG_CACHE_HOME=str(tmp_path / "xdg")) == (0, str(tmp_path / "xdg" / "rmq-reindex" / host.name), [])
    assert not host.cache.exists()


def test_a_folder_that_all_share_may_be_around_it(host: Host, tmp_path: Path) -> None:
    """As /tmp. A lock that somebody has spoilt there holds nobody up."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "rmq-reindex.lock").symlink_to(host.home)
    assert host.run(RMQ_REINDEX_CACHE_DIR=str(tmp_path / "shared")) == (0, str(tmp_path / "shared" / host.name), [])


def test_several_at_once_unpack_once(tmp_path: Path) -> None:
    host = Host(tmp_path, 50 << 20)
    processes = [host.start() for _ in range(6)]
    ended = [process.communicate("given") for process in processes]
    assert ended == [(f"{host.cache / host.name}/bin/python a b  given\n", "")] * 6
    assert {path.name for path in host.cache.iterdir()} == {host.name, "rmq-reindex.lock"}


def test_one_that_is_killed_is_made_good(tmp_path: Path) -> None:
    host = Host(tmp_path, 400 << 20)
    process = host.start()
    wait_until(lambda: any(host.cache.glob(f"{host.name}.*/lib/deep/data")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (host.cache / host.name).exists()
    assert len(list(host.cache.glob(f"{host.name}.*"))) == 1
    assert host.run() == (0, str(host.cache / host.name), [])
    assert {path.name for path in host.cache.iterdir()} == {host.name, "rmq-reindex.lock"}


def test_old_ones_are_removed_when_another_is_made(host: Host, tmp_path: Path) -> None:
    host.cache.mkdir(parents=True)
    host.cache.chmod(0o700)
    (tmp_path / "elsewhere").mkdir()
    names = {"environment-old": 40, "environment-old.elsewhere-x1": 40, "environment-used": 9, "other": 40}
    for name, days in names.items():
        (host.cache / name / "bin").mkdir(parents=True)
        os.utime(host.cache / name, (time.time() - days * DAY,) * 2)
    (host.cache / "environment-link").symlink_to(tmp_path / "elsewhere")
    os.utime(host.cache / "environment-link", (0, 0), follow_symlinks=False)
    assert host.run()[0] == 0
    left = {path.name for path in host.cache.iterdir()}
    assert left == {host.name, "environment-used", "other", "environment-link", "rmq-reindex.lock"}


def test_what_others_unpack_at_the_same_time_stays(host: Host) -> None:
    """A host whose name begins as this one's, where the folder is on a shared disk, and one that has waited for the lock."""
    name, node = host.name, os.uname().nodename
    for ending in (f"{node}~left", f"{node}-1~its", f"{node}.net~its", "~waited"):
        (host.cache / f"{name}.{ending}").mkdir(parents=True, mode=0o700)
    host.cache.chmod(0o700)
    assert host.run()[0] == 0
    left = {f"{name}.{node}-1~its", f"{name}.{node}.net~its", f"{name}.~waited"}
    assert {path.name for path in host.cache.iterdir()} == {name, "rmq-reindex.lock"} | left


def test_it_is_on_the_disk_before_it_has_its_name(host: Host) -> None:
    """Else a host that loses power would keep empty files, and run them for good. On a disk: memory has no pages to wait."""
    host.pack({"bin/python": (PYTHON.encode(), 0o755), "lib/data": (os.urandom(9 << 20), 0o644)})
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        assert host.run(RMQ_REINDEX_CACHE_DIR=folder)[0] == 0
        assert unsent_pages(Path(folder) / host.name / "lib" / "data") in (0, None)


# ---------------------------------------------------------------------------------------------------------- what cannot be kept


def test_a_home_that_cannot_be_written(host: Host) -> None:
    """The executor's own folder takes it, once for all its Pythons."""
    told = f"rmq_python: /proc/nowhere: No such file or directory: {host.here / host.name} is used instead"
    assert host.run(HOME="/proc/nowhere") == (0, str(host.here / host.name), [told])
    host.archive.unlink()
    assert host.run(HOME="/proc/nowhere") == (0, str(host.here / host.name), [told])


def test_no_home(host: Host) -> None:
    told = f"rmq_python: the user has no home: {host.here / host.name} is used instead"
    assert host.run(HOME="", XDG_CACHE_HOME="cache") == (0, str(host.here / host.name), [told])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("size=64k", "DISK: No space left on device"),
        ("ro", r"DISK/environment-[^/]+: Read-only file system"),
        ("noexec", "DISK: is mounted noexec"),
    ],
)
def test_a_disk_that_does_not_take_it(options: str, reason: str, host: Host, tmp_path: Path) -> None:
    words, disk = namespace(), tmp_path / "disk"
    if not words:
        pytest.skip("nothing may be mounted here")
    disk.mkdir()
    # What cannot be compressed needs the room that it has.
    host.pack({"bin/python": (PYTHON.encode(), 0o755), "lib/data": (os.urandom(200 << 10), 0o644)})
    script = f"mount -t tmpfs -o {options} none '{disk}' && \"$@\"; status=$?; ls '{disk}' >&2; exit $status"
    status, ran, (told, *left) = host.run(*words, "sh", "-c", script, "sh", RMQ_REINDEX_CACHE_DIR=str(disk))
    assert (status, ran) == (0, str(host.here / host.name))
    assert re.fullmatch(f"rmq_python: {reason.replace('DISK', str(disk))}: {host.here / host.name} is used instead", told)
    # No half of it.
    assert set(left) <= {"rmq-reindex.lock"}


def test_no_folder_takes_it(host: Host) -> None:
    host.pack({"bin/python": (PYTHON.encode(), 0o600)})
    status, ran, (_, error) = host.run()
    assert (status, ran) == (1, "")
    assert error.endswith(
        "/bin/python: cannot be run: no folder takes environment.tar.gz: name one of your own by RMQ_REINDEX_CACHE_DIR"
    )


def test_an_archive_that_is_not_there_or_another_one(host: Host) -> None:
    packed = host.archive.read_bytes()
    host.archive.unlink()
    told = f"error: {host.archive} is not there: give spark-submit --files rmq_python,environment.tar.gz"
    assert host.run() == (1, "", [told])
    told = f"error: {host.archive} is not the one that rmq_python was made with: send both from one dist/"
    for content in (b"", packed[:-9], packed + b"\0"):
        host.archive.write_bytes(content)
        assert host.run() == (1, "", [told])
    assert [path.name for path in host.cache.iterdir()] == ["rmq-reindex.lock"]


def test_without_the_zip(host: Host) -> None:
    (host.here / "rocketmq_reindex.zip").unlink()
    told = "error: rmq_python: No module named 'rocketmq_reindex': give spark-submit --py-files rocketmq_reindex.zip"
    # A Python in which the package is not installed.
    bare = f"{Path(sys._base_executable).parent}:/usr/bin:/bin"  # type: ignore[attr-defined]
    assert host.run(PATH=bare) == (1, "", [told])


def test_what_archives_has_unpacked_is_taken(host: Host) -> None:
    """Where Spark was given --archives environment.tar.gz#environment, it sends no archive besides."""
    with tarfile.open(host.archive) as packed:
        packed.extractall(host.here / "environment", filter="data")
    assert host.run()[1] == str(host.cache / host.name)
    host.archive.unlink()
    assert host.run() == (0, str(host.here / "environment"), [])


# ------------------------------------------------------------------------------------------------------------ what is never run


def hostile(folder: Path) -> None:
    """An environment that somebody has prepared."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(PYTHON)
    (folder / "bin" / "python").chmod(0o755)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
@pytest.mark.parametrize("around", [False, True])
def test_a_folder_that_others_may_write_to(mode: int, around: bool, host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "named" / host.name
    hostile(folder)
    (folder.parent if around else folder).chmod(mode)
    which = folder.parent if around else folder
    why = f"others may write to {which}"
    told = f"error: RMQ_REINDEX_CACHE_DIR: {why}: what lies there is run: name a folder of your own, mode 700"
    named = {"MARK": str(host.mark), "RMQ_REINDEX_CACHE_DIR": str(tmp_path / "named")}
    assert host.run(**named) == (1, "", [told])
    assert not host.mark.exists()
    # Nobody has named the user's own cache: it is passed over.
    host.cache.parent.mkdir()
    (tmp_path / "named").rename(host.cache)
    told = f"rmq_python: {why.replace(str(tmp_path / 'named'), str(host.cache))}: {host.here / host.name} is used instead"
    assert host.run() == (0, str(host.here / host.name), [told])


def test_an_empty_folder_that_others_may_write_to(host: Host, tmp_path: Path) -> None:
    """Nothing is unpacked into it."""
    (tmp_path / "named").mkdir()
    (tmp_path / "named").chmod(0o777)
    status, _, (told,) = host.run(RMQ_REINDEX_CACHE_DIR=str(tmp_path / "named"))
    assert status == 1
    assert told.startswith(f"error: RMQ_REINDEX_CACHE_DIR: others may write to {tmp_path / 'named'}: ")
    assert [path.name for path in (tmp_path / "named").iterdir()] == ["rmq-reindex.lock"]


def test_a_link_in_its_place(host: Host, tmp_path: Path) -> None:
    hostile(tmp_path / "elsewhere")
    (tmp_path / "named").mkdir(mode=0o700)
    for target in ("elsewhere", "nowhere"):
        (tmp_path / "named" / host.name).symlink_to(tmp_path / target)
        status, _, (told,) = host.run(MARK=str(host.mark), RMQ_REINDEX_CACHE_DIR=str(tmp_path / "named"))
        assert (status, host.mark.exists()) == (1, False)
        assert told.startswith(f"error: RMQ_REINDEX_CACHE_DIR: {tmp_path / 'named' / host.name} is no folder: ")
        (tmp_path / "named" / host.name).unlink()


def test_one_of_somebody_else(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile(tmp_path / "named" / host.name)
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "named"))
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(InputError, match="belongs to somebody else"):
        environment.find(str(host.here), host.name.partition("-")[2])


def test_modules_and_variables_around_it_are_not_imported(host: Host, tmp_path: Path) -> None:
    """Other files that the user sends lie in the same folder, and what the user's Python imports is not for this program."""
    for folder in (host.here, tmp_path / "path"):
        folder.mkdir(exist_ok=True)
        for name in ("tarfile", "hashlib", "sitecustomize", "rocketmq_reindex"):
            (folder / f"{name}.py").write_text("import os\nos.mkdir(os.environ['MARK'])\n")
    # The environment's own Python would take them.
    host.pack({"bin/python": (b'#!/bin/sh\necho "$0 a b  given"\n', 0o755)})
    status, ran, lines = host.run(MARK=str(host.mark), PYTHONPATH=str(tmp_path / "path"))
    assert (status, bool(ran), lines, host.mark.exists()) == (0, True, [], False)


@pytest.mark.parametrize("by_archives", [False, True])
def test_a_program_in_a_folder_to_which_all_may_add(by_archives: bool, host: Host) -> None:
    """As /tmp, where others cannot replace the program, but prepare what it would run."""
    hostile(host.here / ("environment" if by_archives else host.name))
    if by_archives:
        host.archive.unlink()
    host.here.chmod(0o1777)
    told = f"error: {host.here}: others may add folders, and what lies there is run: put dist/ into a folder of its own"
    assert host.run(MARK=str(host.mark), HOME="" if by_archives else "/proc/nowhere") == (1, "", [told])
    assert not host.mark.exists()
