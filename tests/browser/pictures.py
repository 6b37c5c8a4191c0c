"""Makes the pictures of ``browse`` in the docs: docs/images/browse-*.png.

    .venv/bin/python -m tests.browser.pictures            all of them, where the pages are other ones now
    .venv/bin/python -m tests.browser.pictures browse-store

Each has in it the digest of the page that it shows, and a test compares that with the page as it is now. A page that the
application lacks is left out.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import searching
from rocketmq_reindex.jobs.browsing.options import url
from tests.docs.pages import ROOT
from tests.docs.worlds import told
from tests.tools.browsing import Pages
from tests.tools.derived_store import derive
from tests.tools.devtools import Tab, browser
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

FOLDER = ROOT / "docs" / "images"
DIGEST = "page-digest"
COLOURS = 48
SHOWN = {"shop": "/data/store", "lost": "/data/store"}
"""where the stores lie, as the pictures have it"""
TIME = "2023-11-14T22:13:20.200Z"
_LOOKED = re.compile(r"Looked at [-\d]+ [:.\d]+Z")


class Picture(NamedTuple):
    """A page of a store, and how much of it is shown, in pixels."""

    store: str
    link: str
    height: int
    width: int = 1000


PICTURES = {
    "browse-store": Picture("shop", url("store", store="shop"), 900),
    "browse-queue": Picture("shop", url("queue", store="shop", topic="Orders", queue=1), 620),
    "browse-message": Picture("shop", url("message", store="shop", topic="Orders", queue=1, offset=17), 900),
    "browse-lost-store": Picture("lost", url("store", store="lost"), 560),
    "browse-lost-queue": Picture("lost", url("queue", store="lost", topic="Orders", queue=0, time=TIME), 560),
    "browse-lost-message": Picture("lost", url("message", store="lost", topic="Orders", queue=0, offset=0), 700),
    "browse-lost-scan": Picture("lost", url("scan", store="lost", topic="Orders", key="order-17"), 700),
}


def shop(folder: Path) -> None:
    """``store``: two hours of orders, payments and shipments, and what a group gave back."""
    places = dict[tuple[str, int], int]()
    with LogWriter(folder / "store" / "commitlog", 1 << 17) as writer:

        def put(number: int, topic: str, queue: int, tag: str, **body: object) -> None:
            offset = places.get((topic, queue), 0)
            places[topic, queue] = offset + 1
            writer.append(Message(
                topic, queue, queue_offset=offset, body=json.dumps(body).encode(), store_timestamp=EPOCH + 6000 * number,
                properties={"KEYS": f"order-{number}", "TAGS": tag, "UNIQ_KEY": f"AC11000200002A9F{number:016X}"},
            ))  # fmt: skip

        for number in range(1200):
            put(number, "Orders", number % 4, "paid" if number % 5 else "open", order=number, items=number % 7 + 1)
            if number % 2:
                put(number, "Payments", number % 2, "card", order=number, cents=1999 + 100 * (number % 40))
            if number % 3 == 0:
                put(number, "Shipments", 0, "parcel", order=number)
            if number % 40 == 7:
                put(number, "%RETRY%billing", 0, "paid", order=number)
    derive(folder / "store", "--cq-file-size", "20000", "--hash-slots", "500", "--index-items", "1500")
    shutil.rmtree(folder / "store-out")


def lost(folder: Path) -> None:
    """``store`` of how-to/what-happened, whose index is lost."""
    told(folder)
    shutil.rmtree(folder / "store" / "index")


def stores(folder: Path) -> dict[str, Path]:
    """Make the stores below a folder."""
    made = {}
    for name, make in (("shop", shop), ("lost", lost)):
        (folder / name).mkdir()
        make(folder / name)
        made[name] = folder / name / "store"
    return made


def named(found: dict[str, Path]) -> list[str]:
    return [f"{name}={path}" for name, path in found.items()]


def there(found: dict[str, Path]) -> dict[str, str]:
    """{picture: digest of its page}, of the pages that the application has, without the place of a store and the clock."""
    pages, made = Pages(*named(found)), {}
    style = pages.client.get("/style.css").text
    for name, picture in PICTURES.items():
        # A search is not cut short on a busy machine.
        with mock.patch.object(searching, "PART_SECONDS", 100.0):
            answer = pages.client.get(picture.link)
        if answer.status_code == 404 and "no page has this address" in answer.text:
            continue
        assert answer.status_code == 200, (name, answer.text)
        text = _LOOKED.sub("", answer.text.replace(str(found[picture.store]), SHOWN[picture.store]))
        made[name] = sha256(f"{text}\n{style}".encode()).hexdigest()
    return made


def taken(names: list[str], found: dict[str, Path], scratch: Path) -> Iterator[tuple[str, Image.Image]]:
    """Yield pictures of pages that a real server gives to a real browser."""
    patient = mock.patch.object(searching, "PART_SECONDS", 100.0)
    with patient, rr.browse(named(found), port=0) as served, browser(scratch / "profile") as chromium:
        tab: Tab = chromium.tab()
        tab.open(served.url)
        for name in names:
            picture = PICTURES[name]
            tab.look(picture.width, dark=False, height=picture.height)
            tab.open(f"http://127.0.0.1:{served.port}{picture.link}")
            swap = json.dumps([str(found[picture.store]), SHOWN[picture.store]])
            tab.run(
                f"const [from, to] = {swap}, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);"
                "while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(from, to)"
            )
            with Image.open(io.BytesIO(tab.picture(picture.width, picture.height))) as image:
                yield name, image.convert("RGB")


def saved(image: Image.Image, digest: str, path: Path) -> None:
    """Write a picture with few colours, and the digest of its page."""
    info = PngInfo()
    info.add_text(DIGEST, digest)
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=info)


def digest_in(path: Path) -> str:
    """Return the digest of the page that a picture shows."""
    with Image.open(path) as image:
        return str(image.info.get(DIGEST, ""))


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        found = stores(Path(scratch))
        digests = there(found)
        names = sys.argv[1:] or [
            name for name, digest in digests.items() if not (FOLDER / f"{name}.png").exists()
            or digest_in(FOLDER / f"{name}.png") != digest
        ]  # fmt: skip
        for name, image in taken(names, found, Path(scratch)):
            saved(image, digests[name], FOLDER / f"{name}.png")
            print(f"{name}.png: {(FOLDER / f'{name}.png').stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
