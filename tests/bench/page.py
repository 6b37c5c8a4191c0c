"""The race's page, of its figures: ``python -m tests.bench.page [RESULTS]``.

A full race (all logs in full size, all parts) goes to ``README.md`` and ``plots/`` beside this file, to be committed; anything
less to .bench/page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.logs import BENCH, GIB

HERE = Path(__file__).parent
BEGIN, END = "<!-- written by tests.bench.page -->\n", "<!-- until here -->\n"
SIDES = {
    "peer": "RocketMQ: store opened to last record dispatched",
    "peer process": "RocketMQ: the whole process, shutdown and all",
    "build": "rmq-reindex: build alone, in a started session",
    "process": "rmq-reindex: the whole process, Spark's start and all",
    "local": "rmq-reindex: the whole process with `--engine local`",
    "local build": "rmq-reindex: build alone, with `--engine local`",
}


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row("---", *("---:" for _ in cells[1:]))


def _spread(seconds: list[float]) -> tuple[str, str, str]:
    return f"{min(seconds):.2f}", f"**{median(seconds):.2f}**", f"{max(seconds):.2f}"


def _target(ratio: float, target: float | None, least: bool = True) -> str:
    if target is None:
        return ""
    met = ratio >= target if least else ratio <= target
    return f"{'at least' if least else 'at most'} {target:g}: {'met' if met else 'missed'}"


def middle_run(runs: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """The run of the median, or the one below it where they are even in number."""
    return sorted(runs, key=lambda run: float(run[key]))[(len(runs) - 1) // 2]


def stages(run: dict[str, Any]) -> dict[str, float]:
    """Seconds of one run of ours by stage, in order; what no stage tells of is ``other``."""
    found: dict[str, float] = {}
    if run["process"]:
        found["start and end"] = run["process"] - run["session"] - run["build"]
        found["engine's start"] = run["session"]
    found |= run["stages"]
    found["other"] = max(0.0, run["build"] - sum(run["stages"].values()))
    return found


def _races(races: list[dict[str, Any]]) -> Iterator[str]:
    for race in races:
        yield f"### {race['preset']}: {race['bytes'] / GIB:.3g} GiB, {race['records']:,} records"
        yield ""
        yield f"All {race['files']} files of both sides equal, byte for byte."
        yield ""
        yield from _head("seconds", "min", "median", "max", "records/s")
        for name, title in SIDES.items():
            seconds = race["seconds"].get(name)
            if seconds is None:
                continue
            yield _row(title, *_spread(seconds), f"{race['records'] / median(seconds):,.0f}")
        yield ""
        yield from _head("ratio of medians, to RocketMQ's first line", "", "target")
        for name, ratio in race["ratios"].items():
            yield _row(SIDES[name], f"**{ratio:.2f}x**", _target(ratio, race["targets"].get(name)))
        yield ""
        if "engines" in race:
            found, targets = race["engines"], race["engines_targets"]
            yield f"Spark's build in a started session takes {found['warm']:.2f} times as long as the local engine's"
            yield f"({_target(found['warm'], targets['warm'], False)}), and its whole command {found['start']:.1f} s longer"
            yield f"({_target(found['start'], targets['start'], False)})."
            yield ""
        first = ", ".join(f"{seconds:.1f}" for seconds in race["first"])
        yield f"Builds in the session before those, not counted above: {first} s."
        yield ""


def _sizes(sizes: dict[str, Any]) -> Iterator[str]:
    yield from ["### Time against size", "", "![time against size](plots/sizes.svg)", ""]
    yield from _head("orders, GiB", "records", "RocketMQ, s", "rmq-reindex, s", "ratio")
    for one in sizes["found"]:
        peer, ours = median(one["peer"]), median(one["build"])
        yield _row(f"{one['bytes'] / GIB:.3g}", f"{one['records']:,}", f"{peer:.2f}", f"{ours:.2f}", f"{peer / ours:.2f}x")
    yield ""
    yield f"Four times the log takes {sizes['ratio']:.2f} times as long ({_target(sizes['ratio'], sizes['target'], False)})."
    yield ""


def _executors(found: dict[str, Any]) -> Iterator[str]:
    yield from ["### Executors", "", "![time by executors](plots/executors.svg)", ""]
    yield "A standalone cluster on one machine; a warmed session for each number of executors, builds in turn; 1/4 of `orders`."
    yield ""
    yield from _head("executors of one core", "min", "median", "max")
    for count, seconds in found["seconds"].items():
        yield _row(count, *_spread(seconds))
    yield ""
    yield f"Two are {found['ratio']:.2f} times as fast as one ({_target(found['ratio'], found['target'])})."
    yield ""


def _cores(found: dict[str, Any]) -> Iterator[str]:
    yield from [
        "### Cores",
        "",
        "A warmed session for each number of cores, whose processes may use no more; builds of `orders` in turn.",
        "",
    ]
    engines = {"Spark": found} | ({"`--engine local`": found["local"]} if "local" in found else {})
    yield from _head("engine, cores", "min", "median", "max")
    for engine, its in engines.items():
        for count, seconds in its["seconds"].items():
            yield _row(f"{engine}, {count}", *_spread(seconds))
    yield ""
    for engine, its in engines.items():
        yield f"{engine}: two are {its['ratio']:.2f} times as fast as one ({_target(its['ratio'], found['target'])})."
    yield ""


def _verify(found: dict[str, Any]) -> Iterator[str]:
    yield from ["### verify", "", "The whole command on the first segment of `orders` (1 GiB) and its build.", ""]
    yield from _head("engine", "min", "median", "max")
    for engine, seconds in found["seconds"].items():
        yield _row(engine, *_spread(seconds))
    yield ""
    took = median(found["seconds"]["local"])
    yield f"With `--engine local`: {took:.2f} s ({_target(took, found['target'], False)})."
    yield ""


def _starts(found: dict[str, Any]) -> Iterator[str]:
    yield from ["### Starts", "", "The whole command on the demo's store: what a start costs.", ""]
    yield from _head("engine", "min", "median", "max")
    for kind, seconds in found["seconds"].items():
        yield _row(kind, *_spread(seconds))
    yield ""
    took = median(found["seconds"]["local, with bytecode"])
    target = _target(took, found["target"], False)
    yield f"`--engine local` with set-up's bytecode, where Python keeps none: {took:.2f} s ({target})."
    yield ""


def _submits(found: dict[str, Any]) -> Iterator[str]:
    yield from ["### A standalone cluster, from `spark-submit` to its end", ""]
    yield f"Two executors of one core on this machine, what `make dist` makes, {found['bytes'] / GIB:.3g} GiB of `orders`."
    yield "The two last columns count from when an executor was there: until its first task ran, and until it had ended."
    yield ""
    yield from _head("seconds", "min", "median", "max", "first task ran", "had ended")
    for way, starts in found["starts"].items():
        after = (f"{median(start[name] for start in starts):.2f}" for name in ("ran", "ended"))
        yield _row(way, *_spread([start["whole"] for start in starts]), *after)
    yield ""
    yield f"A later submit costs {found['more']:.1f} s more than `--master local[2]`"
    yield f"({_target(found['more'], found['more_target'], False)}). Its first task ran {found['ran']:.1f} s after its executor"
    yield f"was there ({_target(found['ran'], found['ran_target'], False)})."
    yield ""


def stage_rows(races: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, float]]]:
    for race in races:
        yield f"{race['preset']}: peer", {"peer": median(race["seconds"]["peer"])}
        for name, key in (("build", "build"), ("process", "process"), ("local", "process")):
            yield f"{race['preset']}: {name}", stages(middle_run(race["runs"][name], key))


def page(results: dict[str, Any]) -> str:
    """The page's text between its marks."""
    lines = ["## Results", "", f"    {results['command']}", ""]
    about = f"{results['rounds']} rounds, {results['minutes']:.0f} minutes"
    lines += [f"{about}; the machine's host took {results['stolen']:.1%} of a core for other guests meanwhile.", ""]
    if not results["warm"]:
        lines += ["**The page cache could not hold all: these figures are those of a disk, too.**", ""]
    lines += [*_head("machine", ""), *(_row(name, value) for name, value in results["machine"].items()), ""]
    lines += _races(results["races"])
    if results["races"]:
        lines += ["### Time by stage", "", "![time by stage](plots/stages.svg)", "", "The run of the median:", ""]
        lines += _head("", "seconds")
        for name, found in stage_rows(results["races"]):
            lines += [_row(name, ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found.items()))]
        lines += [""]
    if "sizes" in results:
        lines += _sizes(results["sizes"])
    if "executors" in results:
        lines += _executors(results["executors"])
    if "cores" in results:
        lines += _cores(results["cores"])
    if "verify" in results:
        lines += _verify(results["verify"])
    if "starts" in results:
        lines += _starts(results["starts"])
    if "submits" in results:
        lines += _submits(results["submits"])
    return "\n".join(lines)


def draw(results: dict[str, Any], folder: Path) -> None:
    """The plots that the page shows."""
    # Not where the page's text alone is wanted: matplotlib is there for `make bench` alone.
    from tests.bench import plots

    folder.mkdir(parents=True, exist_ok=True)
    if results["races"]:
        plots.plot_stages(list(stage_rows(results["races"])), folder / "stages.svg")
    if "sizes" in results:
        plots.plot_sizes(results["sizes"]["found"], folder / "sizes.svg")
    if "executors" in results:
        plots.plot_executors(results["executors"]["seconds"], folder / "executors.svg")


def is_full(results: dict[str, Any]) -> bool:
    parts = {"sizes", "executors", "cores", "verify", "starts", "submits"}
    return bool(results["scale"] == 1 and len(results["races"]) == 3 and parts <= set(results))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=BENCH / "results.json")
    results = json.loads(parser.parse_args().results.read_text(encoding="utf-8"))
    place = HERE if is_full(results) else BENCH / "page"
    before, _, rest = (HERE / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    draw(results, place / "plots")
    (place / "README.md").write_text(f"{before}{BEGIN}{page(results)}{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(f"the page: {place / 'README.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
