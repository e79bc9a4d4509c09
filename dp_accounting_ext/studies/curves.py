"""Privacy profiles and trade-off curves, certified on both sides."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import io
import math
import textwrap
import time
from typing import Any

import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "MOST_POINTS",
    "STYLES",
    "Curve",
    "Curves",
    "plot",
    "profiles",
    "trade_offs",
    "true_positive_rates",
]
__dir__ = __all__.copy

_MOST_SHOWN = 9  # The most points of a curve that a table shows.
_LABELS = {
    "epsilon": "ε (nats)",
    "delta": "δ",
    "false_positive_rate": "false positive rate",
    "true_positive_rate": "true positive rate",
}

# Tuning: where profiles end. Each point is certified, whatever the ends are.
_END_OVER_FIRST = 100.0
_SMALLEST_END = 1e-3  # The end of profiles that are below the smallest δ everywhere.
_HIGHEST_LEVEL = 0.9
MOST_POINTS = 10_000

# Colours that colour-blind readers can distinguish (Okabe and Ito), and dashes, so that
# curves can be distinguished without colours. Marks stand for sizes of groups.
STYLES: dict[str, dict[str, Any]] = {
    training_run.RANDOM_ALLOCATION: {"color": "#0072B2", "linestyle": "-"},
    training_run.POISSON_SAMPLING: {"color": "#D55E00", "linestyle": "--"},
    training_run.NO_AMPLIFICATION: {"color": "#000000", "linestyle": ":"},
    training_run.SHUFFLED: {"color": "#009E73", "linestyle": "-."},
    training_run.BALLS_IN_BINS: {"color": "#CC79A7", "linestyle": "-"},
}
_MARKS = ("", "o", "s", "^", "v", "D", "*", "x")
_NOTE = "Certified: the truth is on the line, or in its shade."
_TITLE_LETTERS = 66
_BELOW_AXES = -0.45  # The distance below the axes at which their labels end, in inches.

Points = tuple[FloatArray, FloatArray, FloatArray]
Accountant = pld_accountant.PLDAccountant


@dataclasses.dataclass(frozen=True, repr=False)
class Curve(displays.Displayed):
    """Certified bounds on the curve of one run under one scheme.

    `pandas.DataFrame(curve.to_dict())` has a row for each point.

    Attributes:
        sampling: How batches are drawn.
        adjacency: "add or remove", or "replace".
        group_size: Number of records that are protected together.
        x_name: "epsilon", or "false_positive_rate".
        y_name: "delta", or "true_positive_rate", the largest rate of any test.
        x: (n,) values of ε in nats or of the rate, increasing.
        lower: (n,) lower bounds, monotone.
        upper: (n,) upper bounds, monotone.
        advantage: Bounds on the largest difference of a test's true positive rate and
            its false positive rate.
        seconds: CPU time of all points, in seconds.
    """

    sampling: str
    adjacency: str
    group_size: int
    x_name: str
    y_name: str
    x: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    advantage: tuple[float, float]
    seconds: float

    @property
    def label(self) -> str:
        """A label that distinguishes the curve from others."""
        name = self.sampling
        if self.group_size > 1:
            name += f", groups of {self.group_size}"
        return name + " (replaced)" * (self.adjacency == "replace")

    def table(self, max_points: int | None = None) -> displays.Table:
        """Returns a table of the points, with bounds rounded outwards.

        Args:
            max_points: The largest number of points in it, the first and the last among
                them; by default all.

        Raises:
            TypeError: If `max_points` is not an integer.
            ValueError: If it is less than one.
        """
        number = len(self.x)
        if max_points is not None:
            number = min(number, fields.positive_integer("max_points", max_points))
        rows = [
            (
                f"{self.x[at]:.7g}",
                decimals.rounded_down(self.lower[at]),
                decimals.rounded_up(self.upper[at]),
            )
            for at in np.linspace(0, len(self.x) - 1, number).astype(int).tolist()
        ]
        y = _LABELS[self.y_name]
        heads = _LABELS[self.x_name], f"{y}, lower", f"{y}, upper"
        title = f"{self.label}: {number} of {len(self.x)} points"
        notes = []
        if self.y_name == "true_positive_rate":
            low, high = self.advantage
            right = decimals.rounded_up(math.nextafter((1 + high) / 2, 1.0))
            ends = f"{decimals.rounded_down(low)} to {decimals.rounded_up(high)}"
            notes = [f"advantage {ends}: the best guess at even odds is right"]
            notes.append(f"with a probability of {right} at most")
        return displays.Table(title, heads, rows, notes, names=0)

    def _display(self) -> displays.Table:
        return self.table(_MOST_SHOWN)

    def _repr_html_(self) -> str:
        return Curves([self])._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, with x and the bounds under `x_name` and `y_name`."""
        cells = dataclasses.asdict(self)
        x_name, y_name = cells.pop("x_name"), cells.pop("y_name")
        cells[x_name] = list(cells.pop("x"))
        for side in ("lower", "upper"):
            cells[f"{y_name}_{side}"] = list(cells.pop(side))
        cells["advantage_lower"], cells["advantage_upper"] = cells.pop("advantage")
        return cells

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draws the upper bound as a line, and shades the area between the bounds.

        Args:
            ax: Axes of matplotlib; by default those of a new figure of pyplot.
            style: Options of the line, in place of the scheme's own.

        Returns:
            The axes, logarithmic, with a legend of all that was drawn on them.

        Raises:
            ModuleNotFoundError: If matplotlib is not installed.
        """
        ax = _axes_of(ax)
        self._draw(ax, **style)
        _explain(ax)
        return ax

    def _draw(self, ax: Any, **style: Any) -> None:
        marks = {"markevery": max(len(self.x) // 8, 1), "markersize": 4, "lw": 1.2}
        style = STYLES[self.sampling] | marks | {"label": self.label} | style
        # A logarithmic axis cannot show zero.
        line = np.where(np.array(self.upper) > 0, self.upper, np.nan)
        (drawn,) = ax.plot(self.x, line, **style)
        bottom = np.maximum(self.lower, 1e-300)
        ax.fill_between(
            self.x, bottom, self.upper, color=drawn.get_color(), alpha=0.2, lw=0
        )
        labels = {"xlabel": _LABELS[self.x_name], "ylabel": _LABELS[self.y_name]}
        ax.set(xscale="log", yscale="log", **labels)


class Curves(displays.Displayed, list[Curve]):
    """A list of curves, displayed in notebooks as a picture."""

    def _display(self) -> displays.Table:
        rows = []
        for curve in self:
            lower, upper = curve.advantage
            ends = decimals.rounded_down(lower), decimals.rounded_up(upper)
            rows.append((curve.label, str(len(curve.x)), *ends))
        heads = "curve", "points", "advantage, lower", "advantage, upper"
        title = "no curves"
        if self:
            title = f"{_LABELS[self[0].y_name]} over {_LABELS[self[0].x_name]}"
        return displays.Table(title, heads, rows)

    def _repr_html_(self) -> str:
        """Returns a picture; without matplotlib, tables."""
        try:
            import matplotlib
            from matplotlib import figure
        except ModuleNotFoundError:
            tables = [curve._display().html() for curve in self]
            return "".join([self._display().html(), *tables])
        if not self:
            return self._display().html()
        picture, file = figure.Figure(figsize=(7.2, 5.0)), io.StringIO()
        plot(self, picture.add_subplot())
        with matplotlib.rc_context({"svg.fonttype": "none"}):  # Keep text as text.
            picture.savefig(file, format="svg")
        drawn = file.getvalue()
        return drawn[drawn.index("<svg") :]


def plot(curves: Sequence[Curve], ax: Any = None, *, title: str = "") -> Any:
    """Draws curves on one pair of axes, with a legend below them.

    Colours and dashes stand for ways of drawing batches, marks for sizes of groups.

    Args:
        curves: One curve or more, all of the same kind.
        ax: As in `Curve.plot`. If its figure has no layout engine it gets a constrained
            layout, so that the legend is within the figure.
        title: The title, which is broken into lines if it is long.

    Returns:
        The axes.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    sizes = sorted({curve.group_size for curve in curves})
    ax = _axes_of(ax)
    for curve in curves:
        marker = _MARKS[sizes.index(curve.group_size) % len(_MARKS)]
        curve._draw(ax, marker=marker)
    if curves[0].y_name == "true_positive_rate":
        rates = curves[0].x
        ax.plot(rates, rates, color="#B9BEC6", lw=1, zorder=1, label="guessing")
        ax.set_ylim(top=1.0)
    else:
        # The last point of a profile is at its end, and may be far below the others.
        ends = [[y for y in curve.upper[:-1] if y > 0] for curve in curves]
        ax.set_ylim(min((end[-1] for end in ends if end), default=1e-300), 1.0)
    ax.set_title(textwrap.fill(title, _TITLE_LETTERS), fontsize="medium", loc="left")
    ax.grid(alpha=0.3)
    ax.spines[["right", "top"]].set_visible(False)
    _explain(ax)
    return ax


def _axes_of(ax: Any) -> Any:
    """Returns the given axes, or the axes of a new figure of pyplot."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _explain(ax: Any) -> None:
    """Puts a legend of two columns below the axes, and makes room for it."""
    from matplotlib import transforms

    whole = ax.figure.figure  # If it is a subfigure, this is the whole figure.
    if whole.get_layout_engine() is None:
        whole.set_layout_engine("constrained")
    below = transforms.ScaledTranslation(0, _BELOW_AXES, whole.dpi_scale_trans)
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        borderaxespad=0,
        ncols=2,
        columnspacing=1,
        frameon=False,
        fontsize="x-small",
        title=_NOTE,
        title_fontsize="x-small",
        alignment="left",
    )


def profiles(
    run: training_run.TrainingRun,
    *others: training_run.TrainingRun,
    epsilons: Sequence[float] | None = None,
    num_points: int = 61,
    progress: progress_of.Progress | None = None,
) -> Curves:
    """Returns δ as a function of ε of each run and scheme.

    Args:
        run: A run. If its `sampling` is given, only that scheme is computed. Its δ is
            the smallest one of interest: a profile ends once its upper bound is below.
        others: Further runs, for example with other sizes of groups.
        epsilons: Values of ε, in nats. By default each profile has its own grid, up to
            its end.
        num_points: The largest number of points of such a grid, at least 3.
        progress: Called after each curve with the number of curves that are done, and
            of all.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            a group is too large.
    """
    schemes = _schemes(run, *others)
    training_run.warn(run)
    smallest = training_run.given("delta", run.delta)
    number = _checked_number(num_points, 3)
    accountants = [item.accountant() for item in schemes]
    if epsilons is None:
        grids = list(_grids(accountants, smallest, number))
    else:
        grid = np.unique(fields.real_numbers("epsilons", list(epsilons)))
        if not grid.size or not 0 <= grid[0] <= grid[-1] < np.inf:
            raise ValueError(
                f"epsilons must be finite and not negative. Found {list(epsilons)}."
            )
        grids = [grid] * len(schemes)

    def points(accountant: Accountant, x: FloatArray) -> Points:
        lower, upper = accountant.get_delta_bounds(x)
        # A profile ends at the first point that is below the smallest δ.
        shown = slice(1 + int(np.argmax(np.append(upper, 0.0) < smallest)))
        # δ is nonincreasing in ε: a lower bound at one ε holds at every smaller ε, and
        # an upper bound at every larger one.
        lower = np.maximum.accumulate(lower[shown][::-1])[::-1]
        return x[shown], lower, np.minimum.accumulate(upper[shown])

    of_all = list(zip(schemes, accountants, grids, strict=True))
    return Curves(
        _curve("epsilon", "delta", points, *item)
        for item in progress_of.counted(of_all, progress)
    )


def trade_offs(
    run: training_run.TrainingRun,
    *others: training_run.TrainingRun,
    least_rate: float = 1e-6,
    num_points: int = 61,
    progress: progress_of.Progress | None = None,
) -> Curves:
    """Returns the trade-off curve of each run and scheme.

    The null hypothesis of a test is that the record is absent, or that it is present.
    At each false positive rate the bounds are on the larger of the two tests' rates.

    Args:
        run: As for `profiles`; its δ is not used.
        others: Further runs.
        least_rate: The least false positive rate, in [1e-200, 1).
        num_points: The number of rates, evenly spaced in logarithms, at least 2.
        progress: Called after each curve with the number of curves that are done, and
            of all.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range, or
            a group is too large.
    """
    smallest = fields.real_number("least_rate", least_rate)
    if not 1e-200 <= smallest < 1:
        raise ValueError(f"least_rate must be in [1e-200, 1). Found {least_rate}.")
    rates = np.geomspace(smallest, 1.0, _checked_number(num_points, 2))

    training_run.warn(run)
    names = "false_positive_rate", "true_positive_rate"
    return Curves(
        _curve(*names, true_positive_rates, way, way.accountant(), rates)
        for way in progress_of.counted(_schemes(run, *others), progress)
    )


def true_positive_rates(accountant: Accountant, rates: FloatArray) -> Points:
    """Returns points of a trade-off curve, without its advantage.

    Args:
        accountant: An accountant that has composed the run.
        rates: (n,) false positive rates, increasing.

    Returns:
        The rates, and monotone lower and upper bounds on the largest true positive rate
        of any test at each of them.
    """
    lower, upper = accountant.get_true_positive_rate_bounds(rates)
    # The largest true positive rate is nondecreasing in the false positive rate.
    upper = np.minimum.accumulate(upper[::-1])[::-1]
    return rates, np.maximum.accumulate(lower), upper


def _schemes(*runs: training_run.TrainingRun) -> list[training_run.TrainingRun]:
    return [way for run in runs for way in training_run.schemes_of(run)]


def _curve(
    x_name: str,
    y_name: str,
    points: Callable[[Accountant, FloatArray], Points],
    run: training_run.TrainingRun,
    accountant: Accountant,
    x: FloatArray,
) -> Curve:
    begin = time.process_time()
    x, lower, upper = points(accountant, x)
    return Curve(
        run.scheme,
        comparison.ADJACENCIES[run.neighboring_relation],
        run.group_size,
        x_name,
        y_name,
        tuple(x.tolist()),
        tuple(lower.tolist()),
        tuple(upper.tolist()),
        risk.advantage(accountant),
        time.process_time() - begin,
    )


def _checked_number(num_points: int, fewest: int) -> int:
    number = fields.positive_integer("num_points", num_points)
    if not fewest <= number <= MOST_POINTS:
        raise ValueError(
            f"num_points must be at least {fewest} and at most {MOST_POINTS}. "
            f"Found {num_points}."
        )
    return number


def _grids(
    accountants: Iterable[Accountant], smallest: float, number: int
) -> Iterator[FloatArray]:
    """Yields grids of ε that make smooth curves on logarithmic axes.

    Half of each is evenly spaced in logarithms of ε, where curves are flat, and half
    in logarithms of δ, where they fall. All begin at one ε.
    """
    half = (number + 1) // 2
    levels = np.geomspace(max(_HIGHEST_LEVEL, smallest), smallest, number - half + 1)
    falls = [curve.get_epsilon(levels) for curve in accountants]
    falls = [curve[np.isfinite(curve) & (curve > 0)] for curve in falls]
    shortest = min((curve[-1] for curve in falls if curve.size), default=_SMALLEST_END)
    first = shortest / _END_OVER_FIRST
    for fall in falls:
        end = fall[-1] if fall.size else shortest
        yield np.union1d(fall[fall > first], np.geomspace(first, end, half))
