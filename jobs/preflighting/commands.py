"""Commands that avoid a loss, ready to paste into a shell."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.preflighting.sizes import StoreSizes
from rocketmq_reindex.jobs.store.settings import StoreSettings, default_of
from rocketmq_reindex.storage_format.versions import NEWEST, VERSIONS


def shell(words: Iterable[str]) -> str:
    """Words as one line of a shell; what is not printable is written with escapes ($'...', as bash and zsh read it)."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    plain = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\x{byte:02x}" for byte in os.fsencode(word))
    return f"$'{''.join(plain)}'"


class Commands:
    """The builds, fetches and repairs of one store, with the options that its sizes need."""

    def __init__(self, settings: PreflightSettings, sizes: StoreSizes, batch: bool, lmq: bool) -> None:
        self._settings, self._sizes, self._batch, self._lmq = settings, sizes, batch, lmq
        self._timers: tuple[str, ...] = ()

    def take_timers(self, own: Iterable[str]) -> None:
        """From now on a rebuild of all parts has timer files; ``own`` are those of the store, which it takes the place of."""
        self._timers = tuple(own)

    def rebuilt(self, only: str = "", until: int = -1) -> str:
        """A build of all parts, or of those that are named, and the fetch that puts it into the store.

        With ``until`` it goes up to this offset of the log, where the broker cuts it, and passes over damage.
        """
        store, out = self._settings.store, f"{self._settings.store}.rebuilt"
        words = self._command("build", out)
        words += ["--only", only] if only else []
        words += self._options()
        words += ["--on-damage", "salvage", "--until-offset", str(until)] if until >= 0 else []
        # fetch takes such a build only if it is told that something is left out.
        partial = ["--partial"] if only or until >= 0 else []
        commitlogs = [word for root in self._settings.commitlogs for word in ("--commitlog", root)]
        steps = [words, ["rmq-reindex", "fetch", out, "--to", store, *commitlogs, *partial]]
        if self._timers and not only and until < 0:
            words += ["--write-delay"]
            words += ["--broker-conf", self._settings.broker_conf] if self._settings.broker_conf else []
            aside = f"{store}.timers"
            steps[1:1] = [["mkdir", aside], ["mv", *(os.path.join(store, name) for name in self._timers), aside]]
        return " && ".join(map(shell, steps))

    def repaired(self) -> str:
        """A repair of the log, with the files derived from it."""
        return shell([*self._command("repair", f"{self._settings.store}.repaired"), *self._options()])

    def _command(self, name: str, out: str) -> list[str]:
        words = ["rmq-reindex", name, self._settings.store, "--out", out]
        return words + [word for root in self._settings.commitlogs for word in ("--commitlog", root)]

    def _options(self) -> list[str]:
        line = next((line for line in VERSIONS if self._settings.release.startswith(f"{line}.")), NEWEST)
        found = ["--broker-version", line] if line != NEWEST else []
        sizes = {
            "cq_file_size": self._sizes.files.queue,
            "batch_cq_file_size": self._sizes.files.batch,
            "hash_slots": self._sizes.hash_slots,
            "index_items": self._sizes.index_items,
        }
        for name, value in sizes.items():
            if value != default_of(StoreSettings, name):
                found += [f"--{name.replace('_', '-')}", str(value)]
        if self._settings.broker.delay_levels:
            found += ["--delay-levels", self._settings.broker.delay_levels]
        found += ["--lmq"] if self._lmq else []
        return found + (["--topics-config", os.path.join(self._settings.store, "config/topics.json")] if self._batch else [])
