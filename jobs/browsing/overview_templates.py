"""The templates of the overview pages: the log, the disk, messages over time, and consumer groups.

By itself: they are markup, which no tool for Python checks.
"""

from typing import Final

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
{% if each.error %}nothing known{% elif each.tooMany %}too many queues at once{% else %}
{{ "{:,}".format(each.left) }} message{{ "" if each.left == 1 else "s" }} left in {{ "{:,}".format(each.queues) }}
queue{{ "" if each.queues == 1 else "s" }} of groups{% endif %}</h2>{% if each.error %}<p>{{ each.error }}</p>{% endif %}
{% if each.warnings %}<ul class="note">{% for text in each.warnings %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% if each.tooMany %}<p>Choose a group:</p><ul>{% for many in each.tooMany[:500] %}<li><a
href="{{ url("consumers", store=each.store, group=many.group) }}">{{ many.group }}</a>: {{ "{:,}".format(many.queues) }}</li>
{% endfor %}</ul>{% if each.tooMany|length > 500 %}<p class="note">the first 500 of
{{ "{:,}".format(each.tooMany|length) }}</p>{% endif %}{% endif %}
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

TEMPLATES: Final = {name: text.replace("{% block content %}", "{% block content %}" + _MACROS, 1) for name, text in (
    ("log", _LOG), ("disk", _DISK), ("rates", _RATES), ("consumers", _CONSUMERS),
)}  # fmt: skip
"""by their names"""
