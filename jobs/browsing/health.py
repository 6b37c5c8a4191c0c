"""The health of a store: what ``verify`` and ``preflight`` say of it, as checks that a form starts and stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_reindex.jobs.browsing import checks, opened
from rocketmq_reindex.jobs.browsing.options import Address, Asked, Facts, NotFound, OpenedStores, PageFacts, url
from rocketmq_reindex.jobs.reporting import model
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from rocketmq_reindex.storage_format import versions
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.showing import escape

POSTED: Final[Mapping[str, tuple[str, ...]]] = {"/check": ("kind", "store", "against", "version"), "/stop": ("check", "store")}
"""the addresses that take POST, and the fields of their forms"""
EACH: Final = 2
"""seconds after which the page of a check that runs is loaded again"""
_LABELS: Final = {checks.VERIFY: "Verify", checks.AGAINST: "Compare with another store", checks.PREFLIGHT: "Preflight"}


class Health:
    """The pages of the checks."""

    def __init__(self, stores: OpenedStores) -> None:
        self._stores, self.checks = stores, checks.Checks()
        stores.known.append(self._damage)

    def _damage(self, store: TracedStore) -> Iterable[opened.Damage]:
        ended = self.checks.ended(checks.VERIFY, store)
        damage = (ended.found or {}).get("damage", ()) if ended is not None else ()
        return [(each["offset"], each["offset"] + each["length"], each["reason"]) for each in damage]

    def pages(self) -> list[Address]:
        """Return the page of a store's health."""
        return [Address("/health", "health", ("store", "still", "from"), self._page)]

    # -- what a form asks for -------------------------------------------------------------------------------------------------

    def post(self, path: str, form: Asked) -> str:
        """Do what a form of POSTED asks for, and return the address of the page that then shows it.

        Raises UsageError, NotFound, Busy and InputError.
        """
        return self._check(form) if path == "/check" else self._stop(form)

    def _check(self, form: Asked) -> str:
        kind, store, version = form.text("kind"), self._stores.named(form), form.given.get("version", "")
        if kind not in checks.KINDS:
            raise UsageError(f"kind: {escape(kind, 40)} is none: take {', '.join(checks.KINDS)}")
        if ("against" in form.given) != (kind == checks.AGAINST):
            raise UsageError(f"against: goes with the kind {checks.AGAINST}, which needs it")
        if version and (kind != checks.PREFLIGHT or version not in versions.RELEASES):
            raise UsageError(
                f"version: {escape(version, 40)} is none: with {checks.PREFLIGHT} take {', '.join(versions.RELEASES)}"
            )
        other = None
        if kind == checks.AGAINST:
            other = self._stores.by_name.get(form.given["against"])
            if other is None or other is store:
                raise UsageError("against: name another one of the stores that were named when this was started")
        self.checks.start(checks.CheckOrder(kind, store, other, version, self._stores.settings.delay_levels))
        return url("health", store=store.name)

    def _stop(self, form: Asked) -> str:
        place = url("health", store=self._stores.named(form).name) if "store" in form.given else "/"
        if not self.checks.stop(form.text("check")):
            raise NotFound("the check that this button was for has ended; another one may run, and is not stopped")
        return place

    # -- what the page shows --------------------------------------------------------------------------------------------------

    def _page(self, asked: Asked) -> PageFacts:
        store, running = self._stores.named(asked), self.checks.running
        still, first = "still" in asked.given, asked.number("from") or 0
        facts: Facts = {
            "store": store.name, "running": None if running is None else _running(running),
            "results": {kind: self._result(kind, store) for kind in checks.KINDS},
        }  # fmt: skip
        verified = facts["results"][checks.VERIFY]
        more = {
            "labels": _LABELS, "still": still, "versions": versions.RELEASES[::-1], "every": EACH,
            "others": [each.name for each in self._stores.settings.stores if each is not store and each.name.isprintable()],
            "sent": store.name if store.name.isprintable() else "",
            "commands": {kind: checks.CheckOrder(kind, store).command() for kind in (checks.VERIFY, checks.PREFLIGHT)},
            "damage": opened.damage_rows(verified["found"], first) if verified and verified["found"] else {},
        }  # fmt: skip
        # A form says where it comes from only to a page that lets it: this address has no secret.
        headers = {"referrer-policy": "same-origin"}
        if running is not None and not still:
            headers["refresh"] = str(EACH)
        return PageFacts(f"Health of {store.name}", facts, more, 200, headers)

    def _result(self, kind: str, store: TracedStore) -> Facts | None:
        """Return what the last check of a kind said; None where there was none."""
        ended = self.checks.ended(kind, store)
        if ended is None:
            return None
        order, result = ended.order, ended.found
        told: Facts = {
            "began": ended.began, "seconds": round(ended.seconds, 1), "against": order.against and order.against.name,
            "version": order.version or None, "command": order.command(), "error": ended.why or None, "result": result,
            "cut": ended.cut, "lines": [], "found": None,
        }  # fmt: skip
        if result is None:
            return told
        # The pages open without what the commands need.
        from rocketmq_reindex.jobs.preflighting import run as preflighting
        from rocketmq_reindex.jobs.verifying.summary import VerifyResult

        # What a command says of an error of its own stands in its result.
        told["error"] = result.get("error")
        if kind == checks.PREFLIGHT:
            values = {name: value for name, value in result.items() if name in preflighting.PreflightResult.json_keys()}
            lines = preflighting.lines_of(preflighting.PreflightResult(**values))
            # Of a list that is cut the lines in the middle would say too little.
            told["lines"] = [*lines[:1], *lines[lines.index("") :]] if ended.cut and "" in lines else lines
        elif told["error"] is None:
            told["lines"] = VerifyResult(**result).to_text().split("\n")
            both = [store] if order.against is None else [store, order.against]
            told["found"] = opened.told(model.of_verify(result, store.name), both)
        return told


def _running(check: checks.Check) -> Facts:
    order = check.order
    return {
        "id": check.id, "kind": order.kind, "store": order.store.name, "against": order.against and order.against.name,
        "version": order.version or None, "began": check.began, "seconds": round(check.seconds, 1),
        "stopping": check.stopping, "stages": [*check.stages.values()], "lines": [*check.lines], "command": order.command(),
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------------------- templates

_FOUND: Final = """{% import "ui" as ui with context %}{% macro links(each) %}{% for link in each.links %}
<a href="{{ link.href }}">{{ link.what }}{% if
each.links|map(attribute="store")|unique|list|length > 1 %} in {{ link.store }}{% endif %}</a>{% if not loop.last %},
{% endif %}{% else %}-{% endfor %}
{% endmacro %}
{% macro shown(found, damage, turn) %}
<section class="verdict {{ "good" if found.good else "bad" }}"><h2>{{ found.verdict }}</h2>{% if found.when %}
<p>{{ found.when }}
</p>{% endif %}<ul class="steps">{% for step in found.steps %}<li>{{ step.text }}{% if step.command %}
<pre><code>{{ step.command }}</code></pre>{% endif %}</li>{% endfor %}</ul></section>
{% if found.facts %}<dl class="facts">{% for fact in found.facts %}<div><dt>{{ fact.name }}</dt><dd>{{ fact.value }}</dd></div>
{% endfor %}</dl>{% endif %}
{% for each in found.findings %}<section><h2>{{ each.kind }}: {{ "{:,}".format(each.count) }}</h2><p>{{ each.text }}</p>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">place</th><th scope="col">what stands there</th>
<th scope="col">look</th></tr></thead><tbody>{% for example in each.examples %}<tr><td><code>{{ example.where }}</code></td>
<td>{{ example.text }}</td><td>{{ links(example) }}</td></tr>{% endfor %}</tbody></table></div>
{% if each.count > each.examples|length %}<p class="note">the first places; all are counted</p>{% endif %}
{% if each.advice %}<p class="note">{{ each.advice }}</p>{% endif %}</section>{% endfor %}
{% if damage.rows %}<section><h2>Damage of the log</h2><div class="scroll" tabindex="0">
<table><thead><tr>{{ ui.head("offset") }}
{{ ui.head("bytes") }}<th scope="col">what is wrong</th><th scope="col">look</th></tr></thead><tbody>
{% for each in damage.rows %}<tr>{{ ui.offset(each.offset) }}{{ ui.num(each.length) }}<td>{{ each.reason }}</td>
<td>{{ links(each) }}</td></tr>{% endfor %}</tbody></table></div>
{% if damage.rows|length < found.damagedPlaces %}<p class="note">{{ damage.rows|length }} of
{{ "{:,}".format(found.damagedPlaces) }} damaged places</p>{% endif %}{{ turn }}</section>{% endif %}
{% if found.warnings or found.notes %}<section><h2>Notes</h2><ul class="note">
{% for text in found.warnings %}<li>{{ text }}</li>{% endfor %}{% for text in found.notes %}<li>{{ text }}</li>{% endfor %}</ul>
</section>{% endif %}{% endmacro %}"""

_HEALTH: Final = """{% extends "base" %}{% block content %}{% import "found" as parts with context %}
{% macro start(kind) %}<form action="/check" method="post"><input type="hidden" name="kind" value="{{ kind }}">
<input type="hidden" name="store" value="{{ sent }}">{% if kind == "against" %}<label>With<select name="against">
{% for each in others %}<option value="{{ each }}">{{ each }}</option>{% endfor %}</select></label>{% endif %}
{% if kind == "preflight" %}<label>RocketMQ<select name="version"><option value="">as preflight chooses</option>
{% for each in versions %}<option value="{{ each }}">{{ each }}</option>{% endfor %}</select></label>{% endif %}
<button>{{ {"verify": "Verify the store", "against": "Compare the stores", "preflight": "Work out a start"}[kind] }}
</button></form>
{% endmacro %}
{% if running %}<section><h2>{{ labels[running.kind] }} of {{ running.store }} runs
{%- if running.against %} (with {{ running.against }}){% endif %}{% if running.version %} ({{ running.version }}){% endif %}
</h2>
<p>It has run for {{ "{:,.0f}".format(running.seconds) }} s{% if running.stopping %}, and is being stopped{% endif %}. It only
reads.</p>
{% if running.stages %}<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">stage</th><th scope="col">state</th>
{{ ui.head("done") }}{{ ui.head("of") }}<th scope="col">what</th>{{ ui.head("seconds") }}
{{ ui.head("seconds left") }}</tr></thead><tbody>{% for each in running.stages %}<tr><td>{{ each.stage }}</td>
<td>{{ each.state }}</td>{{ ui.num(each.done) }}{{ ui.num(each.total) }}<td>{{ each.things }}{% if each.total_bytes %},
{{ size(each.bytes) }} of {{ size(each.total_bytes) }}{% endif %}</td><td class="num">{{ "%.0f"|format(each.seconds) }}</td>
<td class="num">{{ "-" if each.eta is none else "%.0f"|format(each.eta) }}</td></tr>{% endfor %}</tbody></table></div>
{% endif %}
{% if running.lines %}<pre class="body" tabindex="0"><code>{% for line in running.lines %}{{ line }}
{% endfor %}</code></pre>{% endif %}
<form action="/stop" method="post"><input type="hidden" name="check" value="{{ running.id }}">
<input type="hidden" name="store" value="{{ sent }}"><button>Stop it</button></form>
<p class="note">{% if still %}<a href="{{ url("health", store=store) }}">Load this page again every {{ every }} s</a>{% else %}
This page loads itself again every {{ every }} s.
<a autofocus href="{{ url("health", store=store, still=1) }}">Keep it still</a>{% endif
%}
</p></section>{% endif %}
{% for kind, label in labels.items() %}{% set done = results[kind] %}
{% if kind != "against" or others or done %}<section><h2>{{ label }}</h2>
<p class="note">{% if kind == "verify" %}Compares the log with ConsumeQueues, IndexFiles and checkpoint.
It reads all of the store.
{% elif kind == "against" %}Compares logs, ConsumeQueues and IndexFiles of two stores. It reads all of both.
{% else %}Works out what the start of a broker will do to the store, and what it loses.{% endif %}</p>
{% if running %}<p class="note">One check runs at a time.</p>{% elif not sent %}
<p class="note">The store has a name that no form
can send: run the command.</p>{% elif kind != "against" or others %}{{ start(kind) }}{% endif %}
{% if not done and commands[kind] %}<pre><code>{{ commands[kind] }}</code></pre>{% endif %}
{% if done %}<p>Begun {{ done.began|replace("T", " ") }}{% if done.against %}, with {{ done.against }}{% endif %}
{%- if done.version %}, RocketMQ {{ done.version }}{% endif %}, {{ done.seconds }} s.</p>
{% if done.error %}<p class="bad">{{ done.error }}</p>{% endif %}
{% for name, count in done.cut.items() %}<p class="note">{{ name }}: {{ "{:,}".format(count) }} entries, of which the first
{{ "{:,}".format(done.result[name]|length) }} are kept here: the command gives all</p>{% endfor %}
<pre><code>{{ done.command }}</code></pre>{% endif %}</section>
{% if done %}{% if done.found %}{{ parts.shown(done.found, damage if kind == "verify" else {}, ui.turn(
  damage.before is not none and url("health", store=store, **{"from": damage.before}),
  damage.behind is not none and url("health", store=store, **{"from": damage.behind})) if kind == "verify" else "") }}
{% endif %}
{% if done.lines and kind == "preflight" %}<section class="verdict {{ "bad" if done.result.losses else "good" }}"><h2>
{{- done.lines[0] }}</h2></section>{% endif %}
{% if done.lines %}<section><h2>{{ label }}, as the command prints it</h2><pre class="body" tabindex="0"><code>
{%- for line in done.lines %}{{ line }}
{% endfor %}</code></pre></section>{% endif %}{% endif %}{% endif %}{% endfor %}{% endblock %}"""

_FINDINGS: Final = """{% extends "base" %}{% block content %}{% import "found" as parts with context %}
{% if found %}<p class="sub">{{ kind }} of <a href="{{ url("store", store=store) }}">{{ store }}</a>: {{ path }}</p>
{{ parts.shown(found, {"rows": rows}, ui.turn(
  before is not none and url("findings", file=file, **{"from": before}),
  behind is not none and url("findings", file=file, **{"from": behind}))) }}{{ ui.same(command) }}
{% elif files %}
<section><h2>Files that were named at the start</h2><div class="scroll" tabindex="0"><table><thead><tr><th scope="col">file</th>
<th scope="col">of a</th><th scope="col">store</th><th scope="col">what it says</th></tr></thead><tbody>{% for each in files %}
<tr>
<td><a href="{{ url("findings", file=each.file) }}">{{ each.path }}</a></td><td>{{ each.kind }}</td><td>{{ each.store }}</td>
<td>{{ each.verdict }}</td></tr>{% endfor %}</tbody></table></div></section>
{{ ui.same(files|map(attribute="command")|join("\n")) }}
{% else %}
<section><h2>None</h2><p>Start <code>rmq-reindex browse</code> with <code>--findings FILE</code> to see the result of a
verify, a build or a repair here.</p></section>{% endif %}{% endblock %}"""

_ITEMS: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<section><h2>{{ "{:,}".format(count) }} of {{ "{:,}".format(room) }} items, {{ "{:,}".format(slots) }} slots</h2>
<div class="scroll" tabindex="0">
<table><thead><tr>{{ ui.head("item") }}<th scope="col">stored</th>{{ ui.head("in the log") }}
{{ ui.head("hash") }}{{ ui.head("before it in its slot") }}<th scope="col">stands for</th></tr></thead><tbody>
{% for each in items %}<tr>{{ ui.offset(each.item) }}{{ ui.when(each.time) }}<td class="num">{% if each.physicalOffset >= 0 %}<a
href="{{ url("message", store=store, physical=each.physicalOffset) }}">{{ each.physicalOffset }}</a>{% else %}
{{ each.physicalOffset }}{% endif %}</td>{{ ui.offset(each.keyHash) }}<td class="num">{% if 0 < each.prevItem < room + 1 %}<a
href="{{ url("items", store=store, file=file, **{"from": each.prevItem}) }}">{{ each.prevItem }}</a>{% else %}
{{ each.prevItem }}
{% endif %}</td><td>{% if each.of %}{{ each.of }} {{ each.text }}{% else %}-{% endif %}</td></tr>{% endfor %}</tbody></table>
</div>
{{ ui.turn(previous is not none and url("items", store=store, file=file, **{"from": previous}),
           next is not none and url("items", store=store, file=file, **{"from": next})) }}</section>{{ ui.same(command) }}
{% endblock %}"""

TEMPLATES: Final = {"found": _FOUND, "health": _HEALTH, "findings": _FINDINGS, "items": _ITEMS}
"""by their names"""
