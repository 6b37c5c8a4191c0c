"""A page in a real headless browser: what it looks like from inside, without network."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 900
HEIGHT = 1000
_REPORT = """
<script>
addEventListener("load", () => {
  const colour = (e, what) => getComputedStyle(e)[what];
  const all = [...document.querySelectorAll("svg")].map(e => e.getBoundingClientRect());
  const inside = e => { const r = e.getBoundingClientRect(); return r.left >= -0.5 && r.right <= innerWidth + 0.5; };
  const boxes = [...document.querySelectorAll("dl.facts, section")].map(e => e.getBoundingClientRect());
  const cards = [...document.querySelectorAll(".grid > section")].map(e => e.getBoundingClientRect());
  const told = {
    width: innerWidth, scroll: document.documentElement.scrollWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches,
    paper: colour(document.body, "backgroundColor"), ink: colour(document.body, "color"),
    card: colour(document.querySelector("section"), "backgroundColor"),
    muted: colour(document.querySelector("figcaption, dt, .note, .sub"), "color"),
    svgs: all.map(r => [r.width, r.height]), columns: new Set(cards.map(r => Math.round(r.left))).size,
    outside: [...document.querySelectorAll("section, svg, dl, h1, .bars, .legend, .bars div, .bars b")].filter(
      e => !inside(e)).length,
    labels: [...document.querySelectorAll("svg text")].map(e => [e.textContent, colour(e, "fill")]).concat(
      [...document.querySelectorAll(".bars span, .bars b, .legend span")].map(e => [e.textContent, colour(e, "color")])),
    smallest: Math.min(...[...document.querySelectorAll("svg text, .bars span, .legend span")].map(
      e => e.getBoundingClientRect().height)),
    apart: Math.min(...boxes.flatMap(a => boxes.filter(b => b !== a && b.left < a.right && a.left < b.right).map(
      b => Math.max(b.top - a.bottom, a.top - b.bottom)))),
    bars: [...document.querySelectorAll(".bars")].map(e => (e.querySelector("div").getBoundingClientRect().width
      - Math.max(...[...e.querySelectorAll("b")].map(b => b.getBoundingClientRect().width))) / e.getBoundingClientRect().width),
    heads: Math.max(0, ...[...document.querySelectorAll("th")].map(e => e.getBoundingClientRect().height)),
    names: Math.max(0, ...[...document.querySelectorAll(".bars span, .legend span")].map(
      e => e.getBoundingClientRect().height)),
    facts: [...document.querySelectorAll(".facts > div")].map(e => e.getBoundingClientRect()).map(r => [r.top, r.left]),
    order: [...document.querySelectorAll("h1, section, dl.facts")].map(
      e => e.querySelector("h2")?.textContent ?? e.tagName.toLowerCase()),
    verdict: document.querySelector(".verdict h2")?.getBoundingClientRect().bottom,
    loaded: performance.getEntriesByType("resource").map(e => e.name), scripts: document.scripts.length,
  };
  const out = document.createElement("pre");
  out.id = "probe"; out.textContent = JSON.stringify(told); document.body.append(out);
});
</script></body>"""


_TABLES = """
<script>
addEventListener("load", () => {
  const cut = [];
  for (const table of document.querySelectorAll("article table")) {
    const room = Math.min(innerWidth, table.parentElement.getBoundingClientRect().right);
    for (const e of table.querySelectorAll("td, th"))
      if (e.getBoundingClientRect().right > room + 1 || e.scrollWidth > e.clientWidth + 1) cut.push(e.textContent);
  }
  const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.bottom <= innerHeight; };
  const all = what => [...document.querySelectorAll(what)];
  const told = {
    width: innerWidth, scroll: document.documentElement.scrollWidth, cut,
    code: all("article pre").map(seen), pictures: all("article img").map(seen),
    links: all(".bd-sidebar-primary .sidebar-primary__section a").filter(seen).map(e => e.textContent.trim()),
  };
  window.told = told;
});
</script></body>"""
_FRAMES = """<!doctype html><body>%s
<script>
addEventListener("load", () => {
  const out = document.createElement("pre");
  out.id = "probe"; out.textContent = JSON.stringify(Array.from(frames, frame => frame.told)); document.body.append(out);
});
</script></body>"""


def look(page: Path, scratch: Path, width: int, dark: bool) -> dict[str, Any]:
    """Open a copy of a report, ``page``, with a probe in it; returns what the probe saw."""
    copy = scratch / f"probed-{width}-{dark}.html"
    copy.write_text(_with_probe(page, _REPORT), encoding="utf-8")
    told: dict[str, Any] = _told(copy, scratch / f"profile-{width}-{dark}", width, dark)
    return told


def look_at_tables(pages: Sequence[Path], scratch: Path, widths: Sequence[int]) -> dict[tuple[Path, int], dict[str, Any]]:
    """Open copies of pages of the docs, with a probe in each; returns what the probes saw by page and width.

    Each stands in a frame of its width, and one start of the browser serves all. The copies lie beside the pages for a
    moment, since these load their style from there.
    """
    copies = {page: page.with_name(f"probed-{page.name}") for page in pages}
    places = [(page, width) for page in pages for width in widths]
    style = f"height: {HEIGHT}px; border: 0; display: block"
    frames = [
        f'<iframe src="{copies[page].resolve().as_uri()}" style="width: {width}px; {style}"></iframe>' for page, width in places
    ]
    (scratch / "frames.html").write_text(_FRAMES % "\n".join(frames), encoding="utf-8")
    try:
        for page, copy in copies.items():
            copy.write_text(_with_probe(page, _TABLES), encoding="utf-8")
        # The page of frames reads what the probes left in them.
        told = _told(scratch / "frames.html", scratch / "profile", max(widths), False, "--allow-file-access-from-files")
    finally:
        for copy in copies.values():
            copy.unlink(missing_ok=True)
    return dict(zip(places, told, strict=True))


def _with_probe(page: Path, probe: str) -> str:
    text = page.read_text(encoding="utf-8")
    assert text.count("</body>") == 1
    return text.replace("</body>", probe)


def _told(page: Path, profile: Path, width: int, dark: bool, *more: str) -> Any:
    command = subprocess.run([ROOT / "scripts" / "browser"], capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(
        [
            # Its shared memory in files: /dev/shm may be small, and other tests use it.
            command, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}", f"--window-size={width},{HEIGHT}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", *more, "--dump-dom", page.resolve().as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    found = re.search(r'<pre[^>]*id="probe"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found[1]))


def contrast(one: str, other: str) -> float:
    """Contrast of two CSS colours as WCAG counts it, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
