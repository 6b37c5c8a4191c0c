"""The templates of the pages, what their stylesheet has beside that of ``report``, and small plots. They need no script.

Each ``{{ }}`` is escaped twice: control characters, marks of direction and the like become visible (``pages.finalize``), then
what HTML takes for itself (autoescape). What a template calls by ``ui`` is a macro.

Plots are plain HTML without styles in elements: columns over time, and a log's line. Their heights are the classes of
``report``'s bars, their colours those of a report's page. What a plot shows stands in its label, for who cannot see it, and in
full in a table or in the page's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape as html
from typing import Any, Final

from rocketmq_reindex.jobs.reporting import parts
from rocketmq_reindex.storage_format.showing import counted, printable

# ------------------------------------------------------------------------------------------------------------------------ plots


PLOT_STYLE: Final = """
.columns { display: flex; align-items: flex-end; gap: 1px; height: 4.5rem; border-bottom: 1px solid var(--muted) }
.columns.small { height: 2.4rem }
.columns i { flex: 1 1 0; min-width: 0; height: calc(100% * var(--share)); background: var(--c0) }
.columns i.some { min-height: 2px }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: .9rem 1.4rem }
.plots figure + figure { margin-top: 0 } .plots figcaption { overflow-wrap: anywhere }
.line { display: flex; flex-wrap: wrap; gap: .3rem .15rem; align-items: stretch }
.line i { flex: 0 1 1.1rem; height: 1.5rem; border: 1px solid var(--muted); border-radius: .15rem;
  background: linear-gradient(to right, var(--c0) calc(100% * var(--share, 0)), transparent 0) }
.line.few i { flex: 1 1 2.5rem }
.line i.unknown { background: repeating-linear-gradient(45deg, transparent 0 .2rem, var(--line) .2rem .4rem) }
.line i.damaged { border: .2rem solid var(--bad) }
.line i.gap { border-style: dashed; border-color: var(--bad); flex: 0 1 2.2rem }
.line.few i.gap { flex: 0 1 2.2rem } .sub + nav { margin-top: 1rem }
.keys { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .6rem 0 0; padding: 0; font-size: .85rem }
.keys li { display: flex; align-items: center; gap: .4rem } .keys .line i { flex: none; width: 1.5rem; height: .9rem }
"""
"""what these plots need beside ``parts.STYLE`` and ``parts.BAR_CLASSES``"""
FEW: Final = 24
"""segments that share one line, as wide as the page"""


def share_class(part: float, whole: float) -> str:
    """Return the class of a height or a width; one of something above 0 can be seen."""
    if part <= 0 or whole <= 0:
        return "share-0"
    return f"share-{min(parts.SHARES, max(1, round(parts.SHARES * part / whole)))}"


def columns(values: Sequence[int], label: str, *, small: bool = False) -> str:
    """Return a column for each value; the highest is as high as can be. ``label`` says what they are."""
    highest = max(values, default=0)
    drawn = "".join(
        f'<i class="some {share_class(value, highest)}"></i>' if value > 0 else '<i class="share-0"></i>' for value in values
    )
    return f'<div class="columns{" small" if small else ""}" role="img" aria-label="{html(printable(label))}">{drawn}</div>'


def log_line(segments: Sequence[Mapping[str, Any]]) -> str:
    """Return the segments of a log on a line, each as full as it is; what is missing between two stands there, too.

    Each has ``bytes``, ``gapBefore``, ``fill`` (0 to 1, None where it was not looked into) and ``damaged``.
    """
    drawn, gaps, damaged, known = list[str](), 0, 0, 0
    for segment in segments:
        if segment["gapBefore"] > 0:
            gaps += 1
            drawn.append('<i class="gap"></i>')
        damaged += segment["damaged"]
        known += segment["fill"] is not None
        words = ["damaged"] if segment["damaged"] else []
        words.append("unknown" if segment["fill"] is None else share_class(segment["fill"], 1))
        drawn.append(f'<i class="{" ".join(words)}"></i>')
    label = (
        f"{counted(len(segments), 'segment')}, {counted(gaps, 'gap')} between them, {damaged:,} known to be damaged, "
        f"{known:,} looked into: the table below says the same"
    )
    few = " few" if len(drawn) <= FEW else ""
    return f'<div class="line{few}" role="img" aria-label="{html(label)}">{"".join(drawn)}</div>{_KEYS}'


def _key(words: str, text: str) -> str:
    return f'<li><span class="line"><i class="{words}"></i></span>{text}</li>'


_KEYS: Final = (
    f'<ul class="keys">{_key("share-120", "filled so far")}{_key("unknown", "not looked into on this page")}'
    f"{_key('damaged share-120', 'damage is known')}{_key('gap', 'no segment: bytes of the log are missing')}</ul>"
)


def sized(rows: Sequence[tuple[str, int]], text: Sequence[str], colour: str = "c0") -> str:
    """Return bars of ``report`` for named sizes, each with its text; "" for none."""
    bars = [parts.ChartBar(printable(name), size, told) for (name, size), told in zip(rows, text, strict=True)]
    return parts.bars(bars, colour, inline=False) if bars else ""


def bytes_text(size: int) -> str:
    """Return a number of bytes in words."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return counted(size, "byte") if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Return a length of time in words."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.3g} seconds"


# -------------------------------------------------------------------------------------------------------------------- templates


STYLE: Final = """
a { color: var(--c0) } a:focus-visible, input:focus-visible, select:focus-visible, button:focus-visible, summary:focus-visible,
[tabindex]:focus-visible {
  outline: 2px solid var(--c0); outline-offset: 2px }
@media (prefers-color-scheme: light) { a { color: #235d86 } }
.skip { position: absolute; left: -99rem } .skip:focus { left: 1rem; top: .5rem; background: var(--card); padding: .4rem .8rem }
nav { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 0 } main { padding-top: 0 }
nav ul { list-style: none; margin: 0 0 1rem; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem }
nav li, h1, h2, p { overflow-wrap: anywhere } nav [aria-current] { color: var(--ink); font-weight: 600; text-decoration: none }
h1 + section, .sub + form { margin-top: 1.25rem } .facts { margin-top: 1.25rem; --some: 2; --many: 4 }
form { display: flex; flex-wrap: wrap; gap: .6rem .9rem; align-items: end; margin: 0 }
form + form { margin-top: .9rem }
label { display: grid; gap: .15rem; font-size: .85rem; color: var(--muted); min-width: 0 }
input, select, button { font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--muted);
  border-radius: .35rem; padding: .3rem .5rem; max-width: 100%; min-width: 0 }
button { background: var(--card); cursor: pointer } input.short { width: 9rem }
.error { border-left: .35rem solid var(--bad) } .row-gap td, .row-wrong td { color: var(--muted) }
.what { font-weight: 600 } .pages { display: flex; gap: 1.2rem; margin: .6rem 0 0 }
pre.body { max-height: 30rem; overflow: auto; overflow-wrap: anywhere }
td code { font-size: .8rem } .when { white-space: nowrap } th[scope=row] { font-weight: 500; overflow-wrap: anywhere }
.pairs { table-layout: fixed } .pairs th { width: 13rem }
.facets { display: flex; flex-wrap: wrap; gap: .2rem 2.4rem } h3 { font-size: .9rem; margin: .4rem 0 .1rem }
.pages { flex-wrap: wrap } @media (max-width: 44rem) { .pairs th { width: 9.5rem }
  .scroll td:not(.num, .when), .scroll th[scope=row] { min-width: 7rem } }
"""

_UI: Final = """
{% macro warnings(texts) %}{% if texts %}<section><h2>Warnings</h2><ul class="note">
{% for text in texts %}<li>{{ text }}</li>{% endfor %}</ul></section>{% endif %}{% endmacro %}
{% macro same(command) %}{% if command %}<section><h2>The same on the command line</h2>
<pre><code>{{ command }}</code></pre></section>{% endif %}{% endmacro %}
{% macro turn(before, behind) %}{% if before or behind %}<p class="pages">
{% if before %}<a rel="prev" href="{{ before }}">Before</a>{% endif %}
{% if behind %}<a rel="next" href="{{ behind }}">Next</a>{% endif %}</p>{% endif %}{% endmacro %}
{% macro num(value) %}<td class="num">{{ "-" if value is none else "{:,}".format(value) }}</td>{% endmacro %}
{% macro offset(value) %}<td class="num">{{ "-" if value is none else value }}</td>{% endmacro %}
{% macro when(value) %}<td class="when">{{ value|replace("T", " ") if value else "-" }}</td>{% endmacro %}
{% macro opt(value) %}<td>{{ "-" if value is none else value }}</td>{% endmacro %}
{% macro head(name) %}<th scope="col" class="num">{{ name }}</th>{% endmacro %}
{% macro newest(shown, count) %}{% if shown < count %}: the newest {{ shown }} of {{ "{:,}".format(count) }}{% endif %}
{% endmacro %}
"""

_BASE: Final = """{% import "ui" as ui with context %}{% macro to(page, text, of) %}<li><a href="{{ url(page, store=of) }}"
{%- if here == page %} aria-current="page"{% endif %}>{{ text }}</a></li>{% endmacro %}<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} - rmq-reindex</title><link rel="stylesheet" href="/style.css"></head><body>
<a class="skip" href="#main">To the content</a>
<nav aria-label="Pages"><ul><li><a href="/"{% if here == "stores" %} aria-current="page"{% endif %}>Stores</a></li>
{% if store %}{{ to("store", store, store) }}{{ to("topics", "Topics", store) }}
{% for page in ("log", "disk", "rates") %}{{ to(page, page|capitalize, store) }}{% endfor %}
{% endif %}{{ to("consumers", "Consumers", store) }}{{ to("search", "Search", store) }}
{{ to("scan", "Search the log", store) }}{% if store %}{{ to("health", "Health", store) }}{% endif %}
{% if opened %}{{ to("findings", "Findings", none) }}{% endif %}</ul></nav>
<main id="main"><h1>{{ title }}</h1>
<p class="sub">{{ sub }}{% if json %} &middot; <a href="{{ json }}">as JSON</a>{% endif %}</p>
{% block content %}{% endblock %}</main></body></html>
"""

_ERROR: Final = """{% extends "base" %}{% block content %}
<section class="error"><p>{{ text }}</p></section>{% endblock %}"""

_STORES: Final = """{% extends "base" %}{% block content %}
<section><h2>Stores</h2><div class="scroll" tabindex="0"><table><thead><tr><th scope="col">store</th><th scope="col">place</th>
<th scope="col">log</th>{{ ui.head("topics") }}{{ ui.head("messages") }}<th scope="col">fits RocketMQ</th>
{{ ui.head("problems") }}</tr></thead><tbody>
{% for each in stores %}<tr><td><a href="{{ url("store", store=each.store) }}">{{ each.store }}</a></td><td>{{ each.place }}
</td>
{% if each.info %}{{ ui.opt(each.info.log.first_offset ~ " to " ~ each.info.log.end_offset) }}
{{ ui.num(each.info.topics|length) }}{{ ui.num(each.info.messages) }}{{ ui.opt(each.info.fits.versions|join(" or ") or "-") }}
{{ ui.num(each.info.problems|length) }}{% elif each.error %}<td colspan="5" class="bad">{{ each.error }}</td>
{% else %}<td colspan="5">not looked at yet: open the store, or load this page again</td>{% endif %}</tr>
{% endfor %}</tbody></table></div></section>{{ ui.same(stores|map(attribute="command")|join("\n")) }}{% endblock %}"""

_STORE: Final = """{% extends "base" %}{% block content %}
<section class="verdict {{ "bad" if info.problems else "good" }}"><h2>{{ info.next.why }}</h2>
<ul class="steps">{% for each in info.next.commands %}<li><pre><code>{{ each }}</code></pre></li>{% endfor %}</ul>
<p><a href="{{ url("health", store=store) }}">Health</a> verifies the store, and works out what a start does.
{% if opened %}<a href="/findings">Findings</a> shows the results that were named at the start.{% endif %}</p></section>
{% if info.problems %}<section><h2>Missing, stale or unread</h2><ul class="note">
{% for text in info.problems %}<li>{{ text }}</li>{% endfor %}</ul></section>{% endif %}
<dl class="facts"><div><dt>log</dt><dd>{{ size(info.log.bytes) }}</dd></div>
<div><dt>offsets</dt><dd>{{ info.log.first_offset }} to {{ info.log.end_offset }}</dd></div>
<div><dt>first stored</dt><dd>{{ (info.log.first_time or "not known")|replace("T", " ") }}</dd></div>
<div><dt>last stored</dt><dd>{{ (info.log.last_time or "not known")|replace("T", " ") }}</dd></div>
<div><dt>segments</dt><dd>{{ "{:,}".format(info.log.segments) }}</dd></div>
<div><dt>topics, queues</dt><dd>{{ "{:,}, {:,}".format(info.topics|length, info.queues) }}</dd></div>
<div><dt>{{ "messages in a sample" if info.sampled else "messages" }}</dt><dd>{{ "{:,}".format(info.messages) }}</dd></div>
<div><dt>fits RocketMQ</dt><dd>{{ info.fits.versions|join(" or ") or "not known" }}</dd></div></dl>
<div class="grid"><section><h2>Topics</h2>{% if bars.topics %}<figure>{{ bars.topics }}
<figcaption>messages by topic{% if info.sampled %} in a sample of {{ "{:,}".format(info.sampled) }} records{% endif %}
{%- if bars.shown < info.topics|length %}: the {{ bars.shown }} largest of {{ "{:,}".format(info.topics|length) }}{% endif %}
</figcaption></figure>{% else %}
<p class="note">no topic was found</p>{% endif %}
{% if info.queues_looked_into < info.queues and not info.sampled %}<p
class="note">{{ "{:,}".format(info.queues_looked_into) }} of
{{ "{:,}".format(info.queues) }} queues were looked into</p>{% endif %}
<p><a href="{{ url("topics", store=store) }}">All topics</a></p></section>
<section><h2>Index</h2>{% if bars.index %}<figure>{{ bars.index }}
<figcaption>items of the room in each IndexFile{{ ui.newest(indexFiles|length, info.index_files) }}</figcaption></figure>
{% else %}<p class="note">no IndexFile can be read</p>{% endif %}</section>
<section><h2>The last stop</h2><p>{% if info.clean_stop %}It was clean: there is no file abort.{% else %}It was not clean: there
is a file abort, and the next start recovers as after a crash.{% endif %} {{ info.broker or "No broker runs here." }}</p>
</section>
<section><h2>Checkpoint</h2>{% if checkpoint %}<table class="pairs"><tbody>{% for each in checkpoint %}<tr>
<th scope="row">{{ each.field }}</th>
<td>{{ each.text }}</td></tr>{% endfor %}</tbody></table>{% else %}<p>There is none that can be read.</p>{% endif %}</section>
</div>
{% if segments %}<section><h2>Segments{{ ui.newest(segments|length, info.log.segments) }}</h2>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">file</th>{{ ui.head("bytes") }}
{{ ui.head("first offset") }}<th scope="col">first record stored</th></tr></thead><tbody>
{% for each in segments %}<tr><td><code>{{ each.file }}</code></td>{{ ui.num(each.bytes) }}{{ ui.offset(each.firstOffset) }}
<td>{% if each.firstTime %}<a href="{{ url("message", store=store, physical=each.firstRecord) }}">
{{- each.firstTime|replace("T", " ") }}</a>
{% else %}{{ each.wrong }}{% endif %}</td></tr>{% endfor %}</tbody></table></div>
<p><a href="{{ url("log", store=store) }}">How full they are, their last records, and damage</a></p></section>{% endif %}
{% if indexFiles %}<section><h2>IndexFiles{{ ui.newest(indexFiles|length, info.index_files) }}</h2>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">file</th>{{ ui.head("items") }}{{ ui.head("room") }}
{{ ui.head("slots used") }}{{ ui.head("slots") }}<th scope="col">first stored</th><th scope="col">last stored</th></tr></thead>
<tbody>{% for each in indexFiles %}<tr><td>{% if each.room %}<a href="{{ url("items", store=store, file=each.file) }}"><code>
{{- each.file }}</code></a>{% else %}<code>{{ each.file }}</code>{% endif %}</td>
{{ ui.num(each["items"]) }}{{ ui.num(each.room) }}
{{ ui.num(each.slotsUsed) }}{{ ui.num(each.slots) }}{{ ui.when(each.firstTime) }}{{ ui.when(each.lastTime) }}</tr>{% endfor %}
</tbody></table></div></section>{% endif %}<p class="note">
{% if lookedAt %}Looked at {{ lookedAt|replace("T", " ") }}.{% endif %}
<a href="{{ url("disk", store=store) }}">What it takes on disk</a>, <a href="{{ url("rates", store=store) }}">messages over
time</a>, <a href="{{ url("consumers", store=store) }}">consumer groups</a></p>{{ ui.same(command) }}{% endblock %}"""

_TOPICS: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<section><h2>{{ "{:,}".format(count) }} topic{{ "" if count == 1 else "s" }}</h2>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">topic</th>
<th scope="col">kind</th>{{ ui.head("queues") }}</tr></thead><tbody>{% for each in topics %}<tr>
<td>{% if each.queues %}<a href="{{ url("topic", store=store, topic=each.topic) }}">{{ each.topic }}</a>{% else %}
{{ each.topic }}{% endif %}</td><td>{{ each.kind }}</td>
{{ ui.num(each.queues) }}</tr>{% endfor %}</tbody></table></div>
{{ ui.turn(previous is not none and url("topics", store=store, **{"from": previous}),
           next is not none and url("topics", store=store, **{"from": next})) }}</section>{{ ui.same(command) }}
{% endblock %}"""

_TOPIC: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<section><h2>{{ "{:,}".format(count) }} queue{{ "" if count == 1 else "s" }}</h2>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">queue</th>
{{ ui.head("first offset") }}{{ ui.head("end") }}<th scope="col">last stored</th><th scope="col">kept in</th></tr></thead>
<tbody>
{% for each in queues %}<tr><td><a href="{{ url("queue", store=store, topic=topic, queue=each.queue) }}">{{ each.queue }}</a>
</td>
{{ ui.offset(each.first) }}{{ ui.offset(each.end) }}{{ ui.when(each.lastTime) }}{{ ui.opt(each.part) }}</tr>{% endfor %}
</tbody></table></div>
{{ ui.turn(previous is not none and url("topic", store=store, topic=topic, **{"from": previous}),
           next is not none and url("topic", store=store, topic=topic, **{"from": next})) }}
{% if count %}<p class="pages"><a href="{{ url("rates", store=store, topic=topic) }}">Messages over time</a>
<a href="{{ url("consumers", store=store, topic=topic) }}">Consumer groups</a></p>{% endif %}</section>
{{ ui.same(command) }}{% endblock %}"""

_QUEUE: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<section><h2>Offsets{% if first is none %}: none{% else %} {{ first }} to {{ end - 1 }}{% endif %}</h2>
{% if raw_topic %}<form action="/queue"><input type="hidden" name="store" value="{{ store }}"><input type="hidden" name="topic"
value="{{ raw_topic }}">
<input type="hidden" name="queue" value="{{ queue }}"><label>From offset<input class="short" name="from" inputmode="numeric"
required pattern="[0-9]+"></label><button>Go to the offset</button></form>
<form action="/queue"><input type="hidden" name="store" value="{{ store }}"><input type="hidden" name="topic"
value="{{ raw_topic }}">
<input type="hidden" name="queue" value="{{ queue }}"><label>Stored at or after (ISO with zone, or milliseconds)
<input name="time" required placeholder="2026-11-20T08:00:00Z"></label><button>Go to the time</button></form>
{% endif %}</section>
<section><h2>Units</h2><div class="scroll" tabindex="0"><table><thead><tr>{{ ui.head("offset") }}<th scope="col">stored</th>
<th scope="col">tags</th><th scope="col">keys</th><th scope="col">unique key</th>{{ ui.head("in the log") }}
{{ ui.head("bytes") }}<th scope="col">remark</th></tr></thead><tbody>
{% for each in units %}{% set range = each.offset if each.offset == each.last else each.offset ~ " to " ~ each.last %}
{% if each.what == "gap" %}<tr class="row-gap"><td class="num">{{ range }}</td><td colspan="6">-</td>
<td><span class="what">gap</span>: {{ each.text }}</td></tr>
{% else %}<tr{% if each.what != "message" %} class="row-wrong"{% endif %}><td class="num">
{% if each.what == "no record" %}{{ range }}
{% else %}<a href="{{ url("message", store=store, topic=topic, queue=queue, offset=each.offset) }}">{{ range }}</a>{% endif %}
</td>
{{ ui.when(each.storeTime) }}{{ ui.opt(each.tags) }}<td>{{ each["keys"]|join(" ") }}</td>{{ ui.opt(each.uniqueKey) }}
{{ ui.offset(each.physicalOffset) }}{{ ui.num(each.size) }}
<td>{% if each.what != "message" %}<span class="what">{{ each.what }}</span>: {% endif %}{{ each.text }}</td></tr>{% endif %}
{% endfor %}</tbody></table></div>
{{ ui.turn(previous is not none and url("queue", store=store, topic=topic, queue=queue, **{"from": previous}),
           next is not none and url("queue", store=store, topic=topic, queue=queue, **{"from": next})) }}
</section>{{ ui.same(command) }}{% endblock %}"""

TEMPLATES: Final = {
    "ui": _UI, "base": _BASE, "error": _ERROR, "stores": _STORES, "store": _STORE, "topics": _TOPICS, "topic": _TOPIC,
    "queue": _QUEUE,
}  # fmt: skip
"""by their names"""
