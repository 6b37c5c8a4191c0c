"""Run the Python of ``environment.tar.gz``, which is unpacked once a host: ``rmq_python`` of ``dist/``, for PYSPARK_PYTHON.

`make dist` makes ``rmq_python``: a few lines that take this module out of the zip beside them, and know the archive's digest.
Spark sends program, zip and archive into one folder. Nothing is imported here that only the archive has.

The environment is kept in a folder of the user's own, as compiled code is (``storage_format.kernels.cache_folder``): what lies
there is run.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final

from rocketmq_reindex.storage_format.errors import InputError, error_lines
from rocketmq_reindex.storage_format.kernels.cache_folder import make_own, trouble_of, unused_beside, users_cache
from rocketmq_reindex.storage_format.showing import escape

PROGRAM: Final = "rmq_python"
ARCHIVE: Final = "environment.tar.gz"
VARIABLE: Final = "RMQ_REINDEX_CACHE_DIR"
"""names another folder than the one in the user's own cache"""
DIGEST_SIZE: Final = 16
_CACHE: Final = "rmq-reindex"
_PREFIX: Final = "environment-"
_BY_ARCHIVES: Final = "environment"
"""the folder into which Spark unpacks what --archives sends"""
_UNPACKED: Final = "unpacked.txt"
"""in the folder of an environment: size and name of each file, a line for each"""
_LOCK: Final = "rmq-reindex.lock"
_POLLS, _POLL = 2400, 0.05
"""A process waits two minutes for another one to unpack; then it unpacks by itself."""
_CHUNK: Final = 1 << 20


def become(here: str, digest: str, words: Sequence[str]) -> int:
    """Become the environment's Python, which gets ``words``. Return an exit status, having printed why, where that fails.

    ``here``: the folder of this program and of the archive. ``digest``: that of the archive, as ``digest_of`` gives it.
    """
    try:
        python = _python_in(find(here, digest))
        # A local session starts its workers by the driver's Python, without coming here again.
        os.environ["PYSPARK_DRIVER_PYTHON"] = python
        os.execv(python, [python, *words])
    except InputError as error:
        print(error_lines(str(error)), file=sys.stderr)
        return int(error.exit_status)
    except OSError as error:
        print(f"error: {PROGRAM}: {_reason(error, here)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def find(here: str, digest: str) -> str:
    """Return the folder of the environment, unpacked if need be; arguments are those of ``become``.

    It is the one that --archives has made in ``here``, where the archive itself was not sent. Else it is kept in the folder
    that VARIABLE names, or in the user's own cache, and in ``here`` where nothing can be kept. Raises InputError where others
    may write to the named folder, or add to ``here``, where the archive is missing or another one, and where no folder takes
    it.
    """
    archive, sent = os.path.join(here, ARCHIVE), os.path.join(here, _BY_ARCHIVES)
    if os.path.isdir(sent) and not os.path.exists(archive):
        _check_own(here)
        return sent
    named, cache = os.environ.get(VARIABLE, ""), users_cache()
    around = os.path.realpath(named) if named else cache and os.path.join(cache, _CACHE)
    reason = "the user has no home"
    if around:
        folder = os.path.join(around, _PREFIX + digest)
        try:
            reason = _keep(folder, archive, digest, trouble_of)
            if not reason:
                return folder
        except OSError as error:
            reason = _reason(error, around)
        else:
            if named:
                raise InputError(f"{VARIABLE}: {reason}: what lies there is run: name a folder of your own, mode 700")
    folder = os.path.join(here, _PREFIX + digest)
    _check_own(here)
    print(f"{PROGRAM}: {reason}: {escape(folder)} is used instead", file=sys.stderr, flush=True)
    try:
        # Who can write here can replace this program itself.
        _keep(folder, archive, digest, lambda _folder: "")
    except OSError as error:
        raise InputError(f"{_reason(error, here)}: no folder takes {ARCHIVE}: name one of your own by {VARIABLE}") from error
    return folder


def digest_of(archive: str) -> str:
    """Return the digest by which an archive and its folder are known: 32 hexadecimal digits. Raises OSError."""
    with open(archive, "rb") as file:
        return _digest(file)


# -------------------------------------------------------------------------------------------------------------- one environment


def _check_own(here: str) -> None:
    """Raise InputError for a folder as /tmp: others cannot replace this program there, but add what it would run."""
    mode = os.stat(here).st_mode
    if mode & stat.S_ISVTX and mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"{escape(here)}: others may add folders, and what lies there is run: put dist/ into a folder of its own"
        )


def _python_in(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def _reason(error: OSError, place: str) -> str:
    """Return what failed, and where; ``place``: where the error does not say, as that of a full disk does not."""
    return f"{escape(str(error.filename or place))}: {error.strerror or error}"


def _keep(folder: str, archive: str, digest: str, troubled: Callable[[str], str]) -> str:
    """Have the environment in a folder, or note that it is used; one that has lost a file is unpacked anew.

    Return what ``troubled`` finds wrong with the folder; "" if nothing is. Raises OSError where it cannot be kept or run there,
    InputError as ``find``.
    """
    if not os.path.lexists(folder) or (not troubled(folder) and _has_lost(folder)):
        with contextlib.suppress(FileExistsError):
            make_own(os.path.dirname(folder))
        with _lock(os.path.dirname(folder)) as locked:
            if _has_lost(folder) and (trouble := _make(folder, archive, digest, troubled, locked)):
                return trouble
    if trouble := troubled(folder):
        return trouble
    if not os.access(_python_in(folder), os.X_OK):
        # Mounted noexec meanwhile.
        raise PermissionError(errno.EACCES, "cannot be run", _python_in(folder))
    with contextlib.suppress(OSError):
        os.utime(folder)
    return ""


def _has_lost(folder: str) -> bool:
    """Return whether a file of an environment is not there, or is shorter than it was unpacked: no byte is read.

    A longer one is kept: a host may add its own certificates to those of certifi.
    """
    try:
        with open(os.path.join(folder, _UNPACKED), encoding="utf-8") as lines:
            for line in lines:
                size, _, name = line.rstrip("\n").partition(" ")
                if os.stat(os.path.join(folder, name)).st_size < int(size):
                    return True
    except (OSError, ValueError):
        return True
    return False


def _make(folder: str, archive: str, digest: str, troubled: Callable[[str], str], locked: bool) -> str:
    """Unpack the archive aside and rename it. Return what is wrong with the place. Raises as ``_keep``.

    ``locked``: no other process of this host unpacks the same, so what a killed one left is removed.
    """
    # Only here: they take longer to import than all the rest.
    import shutil
    import tempfile

    from rocketmq_reindex import files

    # No host's name has this mark: what another host unpacks, or one of this host that waited in vain for the lock, stays.
    prefix = f"{folder}.{os.uname().nodename if locked else ''}~"
    if locked:
        for left in _left(prefix):
            shutil.rmtree(left, ignore_errors=True)
    aside = tempfile.mkdtemp(prefix=os.path.basename(prefix), dir=os.path.dirname(folder))
    try:
        if trouble := troubled(aside):
            return trouble
        if os.statvfs(aside).f_flag & os.ST_NOEXEC:
            raise PermissionError(errno.EACCES, "is mounted noexec", os.path.dirname(folder))
        since = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _unpack(archive, digest, aside)
            # A host that loses power must not keep a folder of empty files.
            files.sync(aside, since)
        finally:
            os.close(since)
        try:
            if os.path.lexists(folder) and _has_lost(folder):
                os.rename(folder, f"{aside}.lost")
            os.rename(aside, folder)
        except OSError:
            # Another host that has the same folder was first.
            if not os.path.lexists(folder):
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(f"{aside}.lost", ignore_errors=True)
    with contextlib.suppress(OSError):
        for unused in unused_beside(folder, _PREFIX):
            with contextlib.suppress(OSError):
                # First out of the way: nobody finds half of it.
                os.rename(unused, f"{unused}.unused")
                shutil.rmtree(f"{unused}.unused", ignore_errors=True)
    return ""


def _left(prefix: str) -> list[str]:
    """Return the user's own folders whose paths begin with ``prefix``."""
    with os.scandir(os.path.dirname(prefix)) as beside:
        return [
            entry.path
            for entry in beside
            if entry.path.startswith(prefix)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.getuid()
        ]


def _unpack(archive: str, digest: str, folder: str) -> None:
    """Unpack the archive into a new folder, for the user alone. Raises InputError for another archive, and OSError."""
    import shutil
    import tarfile

    try:
        file = open(archive, "rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        raise InputError(f"{escape(archive)} is not there: give spark-submit --files {PROGRAM},{ARCHIVE}") from None
    mask = os.umask(0o077)
    try:
        with file:
            # It is known by its digest: its names need no more looking at.
            if _digest(file) != digest:
                raise InputError(f"{escape(archive)} is not the one that {PROGRAM} was made with: send both from one dist/")
            file.seek(0)
            listed = open(os.path.join(folder, _UNPACKED), "x", encoding="utf-8")  # noqa: SIM115  closed below
            with listed, tarfile.open(fileobj=file, mode="r:gz") as tar:
                for member in tar:
                    path, source = os.path.join(folder, member.name), tar.extractfile(member)
                    assert source is not None, member.name
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "xb") as target:
                        shutil.copyfileobj(source, target, _CHUNK)
                    os.chmod(path, member.mode & 0o700)
                    listed.write(f"{member.size} {member.name}\n")
    finally:
        os.umask(mask)


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _lock(around: str) -> Iterator[bool]:
    """Hold the lock of a folder, which ends with its process. False where nothing can be locked, or another one has it."""
    file, locked = -1, False
    try:
        with contextlib.suppress(OSError):
            file = os.open(os.path.join(around, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            for _ in range(_POLLS):
                with contextlib.suppress(BlockingIOError, PermissionError):
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
                    break
                time.sleep(_POLL)
        yield locked
    finally:
        if file >= 0:
            os.close(file)
