"""The commands that run no engine, from ``info`` to ``browse``.

By itself: each imports what it needs once it is called, and no other command is imported for it.
"""

from collections.abc import Sequence

from rocketmq_reindex.jobs.api import running_here
from rocketmq_reindex.jobs.command.results import Interrupts, Output, show


def info(arguments: Sequence[str]) -> int:
    """Look at a store, and return the exit status: 0 also where something is missing in the store."""
    from rocketmq_reindex.jobs.describing.look import parse_info

    return show(running_here.run_info(lambda: parse_info(arguments)).result, "--json" in arguments)


def query(arguments: Sequence[str]) -> int:
    """Answer one question. Return the exit status: 1 also where nothing was found and something could not be read."""
    from rocketmq_reindex.jobs.querying import question
    from rocketmq_reindex.jobs.store.folders import Notes

    with Output() as output:
        output.status = running_here.run_query(lambda: question.parse_query(arguments), Notes(), question.show)
    return output.status


def trace(arguments: Sequence[str]) -> int:
    """Trace a message, and return the exit status: 4 where no store has it."""
    from rocketmq_reindex.jobs.tracing.timeline import parse_trace

    return show(running_here.run_trace(lambda: parse_trace(arguments)).result, "--json" in arguments)


def consumers(arguments: Sequence[str]) -> int:
    """Look where groups stand, and return the exit status: 4 where there is none, or one misses messages."""
    from rocketmq_reindex.jobs.consumers.standing import parse_consumers

    return show(running_here.run_consumers(lambda: parse_consumers(arguments)).result, "--json" in arguments)


def export(arguments: Sequence[str]) -> int:
    """Export messages, and return the exit status: 3 where damage may have taken some."""
    from rocketmq_reindex.jobs.exporting.options import parse_export

    return show(running_here.run_export(lambda: parse_export(arguments), Interrupts()).result, "--json" in arguments)


def import_messages(arguments: Sequence[str]) -> int:
    """Make a store of rows, and return the exit status."""
    from rocketmq_reindex.jobs.importing.run import parse_import

    return show(running_here.run_import(lambda: parse_import(arguments), Interrupts()).result, "--json" in arguments)


def replay(arguments: Sequence[str]) -> int:
    """Send messages into a cluster, and return the exit status: 1 where one was not sent."""
    from rocketmq_reindex.jobs.replaying.options import parse_replay

    return show(running_here.run_replay(lambda: parse_replay(arguments), Interrupts()).result, "--json" in arguments)


def preflight(arguments: Sequence[str]) -> int:
    """Work out a start. Return the exit status: 0 where it loses nothing, 4 where it loses or hides something."""
    from rocketmq_reindex.jobs.preflighting.options import parse_preflight

    return show(running_here.run_preflight(lambda: parse_preflight(arguments)).result, "--json" in arguments)


def fetch(arguments: Sequence[str]) -> int:
    """Fetch, and return the exit status."""
    from rocketmq_reindex.jobs.fetching.run import parse_fetch

    return show(running_here.run_fetch(lambda: parse_fetch(arguments), Interrupts()).result, "--json" in arguments)


def report(arguments: Sequence[str]) -> int:
    """Write the page. Return the exit status."""
    from rocketmq_reindex.jobs.reporting.make import parse_report

    return show(running_here.run_report(lambda: parse_report(arguments)).result, as_json=False)


def browse(arguments: Sequence[str]) -> int:
    """Show stores in the browser until a signal ends it. Return the exit status: that of the signal."""
    from rocketmq_reindex.jobs.browsing.options import parse_browse

    return show(running_here.run_browse(lambda: parse_browse(arguments), Interrupts()).result, as_json=False)
