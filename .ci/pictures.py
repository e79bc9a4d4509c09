"""Makes the pictures of docs and the tables beside them; tells which are stale.

    python .ci/pictures.py [--only NAME ...]   makes them anew: ten CPU minutes for all
    python .ci/pictures.py --check             exit status 1 if one is stale
    python .ci/pictures.py --check --whole     the same by all numbers: ten minutes

Beside each picture and table `.ci/pictures.json` keeps the numbers that it shows, and
those of a small setting of the same kind, its twin, which is computed in a second. What
is shown is stale if the code gives other numbers for the twin, if the picture's file
is another one, or if the page's table has other cells. `.ci/run` checks this.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import importlib.util
import json
import math
import pathlib
import sys
import time
from typing import Any

import dp_accounting
import numpy as np
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext import wpm
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
RECORD = ROOT / ".ci" / "pictures.json"
sys.path.insert(0, str(ROOT / "benchmarks"))
_DIGITS = 6  # Of recorded numbers.
_KEPT = 8  # Points of a curve of which the record keeps the numbers, about.

Numbers = Mapping[str, float]


def _example(name: str) -> Any:
    """Returns a script of docs/examples as a module."""
    path = DOCS / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} must be a script of Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclasses.dataclass(frozen=True)
class Made:
    """What was computed for a picture or a table.

    Attributes:
        numbers: By what they are of.
        save: Writes the picture to a file; None where there is none.
        rows: Of the table, if there is one.
    """

    numbers: Numbers
    save: Callable[[pathlib.Path], None] | None = None
    rows: Sequence[Sequence[str]] = ()


@dataclasses.dataclass(frozen=True)
class Shown:
    """A picture of docs, a table, or both.

    Attributes:
        make: Computes it; of the small twin where the argument is true.
        picture: Name of the file in docs.
        page: Name of the page with the table.
        head: With it the table's first line begins.
        tolerance: How far numbers may be from those that were recorded, relatively:
            other versions of libraries round otherwise.
    """

    make: Callable[[bool], Made]
    picture: str = ""
    page: str = ""
    head: str = ""
    tolerance: float = 1e-3


def _of_curves(found: Sequence[curves.Curve]) -> Numbers:
    numbers = {}
    for curve in found:
        for at in range(0, len(curve.x), max(1, len(curve.x) // _KEPT)):
            point = f"{curve.label}, point {at}"
            numbers[f"{point}, {curve.x_name}"] = curve.x[at]
            numbers[f"{point}, lower"] = curve.lower[at]
            numbers[f"{point}, upper"] = curve.upper[at]
    return numbers


def _profile(small: bool) -> Made:
    """δ over ε of groups, as the command on the page draws it."""
    run = training_run.TrainingRun(
        noise_multiplier=1.0, steps_per_epoch=1000, epochs=10, delta=1e-12
    )
    sizes = (1, 4, 16)
    if small:
        run = dataclasses.replace(run, steps_per_epoch=4, epochs=1)
        sizes = (1, 3, 9)
    runs = [dataclasses.replace(run, group_size=size) for size in sizes]
    found = curves.profiles(*runs, num_points=3 if small else 81)

    def save(path: pathlib.Path) -> None:
        from matplotlib import figure

        whole = figure.Figure(figsize=(8.0, 5.2), layout="constrained")
        title = f"δ(ε), noise multiplier 1, {run.in_words}"
        curves.plot(found, whole.add_subplot(), title=title)
        whole.savefig(path, dpi=150)

    return Made(_of_curves(found), save)


def _trade_off(small: bool) -> Made:
    """What an attacker's tests can reach."""
    gallery = _example("gallery")
    found = curves.trade_offs(gallery.RUN, num_points=4 if small else 61)
    return Made(_of_curves(found), _saved(lambda: gallery.trade_off(found)))


def _calibration(small: bool) -> Made:
    """The least noise for ε."""
    gallery = _example("gallery")
    found = gallery.noises(2 if small else 22)
    numbers = {
        f"{row.sampling}, ε = {epsilon:.6g}": row.noise_multiplier
        for epsilon, rows in found.items()
        for row in rows
    }
    return Made(numbers, _saved(lambda: gallery.noise_for_a_target(found)))


def _saved(figure: Callable[[], Any]) -> Callable[[pathlib.Path], None]:
    return lambda path: figure().savefig(path, dpi=150)


def _ring(small: bool) -> Made:
    """Laws of a draw on a ring, and the convergence of Algorithm 1."""
    from papers import picture
    from papers import ring

    passes = ring.PASSES[:5] if small else ring.PASSES
    made = ring.figure_1(passes=passes)
    numbers = {
        f"{panel.title}, {curve.label}, {x:g}": y
        for panel in made.panels
        for curve in panel.curves
        for x, y in zip(curve.x, curve.upper, strict=True)
    }
    return Made(numbers, functools.partial(picture.draw, made))


def _map(small: bool) -> Made:
    """Where phones are, and their private draws."""
    places = _example("private_places")
    options = places.parsed(["--users", "20" if small else "200", "--seed", "1"])
    city, traces = places.make_city(np.random.default_rng(0), options.users)
    mechanism = wpm.from_points(city, options.epsilon, metric="haversine")
    before, after = places.released(city, traces, mechanism, options.seed)
    expected = mechanism.expected_cost()
    numbers = {
        "mean distance": expected.average,
        "largest distance": expected.worst,
        "likeliest place": expected.most_likely,
    }
    for name, shares in (("before", before), ("after", after)):
        north, east = (shares @ city - places.CENTRE) * places.SCALE
        numbers |= {f"north {name}": float(north), f"east {name}": float(east)}

    def save(path: pathlib.Path) -> None:
        options.picture = path
        places.draw(city, before, after, options)

    return Made(numbers, save)


def _lattice(small: bool) -> Made:
    """How an atom moves, what that does to a profile, and where nodes are."""
    step = 1.0  # Nats. A true lattice has cells a thousand times as narrow.
    losses = np.linspace(-1, 4, 4 if small else 501)
    nodes = np.arange(-6, 8) * step
    # One run of a Gaussian mechanism with σ = 1: its losses are N(1/2, 1) under P.
    truth = _gaussian_delta(losses)
    # Between nodes an upper profile is a line in e^ε. A lower one is that of the
    # merged cells, each at the mean of its ratios.
    upper = np.interp(np.exp(losses), np.exp(nodes), _gaussian_delta(nodes))
    of_p = np.diff(special.ndtr(nodes - 0.5))
    of_q = np.diff(special.ndtr(nodes + 0.5))
    kept = np.maximum(of_p - np.multiply.outer(np.exp(losses), of_q), 0)
    lower = kept.sum(axis=1)
    numbers = {
        f"{kind} at {losses[at]:g}": float(curve[at])
        for kind, curve in {"truth": truth, "upper": upper, "lower": lower}.items()
        for at in range(0, losses.size, max(1, losses.size // _KEPT))
    }

    def save(path: pathlib.Path) -> None:
        from matplotlib import figure

        whole = figure.Figure(figsize=(9.6, 3.4), layout="constrained")
        moved, read, placed = whole.subplots(1, 3, width_ratios=(1, 1.3, 1))
        _draw_moves(moved)
        read.plot(losses, upper, "C1", label="upper law")
        read.plot(losses, truth, "k:", label="truth")
        read.plot(losses, lower, "C0", label="lower law")
        read.set(xlabel="ε (nats)", ylabel="δ", ylim=(0, 0.7), xlim=(-1, 4))
        read.set_title("The profiles of both", fontsize="medium")
        read.legend(frameon=False, fontsize="small")
        _draw_levels(placed)
        for axes in (moved, read, placed):
            axes.spines[["top", "right"]].set_visible(False)
        whole.savefig(path, dpi=150)

    return Made(numbers, save)


def _gaussian_delta(epsilon: Any) -> Any:
    """Returns δ at each ε of one run of a Gaussian mechanism with σ = 1."""
    missed = np.exp(epsilon) * special.ndtr(-0.5 - epsilon)
    return special.ndtr(0.5 - epsilon) - missed


def _draw_moves(axes: Any) -> None:
    """An atom that is split between its two nodes, and two that are merged."""
    share = math.expm1(-0.6) / math.expm1(-1.0)
    rows = {
        "upper: split": (1.4, [(1.6, 1.0)], [(1.0, 1 - share), (2.0, share)], "C1"),
        "lower: merged": (0.0, [(1.2, 0.5), (1.7, 0.5)], [(1.45, 1.0)], "C0"),
    }
    for name, (height, before, after, colour) in rows.items():
        axes.axhline(height, color="0.8", lw=0.8)
        for place, mass in before:
            axes.vlines(place, height, height + mass, color="k", linestyles="dotted")
            axes.plot(place, height + mass, "ko", mfc="white", ms=5)
        for place, mass in after:
            axes.vlines(place, height, height + mass, color=colour, lw=3)
            axes.plot(place, height + mass, "o", color=colour, ms=5)
        axes.text(0.55, height + 1.08, name, fontsize="small", color=colour)
    axes.set(xlim=(0.5, 2.5), ylim=(0, 2.75), yticks=[], xlabel="loss")
    axes.set_xticks([1, 2], ["node", "node"])
    axes.set_title("What happens to atoms", fontsize="medium")


def _draw_levels(axes: Any) -> None:
    """Nodes, whose distance doubles where that from the middle does."""
    reach = 8
    for level in range(4):
        width = 2**level
        nodes = np.arange(-reach, reach + 1) * width
        inner = reach * width / 2 if level else -1
        nodes = nodes[np.abs(nodes) >= inner]
        axes.vlines(nodes, level + 0.1, level + 0.9, color=f"C{level}", lw=1)
    axes.set(xlabel="distance from the middle")
    axes.set(yticks=np.arange(4) + 0.5, yticklabels=["0", "1", "2", "3"])
    axes.set(ylabel="level")
    axes.set_title("Where nodes are", fontsize="medium")


def _bands(small: bool) -> Made:
    """Certified ε against the number of bands, and the error of prefix sums."""
    strategies = _example("matrix_mechanism")
    if small:
        found = [strategies.row_of(4, bins=16, epochs=2)]
    else:
        found = [strategies.row_of(bands) for bands in strategies.BANDS]
    numbers, rows = {}, []
    for row in found:
        low, high = row.bins
        numbers[f"{row.bands} bands, error"] = row.error
        for way, ends in row.brackets.items():
            numbers[f"{row.bands} bands, {way}, lower"] = ends[0]
            numbers[f"{row.bands} bands, {way}, upper"] = ends[1]
        # As without correlation, the first row is one number.
        cell = _bracket(low, high) if row.bands > 1 else _up(high)
        rows.append([str(row.bands), cell, _up(row.poisson), f"{row.error:.0f}"])

    def save(path: pathlib.Path) -> None:
        strategies.draw(found, str(path))

    return Made(numbers, save, rows)


def _sampled(small: bool) -> Made:
    """Certified brackets of matrix mechanisms beside those by sampling."""
    strategies = _example("matrix_mechanism")
    settings = [(4, 100, 10, 2.0, 1e-5), (16, 128, 10, 2.0, 1e-5)]
    settings += [(8, 1024, 4, 1.0, 1e-6)]
    named = {
        f"{p}, {b}, {k}, {noise:g}, {_power(delta)}": (
            ext.MatrixAllocationEvent(strategies.column_of(p), noise, b, k),
            delta,
        )
        for p, b, k, noise, delta in settings
    }
    column = np.array([1, 1 / 2, 1 / 4, 1 / 8])
    column /= np.linalg.norm(column)
    above = ext.MatrixAllocationEvent(column, 3.3437, 10, 10)
    named["the example above"] = above, 1e-2
    if small:
        named = {"twin": (ext.MatrixAllocationEvent(column, 3.3437, 8, 4), 1e-2)}
    numbers, rows = {}, []
    for name, (event, delta) in named.items():
        begin = time.process_time()
        accountant = ext.PLDAccountant().compose(event)
        low, high = accountant.get_epsilon_bounds(delta)
        seconds = time.process_time() - begin
        begin = time.process_time()
        drawn = ext.certify_by_sampling(event, delta, seed=1)
        drawing = time.process_time() - begin
        kinds = {"lower": low, "upper": high, "sampled lower": drawn.lower}
        kinds |= {"sampled upper": drawn.remove_upper, "ADD": drawn.add_upper}
        numbers |= {f"{name}, {kind}": each for kind, each in kinds.items()}
        brackets = [
            f"{_bracket(*ends)} ({100 * (1 - ends[0] / ends[1]):.2g} %)"
            for ends in ((low, high), (drawn.lower, drawn.remove_upper))
        ]
        cells = [brackets[0], f"{seconds:.2g}", brackets[1], _power(drawn.samples)]
        rows.append([name, *cells, f"{drawing:.2g}", _up(drawn.add_upper)])
    return Made(numbers, rows=rows)


def _filters(small: bool) -> Made:
    """How many runs fit into a budget that is planned, and into filters."""
    gaussian, laplace = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
    sampled = dp_accounting.PoissonSampledDpEvent
    named = {
        "Gaussian noise, σ = 50": gaussian(50.0),
        "Laplace noise, scale 50": laplace(50.0),
        "Poisson samples, q = 0.01, σ = 2": sampled(0.01, gaussian(2.0)),
        "Poisson samples, q = 0.01, σ = 1": sampled(0.01, gaussian(1.0)),
    }
    if small:
        named = dict([named.popitem()])
    budget = 2.0, 1e-6
    orders = [(order,) for order in np.geomspace(7.7, 40, 80).tolist()]
    numbers, rows = {}, []
    for name, event in named.items():
        kinds = {
            "planned": ext.budget.remaining(ext.PLDAccountant(), event, *budget),
            "Rényi": _most(ext.budget.RenyiFilter(*budget), event),
            "best order": max(
                _most(ext.budget.RenyiFilter(*budget, orders=each), event)
                for each in orders
            ),
        }
        if isinstance(event, gaussian):
            kinds["Gaussian"] = _most(ext.budget.GaussianFilter(*budget), event)
        numbers |= {f"{name}, {kind}": each for kind, each in kinds.items()}
        order = ("planned", "Gaussian", "Rényi", "best order")
        rows.append([name, *(str(kinds.get(kind, "")) for kind in order)])
    return Made(numbers, rows=rows)


def _most(spent: Any, event: dp_accounting.DpEvent) -> int:
    """Returns how many runs of an event fit into a filter of which nothing is spent."""
    fits, too_many = 0, 1
    while spent.may_run(event, too_many):
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if spent.may_run(event, middle):
            fits = middle
        else:
            too_many = middle
    return fits


def _up(value: float) -> str:
    return decimals.rounded_up(value, 4)


def _bracket(low: float, high: float) -> str:
    return f"{decimals.rounded_down(low, 4)} to {_up(high)}"


def _power(value: float) -> str:
    """Returns a number as 1e-5, or 3.1e4."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


SHOWN = {
    "profile": Shown(_profile, "profile.png", tolerance=0.01),
    "trade_off": Shown(_trade_off, "trade_off.png"),
    "calibration": Shown(_calibration, "calibration.png"),
    "ring": Shown(_ring, "wpm_ring.png"),
    "map": Shown(_map, "map.png"),
    "lattice": Shown(_lattice, "lattice.png"),
    "bands": Shown(
        _bands, "matrix_bands.png", "matrix.md", "|bands|balls in bins|cyclic Poisson|"
    ),
    "sampled": Shown(_sampled, page="matrix.md", head="|p, b, k, σ, δ|certified"),
    "filters": Shown(_filters, page="risk.md", head="|event|planned: `remaining`|"),
}


def _table(page: str, head: str) -> tuple[str, str, str]:
    """Returns a page before the rows of a table, these rows, and what is after them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    begins = [at for at in range(len(text)) if text.startswith(f"\n{head}", at)]
    if len(begins) != 1:
        raise ValueError(
            f"{page} must have one table that begins with {head}. Found {len(begins)}."
        )
    lines = text[begins[0] + 1 :].splitlines(keepends=True)
    end = next((n for n, line in enumerate(lines) if line[0] != "|"), len(lines))
    before = text[: begins[0] + 1] + "".join(lines[:2])
    return before, "".join(lines[2:end]), "".join(lines[end:])


def _in_markdown(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"|{'|'.join(row)}|\n" for row in rows)


def make(name: str) -> dict[str, Any]:
    """Makes a picture or a table anew; returns what is recorded of it."""
    shown = SHOWN[name]
    made = shown.make(False)
    recorded: dict[str, Any] = {
        "twin": _rounded(shown.make(True).numbers),
        "numbers": _rounded(made.numbers),
    }
    if shown.picture and made.save is not None:
        path = DOCS / shown.picture
        made.save(path)
        recorded["file"] = hashlib.sha256(path.read_bytes()).hexdigest()
    if shown.page:
        recorded["rows"] = made.rows
        before, _, after = _table(shown.page, shown.head)
        page = before + _in_markdown(made.rows) + after
        (DOCS / shown.page).write_text(page, encoding="utf-8")
    return recorded


def _rounded(numbers: Numbers) -> Numbers:
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in numbers.items()}


def stale(name: str, recorded: Mapping[str, Any], *, whole: bool) -> list[str]:
    """Returns in which way what is shown is older than the code; mostly nothing.

    Args:
        name: A key of `SHOWN`.
        recorded: What `make` returned.
        whole: Whether all of its numbers are computed, or those of the twin.
    """
    shown, found = SHOWN[name], []
    kind = "numbers" if whole else "twin"
    now, then = shown.make(not whole).numbers, recorded[kind]
    if now.keys() != then.keys():
        found.append(f"it has other numbers: {sorted(now.keys() ^ then.keys())[:3]}")
    for label in now.keys() & then.keys():
        if not math.isclose(now[label], then[label], rel_tol=shown.tolerance):
            found.append(f"{label} is {now[label]:.6g} now, and was {then[label]:g}")
    if shown.picture:
        file = (DOCS / shown.picture).read_bytes()
        if hashlib.sha256(file).hexdigest() != recorded["file"]:
            found.append(f"docs/{shown.picture} is not the file that was made")
    if shown.page:
        _, cells, _ = _table(shown.page, shown.head)
        if cells != _in_markdown(recorded["rows"]):
            found.append(f"the table of docs/{shown.page} is not the one that was made")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes what is asked for, or checks it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Pictures and tables of docs.")
    parser.add_argument("--only", nargs="+", choices=SHOWN, default=[*SHOWN])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--whole", action="store_true", help="check all numbers")
    options = parser.parse_args(arguments)
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    status = 0
    for name in options.only:
        begin = time.process_time()
        if options.check:
            missing = ["it was never made"]
            known = record.get(name)
            found = stale(name, known, whole=options.whole) if known else missing
            for words in found:
                print(f"{name} is stale: {words}.", flush=True)
            status |= bool(found)
        else:
            record[name] = make(name)
            text = json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True)
            RECORD.write_text(f"{text}\n", encoding="utf-8")
        print(f"{name}: {time.process_time() - begin:.1f} CPU s", flush=True)
    if status:
        print("Make it anew: python .ci/pictures.py --only NAME, then look at it.")
    return status


if __name__ == "__main__":
    sys.exit(main())
