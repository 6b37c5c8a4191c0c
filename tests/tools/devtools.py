"""A real headless Chromium steered over its DevTools protocol, by a pipe: pages with their own policy, keys, pictures."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300
"""seconds for one answer: other tests may have all cores"""
HEIGHT = 900
KEYS = {"Tab": 9, "Enter": 13}


@cache
def printed(script: str) -> str:
    """What a script of ``scripts/`` prints: where what it sets up is."""
    return subprocess.run([ROOT / "scripts" / script], capture_output=True, text=True, check=True).stdout.strip()


@cache
def axe() -> str:
    """The source of axe-core, which checks a page for WCAG."""
    return Path(printed("axe")).read_text(encoding="utf-8")


class Browser:
    """One browser. Its only network is 127.0.0.1."""

    def __init__(self, profile: Path) -> None:
        theirs, self._out = os.pipe()
        self._in, answers = os.pipe()
        self._number, self._buffer, self._events = 0, b"", list[dict[str, Any]]()
        words = [
            # Its shared memory in files: /dev/shm may be small, and other tests use it.
            printed("browser"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}",
            "--remote-debugging-pipe", "--force-device-scale-factor=1", "about:blank",
        ]  # fmt: skip
        # It reads from 3 and writes to 4.
        shell = ["bash", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{answers}', *words]
        self._log = (profile.parent / f"{profile.name}.log").open("wb")
        self.process = subprocess.Popen(shell, pass_fds=(theirs, answers), stdout=self._log, stderr=self._log)
        os.close(theirs)
        os.close(answers)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        for end in (self._in, self._out):
            os.close(end)
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self._log.close()

    def call(self, method: str, session: str = "", **given: Any) -> dict[str, Any]:
        """Ask for something, and return the answer. Events that come before are kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given} | ({"sessionId": session} if session else {})
        left = json.dumps(asked).encode() + b"\0"
        while left:
            left = left[os.write(self._out, left) :]
        until = time.monotonic() + PATIENCE
        while True:
            told = self._next(until)
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result
            self._events.append(told)

    def event(self, name: str, session: str) -> dict[str, Any]:
        """Return the next event of this name, and forget it."""
        until = time.monotonic() + PATIENCE
        while True:
            for told in self._events:
                if told.get("method") == name and told.get("sessionId") == session:
                    self._events.remove(told)
                    return told
            self._events.append(self._next(until))

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the events of these names that have come and were not asked for."""
        return [told for told in self._events if told.get("method") in names]

    def forget(self) -> None:
        """Forget all events."""
        self._events = []

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "the browser does not answer, or is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def tab(self) -> Tab:
        """Return a new page, empty."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session)


class Tab:
    """A page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session
        for domain in ("Page", "Runtime", "Log", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        return self.browser.call(method, self._session, **given)

    def open(self, url: str) -> None:
        """Open an address, and wait until its style is there, too."""
        self.browser.forget()
        told = self.call("Page.navigate", url=url)
        assert not told.get("errorText"), (url, told)
        self.loaded()

    def loaded(self) -> None:
        """Wait for the page that is on its way."""
        self.browser.event("Page.loadEventFired", self._session)

    def look(self, width: int, dark: bool, height: int = HEIGHT) -> None:
        """Give the page a width, in CSS pixels, and a scheme of colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """Return what a script gives: it is the test's own, and no policy of the page keeps it out."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go, as a keyboard does."""
        given = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **given, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def problems(self, *, without: tuple[str, ...] = ()) -> list[str]:
        """Return what axe-core finds against WCAG A and AA in the page as it is."""
        if self.run("typeof axe") == "undefined":
            # Half a megabyte, once a page.
            self.run(f"{axe()}; 0")
        rules = {rule: {"enabled": False} for rule in without}
        asked = {
            "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], "rules": rules,
            "resultTypes": ["violations"],
        }  # fmt: skip
        found = self.run(
            f"axe.run(document, {json.dumps(asked)}).then(r => r.violations.flatMap("
            "v => v.nodes.map(n => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary}`)))"
        )
        return list(found)

    def picture(self, width: int, height: int) -> bytes:
        """Return the page as it looks, as a PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip)["data"])


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Give a browser, and end it."""
    made = Browser(profile)
    try:
        yield made
    finally:
        made.close()
