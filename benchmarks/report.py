"""The tables: one per workload, a line for each figure and each engine it stands beside."""

import statistics
from dataclasses import dataclass

from benchmarks.common import Values
from benchmarks.plan import Metric, Workload, ours

Results = dict[tuple[str, str], list[Values]]  # (engine, job) -> one entry per repeat


@dataclass(frozen=True)
class Line:
    """A comparison, or a figure that stands alone (then `beside` is empty)."""

    metric: str
    unit: str
    ours: list[float]
    beside: str
    theirs: list[float]
    ratios: list[float]
    target: float | None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def _turns(self) -> list[bool]:
        """Whether the target was met, turn by turn; empty when there is none."""
        if self.at_most is not None:
            return [figure <= self.at_most for figure in self.ours]
        if self.at_least is not None:
            return [figure >= self.at_least for figure in self.ours]
        if self.target is not None:
            return [ratio >= self.target for ratio in self.ratios]
        return []

    @property
    def is_met(self) -> bool | None:
        """By the median."""
        if self.at_most is not None:
            return statistics.median(self.ours) <= self.at_most
        if self.at_least is not None:
            return statistics.median(self.ours) >= self.at_least
        if self.target is None or not self.ratios:
            return None
        return statistics.median(self.ratios) >= self.target

    @property
    def verdict(self) -> str:
        """Met or not; and whether all turns agree."""
        if self.is_met is None:
            return ""
        said = "met" if self.is_met else "NOT MET"
        return said if len(set(self._turns)) == 1 else f"{said}, but not in every turn"

    @property
    def _asked(self) -> str:
        if self.at_most is not None:
            return f"<= {_number(self.at_most)} {self.unit}"
        if self.at_least is not None:
            return f">= {_number(self.at_least)} {self.unit}"
        return "-" if self.target is None else f">= {self.target:.2f}x"

    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.metric}, {self.unit}",
            _spread(self.ours),
            self.beside or "-",
            _spread(self.theirs),
            _spread(self.ratios, "x"),
            self._asked,
            self.verdict,
        )


def lines(workload: Workload, results: Results, *, quick: bool) -> list[Line]:
    made: list[Line] = []
    for metric in workload.metrics:
        mine = _figures(results, ours, metric)
        if not mine:
            continue
        label = metric.label.format(size=f"{_size(workload, metric, quick=quick):,}")
        beside = [
            (engine, figures, target)
            for engine, target in metric.targets.items()
            if (figures := _figures(results, engine, metric))
        ]
        stands_alone = metric.at_most is not None or metric.at_least is not None
        if not beside or stands_alone:
            asked = (metric.at_most, metric.at_least)
            made.append(Line(label, metric.unit, mine, "", [], [], None, *asked))
        for engine, figures, target in beside:
            ratios = [_ratio(a, b, metric) for a, b in zip(mine, figures, strict=False)]
            made.append(Line(label, metric.unit, mine, engine, figures, ratios, target))
        if metric.quoted is not None and not quick:  # it is of the full size
            cited = metric.quoted.figure
            ratios = [_ratio(figure, cited, metric) for figure in mine]
            engine = metric.quoted.engine
            made.append(Line(label, metric.unit, mine, engine, [cited], ratios, None))
    return made


def _size(workload: Workload, metric: Metric, *, quick: bool) -> int:
    (job,) = [one for one in workload.jobs if (one.engine, one.name) == (ours, metric.job)]
    return job.quick if quick else job.full


def _figures(results: Results, engine: str, metric: Metric) -> list[float]:
    return [values[metric.key] for values in results.get((engine, metric.job), [])]


def _ratio(mine: float, theirs: float, metric: Metric) -> float:
    """Of two figures taken one after the other; above 1 in our favour."""
    above, below = (theirs, mine) if metric.less_is_better else (mine, theirs)
    return above / below if below else float("inf")


def table(workload: Workload, results: Results, *, quick: bool) -> str:
    found = lines(workload, results, quick=quick)
    if not found:
        return f"{workload.name}  {workload.title}\n"
    rows: list[tuple[str, ...]] = [("", "ours", "beside", "theirs", "ratio", "target", "")]
    rows += [line.cells() for line in found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = [f"{workload.name}  {workload.title}", ""]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        text.append("  " + "  ".join(cells).rstrip())
    if workload.note and not quick:
        text.append(f"  {workload.note}")
    return "\n".join(text)


def _spread(figures: list[float], suffix: str = "") -> str:
    """Median (low .. high)."""
    if not figures:
        return "-"
    middle = f"{_number(statistics.median(figures))}{suffix}"
    if len(figures) == 1:
        return middle
    return f"{middle} ({_number(min(figures))} .. {_number(max(figures))})"


def _number(value: float) -> str:
    if value < 0:
        return f"-{_number(-value)}"
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def odd_rows(results: Results) -> list[str]:
    """Where a bare loop did not write the rows that the engine wrote: then it is no measure of it."""
    found: list[str] = []
    for (engine, job), repeats in results.items():
        mine = results.get((ours, job))
        if not engine.startswith("bare") or not mine:
            continue
        found += [
            f"{engine} {job}: {key} {repeats[0].get(key)}, not {mine[0].get(key)}"
            for key in repeats[0]
            if key.startswith("rows.") and mine[0].get(key) != repeats[0].get(key)
        ]
        a, b = mine[0].get("file_mb", 0.0), repeats[0].get("file_mb", 0.0)
        if abs(a - b) > 0.1 * a:
            found.append(f"{engine} {job}: a file of {b:.2f} MB, where the engine's has {a:.2f} MB")
    return found
