"""The pages: which addresses there are, what each takes, and the same facts as HTML or as JSON; and turns at them.

Pages of one kind that take long leave the others as fast as they are: so few of that kind are made at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent import futures
from typing import Any, Final

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rocketmq_reindex.jobs.browsing import (
    checks,
    facts,
    health,
    message,
    opened,
    overview,
    page_templates,
    remembered,
    search_pages,
    templates,
)
from rocketmq_reindex.jobs.browsing.options import Address, Asked, BrowseSettings, NotFound, OpenedStores, PageFacts, url
from rocketmq_reindex.jobs.querying.shown import cell, preview
from rocketmq_reindex.jobs.reporting import parts
from rocketmq_reindex.storage_format.errors import InputError, ReindexError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, printable
from rocketmq_reindex.storage_format.topics import path_component
from rocketmq_reindex.udfs.times import parse_time
from rocketmq_reindex.version import __version__

# ------------------------------------------------------------------------------------------------------------------------ turns


AT_ONCE: Final = 2
"""pages of one kind that are made at the same time: each may hold some MiB"""
WAITING: Final = 6
"""requests for a kind of page that wait for their turn"""
RETRY_AFTER: Final = 5
"""seconds"""

Answer = Callable[[Request], Response]


class BusyError(ReindexError):
    """Too many requests for one kind of page wait already."""


class Turns:
    """Makes the answers of one kind in threads, a few at a time. Those of another kind have threads of their own.

    The threads are daemons: a page that takes long does not keep the process from its end.
    """

    def __init__(self, make: Answer, busy: Answer, at_once: int) -> None:
        self._make, self._busy, self._most = make, busy, at_once + WAITING
        self._free = threading.BoundedSemaphore(at_once)
        self._count, self._counting = 0, threading.Lock()

    async def answer(self, request: Request) -> Response:
        """Return what ``make`` answers; what ``busy`` does where too many wait."""
        with self._counting:
            if self._count >= self._most:
                return self._busy(request)
            self._count += 1
        made = futures.Future[Response]()

        def work() -> None:
            try:
                with self._free:
                    response = self._make(request) if made.set_running_or_notify_cancel() else None
            except BaseException as error:  # noqa: BLE001  raised where the answer is waited for
                self._leave()
                made.set_exception(error)
            else:
                self._leave()
                if response is not None:
                    made.set_result(response)

        try:
            threading.Thread(target=work, name="browse page", daemon=True).start()
        except RuntimeError:
            # The system gives no more threads.
            self._leave()
            return self._busy(request)
        return await asyncio.wrap_future(made)

    def _leave(self) -> None:
        with self._counting:
            self._count -= 1


def in_turn(make: Answer, busy: Answer, at_once: int = AT_ONCE) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for one kind of page: by ``make``, ``at_once`` at a time, or by ``busy``."""
    return Turns(make, busy, at_once).answer


# ------------------------------------------------------------------------------------------------------------------------ pages


BARS: Final = 12
_STATUS: Final = ((UsageError, 400), (NotFound, 404), (checks.Busy, 409), (BusyError, 503))
_SAID: Final = {
    400: "Wrong question",
    404: "Not there",
    409: "Not now",
    422: "The store has no answer",
    503: "Not now",
}
TEMPLATES: Final = templates.TEMPLATES | page_templates.OVERVIEW_TEMPLATES | search_pages.TEMPLATES | health.TEMPLATES
_COMMAND: Final = re.compile(r"rmq-reindex (?:query|export): ")
"""begins the errors of options: a page has no command"""


def finalize(value: Any) -> Any:
    """Return what a template shows of a value: text without control characters, escape sequences and marks of direction."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class StorePages:
    """The pages of the stores that were named; those that are not ``live`` are to be files."""

    def __init__(self, settings: BrowseSettings, live: bool = True) -> None:
        self._settings, self.stores = settings, OpenedStores(settings)
        self.health, self._opened = health.Health(self.stores), opened.Opened(self.stores)
        self.search = search_pages.SearchPages(self.stores, _hidden)
        self._overview = overview.Overview(self.stores, remembered.Remembered(), live)
        environment = jinja2.Environment(
            loader=jinja2.DictLoader(TEMPLATES), autoescape=True, finalize=finalize, undefined=jinja2.ChainableUndefined
        )
        environment.globals.update(url=url, size=templates.bytes_text, preview=lambda row: preview(row, 60))
        environment.globals.update(opened=bool(settings.findings))
        self._templates = {name: environment.get_template(name) for name in TEMPLATES}
        self.shown = dict[str, Address]()
        """pages by their addresses, without query: those of ``routes``"""

    def routes(self) -> list[Route]:
        """Return the addresses. Each takes GET and HEAD. With ``.json`` behind it, that of a page gives the same as JSON."""
        pages = [
            Address("/", "stores", (), self._all_stores),
            Address("/store", "store", ("store",), self._store),
            Address("/topics", "topics", ("store", "from"), self._topics),
            Address("/topic", "topic", ("store", "topic", "from"), self._topic),
            Address("/queue", "queue", ("store", "topic", "queue", "from", "time"), self._queue),
            *message.MessagePages(self.stores, cell).shown(),
            *self.search.shown(),
            *self._overview.pages(),
            *self.health.pages(),
            *self._opened.pages(),
            *opened.IndexItems(self.stores).pages(),
        ]
        turns = [(page.path, in_turn(self._shown(page), self._busy)) for page in pages]
        made = [Route(place, turn) for path, turn in turns for place in (path, _json_place(path))]
        made += [Route(path, self._posted, methods=["POST"]) for path in health.POSTED]
        return [*made, Route("/body", in_turn(self._body, self._busy, 1)), Route("/style.css", _style)]

    def _shown(self, shown: Address) -> Callable[[Request], Response]:
        """Return what answers requests for a page. It is called in threads."""
        self.shown[shown.path] = shown

        def answer(request: Request) -> Response:
            as_json, store = _wants_json(request), ""
            self.search.ahead.noted()
            try:
                asked = Asked(request.scope["query_string"], shown.fields)
                as_json, store = asked.as_json or request.url.path != shown.path, asked.given.get("store", "")
                page = shown.make(asked)
            except (ReindexError, OSError, ValueError) as error:
                return self._failed(error, as_json, store)
            if as_json:
                return _json(page.facts, page.status)
            given = {name: value for name, value in asked.given.items() if name != "format"}
            return self._html(shown.template, page, url(request.url.path[1:], **given, format="json"), store)

        return answer

    async def _posted(self, request: Request) -> Response:
        """Do what a form asks for, and lead to the page that shows it. The guard has looked who asks, and how long it is."""
        path, as_json = request.url.path, _wants_json(request)
        try:
            form = await request.body()
        except ClientDisconnect:
            # Nobody is there to read it. What a part of a form would start, nobody has asked for.
            return Response(status_code=400)
        try:
            place = await run_in_threadpool(lambda: self.health.post(path, Asked(form, health.POSTED[path])))
        except (ReindexError, OSError, ValueError) as error:
            return self._failed(error, as_json)
        return _json({"page": place}, 202) if as_json else RedirectResponse(place, 303)

    def _html(self, template: str, page: PageFacts, as_json: str, store: str) -> Response:
        text = self.text(template, self.values(page, as_json, store))
        return Response(text, page.status, dict(page.headers), media_type="text/html")

    def values(self, page: PageFacts, as_json: str, store: str) -> dict[str, Any]:
        """Return what the template of a page is filled with. ``as_json`` is the address of the same facts as JSON."""
        # A page of one store may be asked by something else: a file of findings.
        store = store or str(page.facts.get("store", ""))
        place = escape(self.stores.by_name[store].path) if store in self.stores.by_name else "stores on this host, read only"
        frame = {"title": page.title, "sub": f"{place} - rmq-reindex {__version__}", "json": as_json, "store": store}
        return {**page.facts, **page.more, **frame}

    def text(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the HTML of a template with these values."""
        return self._templates[template].render({**values, "here": template})

    def _busy(self, request: Request) -> Response:
        error = BusyError("too many requests for such a page are waiting: ask again in some seconds")
        response = self._failed(error, _wants_json(request))
        response.headers["retry-after"] = str(RETRY_AFTER)
        return response

    def _failed(self, error: Exception, as_json: bool, store: str = "") -> Response:
        """Return the page of an error: wrong questions are 400, what is not there 404, what cannot be read 422.

        What has to wait is 409, where a check goes on, and 503.
        """
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 422)
        text = str(error) if isinstance(error, ReindexError) else escape(str(error))
        text = _COMMAND.sub("", text).removesuffix(": see --help")
        if as_json:
            return _json({"error": text, "status": status}, status)
        kind = _SAID[status]
        return self._html(
            "error", PageFacts(kind, {"text": text}, {}, status), "", store if store in self.stores.by_name else ""
        )

    def _all_stores(self, _: Asked) -> PageFacts:
        stores = self._overview.all_stores()
        return PageFacts(counted(len(stores), "store"), {"version": __version__, "stores": stores})

    def _store(self, asked: Asked) -> PageFacts:
        store = self.stores.named(asked)
        found = self._overview.overview(store)
        largest = [each for each in found["info"]["topics"] if each["messages"]][:BARS]
        rows = [parts.ChartBar(printable(t["topic"]), t["messages"], f"{t['messages']:,}") for t in largest]
        filled = [parts.ChartBar(f["file"], *_share(f["items"], f["room"])) for f in found["indexFiles"] if f["room"]]
        bars = {
            "topics": Markup(parts.bars(rows, inline=False)) if rows else "", "shown": len(rows),
            "index": Markup(parts.bars(filled, "c2", 100, inline=False)) if filled else "",
        }  # fmt: skip
        return PageFacts(f"Store {store.name}", {"store": store.name, **found}, {"bars": bars})

    def _topics(self, asked: Asked) -> PageFacts:
        store = self.stores.named(asked)
        return PageFacts(f"Topics of {store.name}", {"store": store.name, **facts.topics(store, asked.given.get("from", ""))})

    def _topic(self, asked: Asked) -> PageFacts:
        store, topic = self.stores.named(asked), asked.text("topic")
        found = facts.queues(store, topic, asked.number("from") or 0)
        return PageFacts(f"Topic {topic}", {"store": store.name, **found}, {}, 200 if found["count"] else 404)

    def _queue(self, asked: Asked) -> PageFacts:
        store, topic, queue = self.stores.named(asked), asked.text("topic"), asked.number("queue")
        if queue is None:
            raise UsageError("queue: is missing")
        if path_component(topic) is None:
            raise UsageError(f"topic: {escape(topic)} is not a name that a folder can have")
        time = parse_time(asked.given["time"], "time") if "time" in asked.given else None
        if time is not None and "from" in asked.given:
            raise UsageError("take one of from and time")
        found = facts.units(store, topic, queue, asked.number("from"), time, self._settings.delays)
        if found is None:
            raise NotFound(f"{escape(topic)}, queue {queue}: the store has no such queue, or its files are lost")
        return PageFacts(f"{topic}, queue {queue}", {"store": store.name, **found}, {"raw_topic": _hidden(topic)})

    def _body(self, request: Request) -> Response:
        """Hand out a body as bytes that no browser shows or runs."""
        try:
            asked = Asked(request.scope["query_string"], ("store", "physical"))
            if asked.as_json:
                raise UsageError("format: is no field of this page: it gives the bytes alone")
            at = asked.number("physical")
            if at is None:
                raise UsageError("physical: is missing")
            body = message.whole_body(self.stores.named(asked), at)
            if isinstance(body, str):
                raise InputError(body)
        except (ReindexError, OSError, ValueError) as error:
            return self._failed(error, False)
        headers = {
            "content-disposition": f'attachment; filename="body-{at}.bin"',
            "content-security-policy": "default-src 'none'; sandbox",
        }
        return Response(body, headers=headers, media_type="application/octet-stream")


def application(settings: BrowseSettings) -> Starlette:
    """Return the pages as an application, without the guard before it. ``state.checks`` are what its pages start."""
    pages = StorePages(settings)

    def no_page(_request: Request, _error: Exception) -> Response:
        return Response("not found: no page has this address\n", 404, media_type="text/plain")

    made = Starlette(routes=pages.routes(), exception_handlers={404: no_page})
    made.state.checks, made.state.stores, made.state.ahead = pages.health.checks, pages.stores, pages.search.ahead
    return made


def _json_place(path: str) -> str:
    """Return the other address of a page as JSON."""
    return f"{path if path != '/' else '/index'}.json"


def _wants_json(request: Request) -> bool:
    """Return whether JSON is asked for, by the address alone: its fields may be wrong."""
    return request.url.path.endswith(".json") or b"format=json" in request.scope["query_string"]


def _json(value: object, status: int) -> Response:
    # ASCII: a name that is no text stands there by escapes.
    return Response(json.dumps(value), status, media_type="application/json")


def style() -> str:
    """Return the stylesheet of all pages."""
    return parts.STYLE + parts.BAR_CLASSES + templates.PLOT_STYLE + templates.STYLE


def _style(_: Request) -> Response:
    return Response(style(), media_type="text/css")


def _share(count: int, room: int) -> tuple[float, str]:
    share = min(100.0, 100 * count / room)
    return share, f"{count:,} of {room:,}"


def _hidden(text: str) -> str:
    """Return a text that a form sends back. A name that is no text cannot be sent so: the field is left empty."""
    return text if text.isprintable() else ""
