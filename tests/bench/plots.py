"""The page's plots as small SVG files: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

GIB = 1 << 30
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rocketmq-reindex",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
PEER, OURS = "#b0574a", "#2f6f9f"
STAGES = ("#2f6f9f", "#62a0c8", "#9cc7df", "#c9dfec", "#e3c08f", "#d59a57")


@contextmanager
def _axes(path: Path, height: float) -> Iterator[Any]:
    # Each process of the tests imports this module; few of them draw.
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(7.2, height), layout="constrained")
        yield axes
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
        pyplot.close(figure)


def _range(values: list[float]) -> tuple[list[list[float]], float]:
    """Error bars from minimum to maximum, and the median."""
    middle = median(values)
    return [[middle - min(values)], [max(values) - middle]], middle


def plot_sizes(found: list[dict[str, Any]], path: Path) -> None:
    """Time against size, both sides."""
    with _axes(path, 3.4) as axes:
        for side, name, colour in (("peer", "RocketMQ's rebuild", PEER), ("build", "rmq-reindex, started session", OURS)):
            size = [one["bytes"] / GIB for one in found]
            axes.plot(size, [median(one[side]) for one in found], "o-", color=colour, label=name)
            for x, one in zip(size, found, strict=True):
                bars, middle = _range(one[side])
                axes.errorbar([x], [middle], bars, color=colour, capsize=3)
        axes.set(xlabel="orders, GiB of commitlog", ylabel="seconds (median, min to max)", xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False)


def plot_stages(rows: list[tuple[str, dict[str, float]]], path: Path) -> None:
    """A bar a run, cut into its stages."""
    # In the order of the runs that have most of them: the whole processes.
    longest = sorted((stages for _, stages in rows), key=len, reverse=True)
    names = list(dict.fromkeys(stage for stages in longest for stage in stages if stage != "peer"))
    colours = {"peer": PEER, **{name: STAGES[k % len(STAGES)] for k, name in enumerate(names)}}
    with _axes(path, 0.6 + 0.36 * len(rows)) as axes:
        seen = set()
        for at, (_, stages) in enumerate(rows):
            left = 0.0
            for stage, seconds in stages.items():
                label = None if stage in seen else {"peer": "RocketMQ's rebuild"}.get(stage, stage)
                seen.add(stage)
                axes.barh(at, seconds, left=left, color=colours[stage], label=label, height=0.7)
                left += seconds
            axes.text(left, at, f" {left:.1f}", va="center")
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.set(xlabel="seconds")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def plot_executors(seconds: dict[str, list[float]], path: Path) -> None:
    """Time by the number of executors, beside what more of them could do at best."""
    with _axes(path, 1.8) as axes:
        counts = [int(count) for count in seconds]
        one = median(seconds["1"])
        for at, values in enumerate(seconds.values()):
            bars, middle = _range(values)
            label = "median, min to max" if at == 0 else None
            axes.barh(at, middle, color=OURS, height=0.6, xerr=bars, capsize=4, label=label)
            axes.text(max(values), at, f"  {middle:.2f}", va="center")
        ideal = [one / count for count in counts]
        axes.plot(ideal, range(len(counts)), "|", color=PEER, ms=26, mew=2, label="the time of one, shared out")
        axes.set_yticks(range(len(counts)), [f"{count} executor{'s' * (count > 1)} of one core" for count in counts])
        axes.invert_yaxis()
        axes.set(xlabel="seconds")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.05, 0.5), markerscale=0.5)
