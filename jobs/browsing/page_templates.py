"""The templates of the overview pages, and of those that search, of a message and of its trace.

Overview pages are the log, the disk, messages over time, and consumer groups. What templates show is escaped as in
``templates``.
"""

from __future__ import annotations

from typing import Final

# ----------------------------------------------------------------------------------------------------------- overview templates


_LOG: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<section><h2>{{ "{:,}".format(count) }} segment{{ "" if count == 1 else "s" }}, {{ size(bytes) }}</h2>
{% if drawn %}<figure>{{ drawn }}<figcaption>from the lowest offset to the highest{% if line|length < count %}: the
{{ "{:,}".format(line|length) }} around this page{% endif %}</figcaption></figure>{% else %}<p>There is no segment.</p>
{% endif %}
{% if missing %}<p class="bad">{{ size(missing) }} of the log are in no segment.</p>{% endif %}
{% if count %}<p class="note">This page reads a few records of each segment. It counts those of a short one, and says about how
many a long one has. {% if knownDamage %}It shows the damage that checks and findings name, and damage among the records that
it has read.{% else %}It shows damage among the records that it has read. No check and no findings say more of this log:
<a href="{{ url("health", store=store) }}">verify the store</a> to look at all of it.{% endif %}</p>{% endif %}</section>
{% if segments %}<section><h2>Segments</h2><div class="scroll" tabindex="0"><table><thead><tr><th scope="col">file</th>
{{ head("bytes") }}{{ head("filled") }}{{ head("first record") }}<th scope="col">stored</th>
{{ head("last record") }}<th scope="col">stored</th>{{ head("records") }}<th scope="col">damage</th></tr></thead>
<tbody>{% for each in segments %}{% if each.gapBefore > 0 %}<tr class="row-wrong"><td colspan="9"><span class="what">gap</span>:
{{ "{:,}".format(each.gapBefore) }} bytes before offset {{ each.firstOffset }} are in no segment</td></tr>
{% elif each.gapBefore < 0 %}<tr class="row-wrong"><td colspan="9"><span class="what">overlap</span>: the next segment begins
{{ "{:,}".format(0 - each.gapBefore) }} bytes before the end of the one before it</td></tr>{% endif %}
<tr><td class="when"><code>{{ each.file }}</code></td>{{ ui.num(each.bytes) }}
<td class="num">{{ "-" if each.fill is none else "%.1f %%"|format(100 * each.fill) }}</td>
<td class="num">{% if each.firstRecord is none %}-{% else %}<a
href="{{ url("message", store=store, physical=each.firstRecord) }}">{{ each.firstRecord }}</a>{% endif %}</td>
{{ ui.when(each.firstTime) }}
<td class="num">{% if each.lastRecord is none %}-{% else %}<a
href="{{ url("message", store=store, physical=each.lastRecord) }}">{{ each.lastRecord }}</a>{% endif %}</td>
{{ ui.when(each.lastTime) }}
<td class="num">{% if each.records is none %}not known{% else %}{{ "about " if each.estimated else "" }}
{{- "{:,}".format(each.records) }}{% endif %}</td>
<td{% if each.damage %} class="bad"{% endif %}>
{% for one in each.damage %}{% if one.offset is not none %}<a
href="{{ url("message", store=store, physical=one.offset) }}">{{ one.text }}</a>
{%- else %}{{ one.text }}{% endif %}{{ "" if loop.last else "; " }}{% else %}
{{ "none known" if knownDamage else "not looked at" }}{% endfor %}
</td></tr>{% endfor %}</tbody></table></div>
{{ ui.turn(previous is not none and url("log", store=store, **{"from": previous}),
           next is not none and url("log", store=store, **{"from": next})) }}</section>{% endif %}
{% if lookedAt %}{{ looked(lookedAt) }}{% endif %}{{ ui.same(command) }}{% endblock %}"""

_MACROS: Final = """{% macro looked(at) %}<p class="note">Looked at {{ at|replace("T", " ") }}. This is remembered
for ten minutes at most, while no file of the store changes.</p>{% endmacro %}
{% macro head(name) %}<th scope="col" class="num">{{ name }}</th>{% endmacro %}"""

_DISK: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<dl class="facts"><div><dt>files</dt><dd>{{ "{:,}".format(files) }}</dd></div>
<div><dt>bytes</dt><dd>{{ size(bytes) }}</dd></div><div><dt>on disk</dt><dd>{{ size(allocated) }}</dd></div></dl>
<section><h2>By part</h2>{% if parts %}<figure>{{ parts_drawn }}<figcaption>A file with holes takes less on disk than its size.
</figcaption></figure>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">part</th>{{ head("files") }}{{ head("bytes") }}
{{ head("on disk") }}</tr></thead><tbody>{% for each in parts %}<tr><th scope="row">{{ each.part }}</th>
{{ ui.num(each.files) }}{{ ui.num(each.bytes) }}{{ ui.num(each.allocated) }}</tr>{% endfor %}</tbody></table></div>
{% else %}<p>There is no file.</p>{% endif %}</section>
<section><h2>By topic</h2>{% if log_drawn %}<figure>{{ log_drawn }}<figcaption>bytes of records in the log{% if sampleIsWhole %}
{% else %}, estimated from a sample of {{ "{:,}".format(sampled) }} records{% endif %}</figcaption></figure>{% endif %}
{% if queues_drawn %}<figure>{{ queues_drawn }}<figcaption>bytes of ConsumeQueue files</figcaption></figure>{% endif %}
{% if topics %}<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">topic</th>{{ head("in the log") }}
{{ head("ConsumeQueue files") }}</tr></thead><tbody>{% for each in topics %}<tr><td>{% if each.queueBytes %}<a
href="{{ url("topic", store=store, topic=each.topic) }}">{{ each.topic }}</a>{% else %}{{ each.topic }}{% endif %}</td>
<td class="num">{{ "not in the sample" if each.logBytes is none else ("" if sampleIsWhole else "about ")
 ~ "{:,}".format(each.logBytes) }}</td>{{ ui.num(each.queueBytes) }}</tr>{% endfor %}</tbody></table></div>
<p class="note">{{ "{:,}".format(topics|length) }} of {{ "{:,}".format(topicCount) }}, the largest first. Queues in RocksDB
have no size of their own.</p>{% else %}<p>No topic was found.</p>{% endif %}</section>
{% if lookedAt %}{{ looked(lookedAt) }}{% endif %}{{ ui.same(command) }}{% endblock %}"""

_RATES: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
<nav aria-label="Time"><ul>{% for name, value in (("all of it", none), ("last 7 days", 168), ("last 24 hours", 24),
("last hour", 1)) %}<li><a href="{{ url("rates", store=store, topic=topic, hours=value) }}"
{% if hours == value %}aria-current="page"{% endif %}>{{ name }}</a></li>{% endfor %}
{% if topic %}<li><a href="{{ url("rates", store=store, hours=hours) }}">all topics</a></li>{% endif %}</ul></nav>
{% if not total %}<section><h2>No message</h2><p>No record with a time was found.</p></section>{% else %}
<section><h2>{{ topic or "All topics" }}:
{{ "" if part == "queues" and queuesLookedInto == queues and hours is none else "about " }}
{{- "{:,}".format(messages) }} message{{ "" if messages == 1 else "s" }}</h2>
<figure>{{ drawn }}<figcaption>{{ begin|replace("T", " ") }} to {{ end|replace("T", " ") }}, a column for each
{{ label }}: at most {{ "{:,}".format(total|max) }} in one</figcaption></figure>
<p class="note">{% if part == "queues" %}From {{ "{:,}".format(sampled) }} units of the queues: between two of them messages
are spread evenly. {% if queuesLookedInto < queues %}{{ "{:,}".format(queuesLookedInto) }} of {{ "{:,}".format(queues) }} queues
were looked into. {% endif %}A short gap between two of them counts as well.{% else %}No queue has a unit. From a sample of
{{ "{:,}".format(sampled) }} records of the log.{% endif %}</p>
<details><summary>as a table</summary><div class="scroll" tabindex="0"><table><thead><tr>{{ head("column") }}
{{ head("messages") }}</tr></thead><tbody>{% for each in total %}<tr><td class="num">{{ loop.index }}</td>
{{ ui.num(each) }}</tr>{% endfor %}</tbody></table></div></details></section>
{% if not topic %}<section><h2>By topic</h2><div class="plots">{% for each in plots %}<figure>{{ each.drawn }}
<figcaption><a href="{{ url("rates", store=store, topic=each.topic, hours=hours) }}">{{ each.topic }}</a>:
{{ "{:,}".format(each.messages) }}, at most {{ "{:,}".format(each.most) }} in a column</figcaption></figure>{% endfor %}</div>
{% if plots|length < topicCount %}<p class="note">the {{ plots|length }} with the most messages of
{{ "{:,}".format(topicCount) }}</p>{% endif %}</section>{% endif %}{% endif %}
{% if lookedAt %}{{ looked(lookedAt) }}{% endif %}{{ ui.same(command) }}{% endblock %}"""

_CONSUMERS: Final = """{% extends "base" %}{% block content %}
{% if group or topic %}<p class="pages"><a href="{{ url("consumers", store=store) }}">all groups</a></p>{% endif %}
{% for each in stores %}<section{% if each.error %} class="error"{% endif %}><h2>{{ each.store }}:
{% if each.error %}nothing known{% elif each.tooManyCount %}too many queues at once{% else %}
{{ "{:,}".format(each.left) }} message{{ "" if each.left == 1 else "s" }} left in {{ "{:,}".format(each.queues) }}
queue{{ "" if each.queues == 1 else "s" }} of groups{% endif %}</h2>{% if each.error %}<p>{{ each.error }}</p>{% endif %}
{% if each.warnings %}<ul class="note">{% for text in each.warnings %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if each.tooManyCount and group and topic %}<p>A page has not so many queues of a topic: run the command.</p>
{% elif each.tooManyCount %}<p>Choose a {{ "topic of the group" if group else "group" }}:</p><ul>{% for many in each.tooMany %}
<li><a href="{{ url("consumers", store=each.store, group=many.group, topic=many.topic) }}">
{{- many.topic if group else many.group }}</a>: {{ "{:,}".format(many.queues) }}</li>{% endfor %}</ul>
<p class="note">{{ "{:,}".format(each.tooMany|length) }} of {{ "{:,}".format(each.tooManyCount) }}</p>
{% set before, next_one = each.previous, each.next %}
{{ ui.turn(before is not none and url("consumers", store=each.store, group=group, topic=topic, **{"from": before}),
  next_one is not none and url("consumers", store=each.store, group=group, topic=topic, **{"from": next_one})) }}{% endif %}
<pre><code>{{ each.command }}</code></pre>{% if each.lookedAt %}{{ looked(each.lookedAt) }}{% endif %}</section>{% endfor %}
{% if groups %}<section><h2>{{ "{:,}".format(count) }} queue{{ "" if count == 1 else "s" }} of groups</h2>
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">store</th><th scope="col">group</th>
<th scope="col">topic</th>
{{ head("queue") }}{{ head("offset") }}{{ head("end") }}{{ head("lag") }}
<th scope="col">next message stored</th><th scope="col">state</th></tr></thead><tbody>
{% for each in groups %}<tr{% if each.state not in ("in the queue", "no offset") %} class="row-wrong"{% endif %}>
<td>{{ each.store }}</td>
<td><a href="{{ url("consumers", store=each.store, group=each.group) }}">{{ each.group }}</a></td>
<td>{{ each.topic }}</td>{% if each.end %}<td class="num"><a
href="{{ url("queue", store=each.store, topic=each.topic, queue=each.queueId) }}">{{ each.queueId }}</a></td>
{% else %}{{ ui.offset(each.queueId) }}{% endif %}
<td class="num">{% if each.offset is none %}-
{% elif not each.end or each.state not in ("in the queue", "expired") %}{{ each.offset }}{% else %}<a
href="{{ url("queue", store=each.store, topic=each.topic, queue=each.queueId, **{"from": each.offset}) }}">{{ each.offset }}</a>
{% endif %}</td>
{{ ui.offset(each.end) }}{{ ui.num(each.left) }}{{ ui.when(each.nextTime) }}
<td>{{ each.state }}{% if each.expired %}: {{ "{:,}".format(each.expired) }} gone{% endif %}</td></tr>{% endfor %}
</tbody></table></div>
{{ ui.turn(previous is not none and url("consumers", store=store, group=group, topic=topic, **{"from": previous}),
           next is not none and url("consumers", store=store, group=group, topic=topic, **{"from": next})) }}</section>
{% endif %}{% endblock %}"""

OVERVIEW_TEMPLATES: Final = {name: text.replace("{% block content %}", "{% block content %}" + _MACROS, 1) for name, text in (
    ("log", _LOG), ("disk", _DISK), ("rates", _RATES), ("consumers", _CONSUMERS),
)}  # fmt: skip
"""by their names"""


# ------------------------------------------------------------------------------------------------------------- search templates


_PARTS: Final = """
{% macro stores_field(names, store, all) %}<label>Store<select name="store">{% if all %}<option value="">all</option>{% endif %}
{% for each in names %}<option value="{{ each }}"{% if each == store %} selected{% endif %}>{{ each }}</option>{% endfor %}
</select></label>{% endmacro %}
{% macro hits(rows, of) %}<div class="scroll" tabindex="0">
<table><thead><tr><th scope="col">store</th>{{ ui.head("in the log") }}
<th scope="col">topic</th>{{ ui.head("queue") }}{{ ui.head("offset") }}<th scope="col">stored</th><th scope="col">tags
</th><th scope="col">keys</th><th scope="col">body</th></tr></thead><tbody>{% for each in rows %}
{% set held = each.store or of %}<tr><td>{{ held }}</td>
<td class="num"><a href="{{ url("message", store=held, physical=each.physicalOffset) }}">{{ each.physicalOffset }}</a></td>
<td>{{ each.topic }}</td>{{ ui.offset(each.queueId) }}{{ ui.offset(each.servedAt if "servedAt" in each else each.queueOffset) }}
{{ ui.when(each.storeTime) }}{{ ui.opt(each.tags) }}<td>{{ each["keys"]|join(" ") }}</td><td>{{ preview(each) }}</td></tr>
{% endfor %}</tbody></table></div>{% endmacro %}
{% macro facets(found, narrowed, of) %}{% if found %}<section><h2>{{ of }}</h2><div class="facets">
{% for name, facet in found.items() %}<div><h3>{{ name }}{{ " (UTC)" if name == "hour" }}</h3><ul class="note">
{% for each in facet["values"] %}{% set link = narrowed(name, each) %}
{% set text = "none" if each.value is none else each.value|replace("T", " ") ~ ":00" if name == "hour" else each.value %}
<li>{% if link %}<a href="{{ link }}">{{ text }}</a>{% else %}{{ text }}{% endif %}: {{ "{:,}".format(each.count) }}</li>
{% endfor %}{% if facet.more %}<li>and {{ "{:,}".format(facet.more) }} more</li>{% endif %}</ul></div>{% endfor %}</div>
</section>{% endif %}{% endmacro %}
"""

_SEARCH: Final = """{% extends "base" %}{% block content %}{% import "search_parts" as parts with context %}
<section><h2>By key or tag</h2><form action="/search">{{ parts.stores_field(names, store, true) }}
<label>Topic<input name="topic" required value="{{ asked.topic }}"></label>
<label>Key or unique key<input name="key" required value="{{ asked.key }}"></label>
<label>Stored from<input class="short" name="begin" value="{{ asked.begin }}"></label>
<label>Stored until<input class="short" name="end" value="{{ asked.end }}"></label><button>Search by key</button></form>
<form action="/search">{{ parts.stores_field(names, store, true) }}
<label>Topic<input name="topic" required value="{{ asked.topic }}"></label>
<label>Tag<input name="tag" required value="{{ asked.tag }}"></label>
<label>Stored from<input class="short" name="begin" value="{{ asked.begin }}"></label>
<label>Stored until<input class="short" name="end" value="{{ asked.end }}"></label><button>Search by tag</button></form>
</section>
<section><h2>By id</h2><form action="/search">{{ parts.stores_field(names, store, true) }}
<label>Message id or unique key<input name="id" required value="{{ asked.id }}"></label><button>Search by id</button></form>
</section>
<section><h2>By place</h2><form action="/search">{{ parts.stores_field(names, store, true) }}
<label>Topic<input name="topic" required value="{{ asked.topic }}"></label>
<label>Queue<input class="short" name="queue" required inputmode="numeric" value="{{ asked.queue }}"></label>
<label>Offset<input class="short" name="offset" inputmode="numeric" value="{{ asked.offset }}"></label>
<label>Or stored at or after<input name="time" value="{{ asked.time }}"></label><button>Search the queue</button></form>
<form action="/search">{{ parts.stores_field(names, store, false) }}
<label>Offset in the log<input class="short" name="physical" required inputmode="numeric" value="{{ asked.physical }}"></label>
<button>Search the offset</button></form>
<p class="note">This searches by the IndexFiles and the queues.
<a href="{{ url("scan", store=store) }}">Search the log itself</a> where they are lost, or for what is in a body.
A time has its zone, as 2026-11-20T08:00:00Z, or is in milliseconds since 1970.</p></section>
{% for found in results %}<section{% if found.error %} class="error"{% endif %}><h2>{{ found.store }}:
{% if found.error %}not searched{% elif found.more %}the newest {{ found.messages|length }}, and there are more{% else %}
{{ found.messages|length }} found{% endif %}</h2>{% if found.error %}<p>{{ found.error }}</p>{% endif %}
{% if found.unread %}<p class="bad">Some of the store could not be read: it may have the message all the same.</p>{% endif %}
{% if found.looked and not found.looked.whole %}<p class="bad">{{ "{:,}".format(found.looked.count) }}
{% if found.looked["all"] is not none %}of {{ "{:,}".format(found.looked["all"]) }} {% endif %}{{ found.looked.what }}
were looked at, the newest ones: older messages are not among these.</p>{% endif %}
{% if found.warnings %}<ul class="note">{% for text in found.warnings %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if found.messages %}{{ parts.hits(found.messages, found.store) }}{% endif %}
{% if found.command %}<pre><code>{{ found.command }}</code></pre>{% endif %}
{% if named %}<p class="note"><a href="{{ deeper(found.store) }}">Search the log of {{ found.store }} itself for it</a></p>
{% endif %}</section>
{% endfor %}{{ parts.facets(facets, narrowed, "Of the messages that are shown") }}
{% endblock %}"""

_SCAN: Final = """{% extends "base" %}{% block content %}{% import "search_parts" as parts with context %}
<section><h2>What to look for</h2><form action="/scan">{{ parts.stores_field(names, store, true) }}
<label>Topic (a name, or a pattern with * and ?)<input name="topic" value="{{ asked.topic }}"></label>
<label>Queue<input class="short" name="queue" inputmode="numeric" value="{{ asked.queue }}"></label>
<label>Tag<input class="short" name="tag" value="{{ asked.tag }}"></label>
<label>Key or unique key<input name="key" value="{{ asked.key }}"></label>
<label>Text in the body<input name="text" value="{{ asked.text }}"></label>
<label>Regular expression in the body (RE2)<input name="regex" value="{{ asked.regex }}"></label>
<label>Stored from<input class="short" name="since" value="{{ asked.since }}"></label>
<label>Stored before<input class="short" name="until" value="{{ asked.until }}"></label>
<button>Search the log</button></form>
<p class="note">The log itself is read, from its beginning on, one part a page: no index is needed. All that is given must be
true of a message. One that waits for a topic, as a delayed or a half message, is found by that topic, too.
A time has its zone, as 2026-11-20T08:00:00Z, or is in milliseconds since 1970.</p>
{% if compiles %}<p class="note">The first search begins by {{ compiles }}.</p>{% endif %}</section>
{% if part %}<section class="verdict {{ "good" if not part.next and not part.warnings else "" }}"><h2>
{% if part.next %}{{ "{:,}".format(part.segments.reached) }} of {{ "{:,}".format(part.segments["all"]) }} segments,
{{ size(part.bytes.reached) }} of {{ size(part.bytes["all"]) }} looked at{% else %}The end is reached:
{{ "{:,}".format(part.segments.reached) }} of {{ "{:,}".format(part.segments["all"]) }} segments{% endif %}</h2>
<p>{% if part.next %}This is a part, not the whole: what lies behind it is not looked at yet.
{% elif part["from"] != "0.0" %}This is the last part: what the parts before it had is not shown here.
{% elif part.warnings %}Not all could be searched: the warnings say what is left out.
{% else %}Nothing is left to look at.{% endif %}</p>
<ul class="note">{% for each in part.spans %}<li>{{ each.store }}: from {{ each["from"] }} to {{ each.to }}
{{ "passed over" if each.passed else "looked at" }}</li>{% endfor %}</ul>
{% if part.segments.passed %}<p class="note">{{ "{:,}".format(part.segments.passed) }} passed over: the first records of these
segments, and of those behind them, were stored more than an hour outside of the time that was asked for.</p>{% endif %}
{% if part.toWalk %}<p>Where records begin here is not known yet: {{ size(part.toWalk) }} of the segment are still to be walked
first.</p>{% endif %}
{% if stop %}<p class="bad">Nothing is found in this part. This page goes on by itself, part after part, every {{ every }} s,
until the next hit or damage.</p><p class="pages"><a href="{{ stop }}" autofocus>Stop here</a></p>
{% elif go_on %}<p class="pages"><a rel="next" href="{{ go_on }}">Go on</a>
<a href="{{ go_until }}">Go on by itself until the next hit</a></p>{% endif %}</section>
{% if part.damage.places %}<section class="error"><h2>Damage in this part:
{{ "{:,}".format(part.damage.count) }} place{{ "" if part.damage.count == 1 else "s" }}, {{ size(part.damage.bytes) }}</h2>
<p>No message is found in it.</p>
<ul class="note">{% for each in part.damage.places %}
<li>{{ each.store }}: <a href="{{ url("message", store=each.store, physical=each.offset) }}">offset {{ each.offset }}</a>,
{{ size(each.bytes) }}: {{ each.text }}</li>{% endfor %}</ul></section>
{% endif %}{{ ui.warnings(part.warnings) }}
<section><h2>Found in this part: {{ part.messages|length }}</h2>
{% if part.messages %}{{ parts.hits(part.messages, "") }}{% endif %}
{% if part.messages and go_on %}<p class="pages"><a rel="next" href="{{ go_on }}">Go on behind these</a>
<a href="{{ go_until }}">Go on by itself until the next hit</a></p>{% endif %}</section>
{{ parts.facets(facets, narrowed, "Of this part") }}
<section><h2>The whole on the command line</h2>{% for each in part.commands %}<pre><code>{{ each }}</code></pre>{% endfor %}
</section>{% endif %}{% endblock %}"""

_MESSAGE: Final = """{% extends "base" %}{% block content %}{{ ui.warnings(warnings) }}
{% macro gap(bytes) %}{% if bytes %} ({{ size(bytes) }} between are no record){% endif %}{% endmacro %}
{% if not message %}<section class="error"><h2>Nothing found</h2><p>The warnings say what stands there.</p></section>{% else %}
<section><h2>What it is</h2><p>{{ message.meaning.text }}</p><p class="pages">
{% if inLog.previous is not none %}<span><a href="{{ url("message", store=store, physical=inLog.previous) }}">Before it in the
log</a>{{ gap(inLog.bytesBefore) }}</span>{% endif %}
{% if inLog.next is not none %}<span><a href="{{ url("message", store=store, physical=inLog.next) }}">Behind it in the log</a>
{{ gap(inLog.bytesBehind) }}</span>{% endif %}
{% if inQueue.previous is not none %}<a href="{{ at_offset(inQueue, inQueue.previous) }}">Before it in the queue:
{{ inQueue.previous }}</a>{% endif %}
{% if inQueue.next is not none %}<a href="{{ at_offset(inQueue, inQueue.next) }}">Behind it in the queue: {{ inQueue.next }}</a>
{% endif %}</p><p><a href="{{ trace }}">What happened to it: its trace over all stores</a></p></section>
<section><h2>What leads here</h2><ul class="note">
<li>{% if inQueue.leadsHere is none %}The store has no files of its queue.
{% elif inQueue.leadsHere %}Its queue leads here:
<a href="{{ url("queue", store=store, topic=inQueue.topic, queue=inQueue.queue, **{"from": inQueue.queueOffset}) }}">offset
{{ inQueue.queueOffset }} of queue {{ inQueue.queue }}</a>.
{% else %}The unit at offset {{ inQueue.queueOffset }} of its queue does not
lead here, or there is none.{% endif %}</li>
{% for each in lightQueues %}<li>Light queue {{ each.topic }}: {% if each.leadsHere is none %}the store has no files of it, or
the record no offset.{% elif each.leadsHere %}<a
href="{{ url("queue", store=store, topic=each.topic, queue=0, **{"from": each.queueOffset}) }}">offset
{{ each.queueOffset }}</a> leads here.{% else %}the unit at offset {{ each.queueOffset }} does not lead here, or there is none.
{% endif %}</li>{% endfor %}
{% if not index.present %}<li>The store has no IndexFiles.</li>{% elif not index["items"] %}<li>No item of
{{ "{:,}".format(index.files) }} IndexFiles{{ "" if index.whole else ", of which 5,000 slots and items were looked at," }} leads
here.</li>
{% endif %}</ul>
{% if index["items"] %}<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">by</th><th scope="col">text</th>
<th scope="col">IndexFile</th>{{ ui.head("slot") }}{{ ui.head("item") }}</tr></thead><tbody>
{% for each in index["items"] %}<tr><td>{{ each.name }}</td><td>{% if each.name == "tag" %}<a
href="{{ url("search", store=store, topic=message.topic, tag=each.key) }}">{{ each.key }}</a>{% else %}<a
href="{{ url("search", store=store, topic=message.topic, key=each.key) }}">{{ each.key }}</a>{% endif %}</td>
<td><a href="{{ url("items", store=store, file=each.file, **{"from": each.item}) }}"><code>{{ each.file }}</code></a></td>
{{ ui.offset(each.slot) }}{{ ui.offset(each.item) }}</tr>{% endfor %}</tbody></table></div>
{% if not index.whole %}<p class="note">There may be more: a page looks up 20 keys,
and reads 5,000 slots and items of the index.</p>{% endif %}
{% endif %}</section>
{% if pointsTo %}<section><h2>Where it points to</h2><ul class="note">{% for each in pointsTo %}<li>{{ each.text }}:
{% if each.physical is not none %}{% if each.there %}<a
href="{{ url("message", store=store, physical=each.physical) }}">offset {{ each.physical }} of the log</a>{% else %}
offset {{ each.physical }} of the log, where no record of this store stands{% endif %}
{% else %}{% set place = each.topic ~ ", queue " ~ each.queue ~ ("" if each.offset is none else ", offset " ~ each.offset) %}
{% if not each.there %}{{ place }}, which the store does not have{% elif each.offset is none %}<a
href="{{ url("queue", store=store, topic=each.topic, queue=each.queue) }}">{{ place }}</a>{% else %}<a
href="{{ at_offset(each, each.offset) }}">{{ place }}</a>{% endif %}{% endif %}</li>{% endfor %}</ul></section>{% endif %}
<section><h2>Fields</h2><div class="scroll" tabindex="0"><table class="pairs"><tbody>{% for name, value in fields %}<tr><th
scope="row">{{ name }}</th>
<td>{{ value }}</td></tr>{% endfor %}</tbody></table></div></section>
<section><h2>Properties</h2><div class="scroll" tabindex="0">
<table class="pairs"><tbody>{% for name, value in message.properties.items() %}
<tr>
<th scope="row">{{ name }}</th><td>{{ value }}</td></tr>{% endfor %}</tbody></table></div></section>
{% if meant %}<section><h2>What it means, field by field</h2><div class="scroll" tabindex="0"><table class="pairs"><tbody>
{% for name, value in meant %}<tr><th scope="row">{{ name }}</th><td>{{ value }}</td></tr>{% endfor %}</tbody></table></div>
</section>
{% endif %}<section><h2>Body</h2><p class="note">{{ body_note }}
{% if whole or bytesShown %}<a
href="{{ url("body", store=store, physical=message.physicalOffset) }}">The whole body, uncompressed</a>{% endif %}</p>
{% if body_lines %}<h2>{{ "JSON" if json_body else "Text" }}</h2>
<pre class="body" tabindex="0"><code>{% for line in body_lines %}{{ line }}
{% endfor %}</code></pre>{% endif %}
{% if hex_lines %}<details{% if not body_lines %} open{% endif %}><summary>Hex, the first {{ hex_bytes }} bytes</summary>
<pre class="body" tabindex="0"><code>{% for line in hex_lines %}{{ line }}
{% endfor %}</code></pre></details>{% endif %}</section>{% endif %}{{ ui.same(command) }}{% endblock %}"""

_TRACE: Final = """{% extends "base" %}{% block content %}
{% if error %}<section class="error"><h2>Not traced</h2><p>{{ error }}</p>
<p class="note">A trace finds records by the IndexFiles. Without them the whole log has to be read, which the command does with
<code>--scan</code>.{% if key %} <a href="{{ url("scan", store=store, key=key) }}">Search the log</a> finds the records that
have its unique key.{% endif %}</p>{% if alone %}<p class="pages">One store alone:{% for name in alone %}
<a href="{{ url("trace", store=name, unique_key=key) }}">{{ name }}</a>{% endfor %}</p>{% endif %}</section>
{% elif not messages %}<section class="error"><h2>Nothing found</h2>
<p>No store has a record of this message, as far as the IndexFiles say.</p></section>{% endif %}
{% for each in messages %}<section><h2>{{ each.message }} of {{ each.topic }}</h2>
{% if each["keys"] %}<p class="note">keys {{ each["keys"]|join(" ") }}</p>{% endif %}
<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">time</th><th scope="col">store</th><th scope="col">what</th>
<th scope="col">text</th><th scope="col">evidence</th><th scope="col">certainty</th></tr></thead><tbody>
{% for event in each.events %}<tr>{{ ui.when(event.time) }}<td>{{ event.store }}</td><td>{{ event.what }}</td>
<td>{{ event.text }}</td><td>{% if event.physicalOffset is none %}{{ event.evidence }}{% else %}<a
href="{{ url("message", store=event.store, physical=event.physicalOffset) }}">{{ event.evidence }}</a>{% endif %}</td>
<td>{{ event.certainty }}</td></tr>{% endfor %}</tbody></table></div></section>{% endfor %}
{{ ui.warnings(warnings) }}{{ ui.same(command) }}{% endblock %}"""

SEARCH_TEMPLATES: Final = {"search_parts": _PARTS, "search": _SEARCH, "scan": _SCAN, "message": _MESSAGE, "trace": _TRACE}
"""by their names"""
