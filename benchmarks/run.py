"""Measures the cases of `cases.py`, each in a process of its own, and judges them.

    python benchmarks/run.py [--short] [--only SECTION …] [--write]
    python benchmarks/run.py --random [--write]
    python benchmarks/run.py --one-of-t 40 --seed 40

Printed are the certified bounds, their relative gap, the CPU seconds of both, the
memory that they add, and what dp_accounting's accountant says and takes, where it is
asked. With --peers also PLD-accounting (the `benchmark` extra). With --write the tables
of docs/measurements.md are made anew; otherwise they are compared with what is found.
Exit status 1, with a line for each, if a case misses a goal: its bracket is wider than
the page's by more than `cases.WIDER`, with --write too; it is slower or larger than its
table allows; bounds cross or are not finite; ε is above dp_accounting's by more than
1e-4 of it, or dp_accounting's is below the certified lower bound; or the ratio to its
time is too small. Without --write also if a bound on the page is another one: then the
page is older than the code. Of random 1 of t steps three in 40 brackets may be wider
than 1e-4, and none wider than 5e-4.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import importlib
import itertools
import math
import multiprocessing
import pathlib
import resource
from typing import Any

import cases
import dp_accounting
import measured_with
import numpy as np
import timing

import dp_accounting_ext as ext

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "measurements.md"
TRIES = 3  # A case that is too slow is run again, as other work may have slowed it.
QUESTIONS = 50
SECONDS = 300.0  # A process that takes longer is stopped.
# Of random 1 of t steps: so few may be wider than that, and none than this.
WIDE, WIDE_SHARE, WIDEST = 1e-4, 3 / 40, 5e-4
FEW = 2e-3  # Seconds: what is faster on both sides is held to no ratio.
# The random settings of the page, and those of its widest brackets that the short form
# asks for again: which took at most so many seconds.
RANDOM, RANDOM_SEED = "Random settings", 22
NUMBER, QUICK = 60, 2.0
# A bound that moved by more, relatively, is another one than the page's; other versions
# of libraries move it by less.
STALE = 1e-4


@dataclasses.dataclass(frozen=True)
class Found:
    """What one process found.

    Attributes:
        lower: The certified lower bound, NaN where there is none.
        upper: The upper bound.
        first: CPU seconds of the first question, for the upper bound alone.
        seconds: CPU seconds of both bounds.
        work: The same over those of the yardstick.
        megabytes: What it added to the peak.
        later: CPU seconds of a later question.
    """

    lower: float
    upper: float
    first: float
    seconds: float
    work: float
    megabytes: float
    later: float = math.nan

    @property
    def gap(self) -> float:
        """(upper − lower) / upper; 0 where there is no lower bound."""
        if not self.upper or math.isnan(self.lower):
            return 0.0
        return (self.upper - self.lower) / self.upper


def asked(case: cases.Case, accountant: Any, bounds: str = "", by: float = 1.0) -> Any:
    """Returns the answer to a case's question, or to one `by` times as large."""
    if case.epsilon is None:
        return getattr(accountant, f"get_epsilon{bounds}")(case.delta * by)
    return getattr(accountant, f"get_delta{bounds}")(case.epsilon * by)


def answer(case: cases.Case, kind: Callable[..., Any]) -> Found:
    """Returns what an accountant says."""
    job = case.prepare and case.prepare()
    unit = min(timing.yardstick() for _ in range(3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = timing.Clock()
    if job is not None:
        ends = job()
        first = clock.seconds()
    elif case.target is not None:
        upper = dp_accounting.calibrate_dp_mechanism(
            functools.partial(kind, case.relation),
            case.event,
            case.target,
            case.delta,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(0.3, 1.0),
            tol=1e-5,
        )
        ends = (math.nan, upper)
        first = clock.seconds()
    else:
        accountant = kind(case.relation).compose(case.event, case.count)
        upper = float(asked(case, accountant))
        first = clock.seconds()
        ends = (math.nan, upper)
        if kind is ext.PLDAccountant:
            ends = asked(case, accountant, "_bounds")
    seconds, later = clock.seconds(), math.nan
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if case.again:
        clock = timing.Clock()
        for number in range(QUESTIONS):
            asked(case, accountant, by=1 + 1e-5 * (number + 1))
        later = clock.seconds() / QUESTIONS
    lower, upper = map(float, ends)
    work, added = seconds / unit, (after - before) / 1024
    return Found(lower, upper, first, seconds, work, added, later)


def peer(case: cases.Case) -> Found:
    """Returns what PLD-accounting, by the authors of paper 1, says of one of t."""
    import PLD_accounting

    setting = dict(
        delta=case.delta,
        sigma=case.event.event.noise_multiplier,
        num_steps=case.event.num_steps,
        num_epochs=case.count,
    )
    if PLD_accounting.has_numba():  # Its compilation is no part of its work.
        PLD_accounting.gaussian_allocation_epsilon_range(
            delta=1e-3, sigma=2.0, num_steps=5
        )
    clock = timing.Clock()
    ends = PLD_accounting.gaussian_allocation_epsilon_range(**setting)
    seconds = clock.seconds()
    return Found(min(ends), max(ends), seconds, seconds, math.nan, math.nan)


def apart(job: Callable[[], Found]) -> Found | None:
    """Returns what a job finds in a process of its own; None if it takes too long."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(job()))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else None
    except EOFError:  # It ended without an answer: its traceback is printed.
        return None
    finally:
        process.terminate()
        process.join()


@dataclasses.dataclass(frozen=True)
class Row:
    """A case, and what was found of it.

    Attributes:
        case: The question.
        ours: What this package found; None if it took too long.
        stock: What dp_accounting found, where it is asked.
        peer: What PLD-accounting found, where it is asked.
        page: The cells of the page's row of this case; none where it has no such row.
    """

    case: cases.Case
    ours: Found | None
    stock: Found | None = None
    peer: Found | None = None
    page: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def widest(self) -> float:
        """Returns the relative width that is allowed: infinite where none is known."""
        known = float(self.page.get("gap") or math.inf)
        return max(cases.WIDER * known, self.case.enough)

    def speed(self) -> float:
        """Returns dp_accounting's CPU time over ours; NaN where it was not asked."""
        if self.ours is None or self.stock is None:
            return math.nan
        if self.case.again:
            return self.stock.later / self.ours.later
        return self.stock.first / self.ours.first

    def missed(self) -> list[str]:
        """Returns a line for each goal that is missed."""
        case, ours, stock = self.case, self.ours, self.stock
        if ours is None:
            return [f"{case.name}: no answer"]
        lines = []
        if not math.isfinite(ours.upper) or ours.lower > ours.upper:
            lines.append(f"bounds are {ours.lower}, {ours.upper}")
        for what, found, most in (
            ("gap", ours.gap, self.widest()),
            ("yardsticks", ours.work, cases.SLOWER * case.work),
            ("MB", ours.megabytes, case.megabytes),
        ):
            if not found <= most:
                lines.append(f"{what} {found:.3g}, goal {most:.3g}")
        if stock is not None:
            if not ours.upper <= stock.upper * (1 + 1e-4):
                lines.append(f"{ours.upper:.9g} is above the stock's {stock.upper:.9g}")
            # The stock rounds sums of exact losses to nearest.
            if stock.upper < ours.lower * (1 - 1e-12):
                lines.append(f"the stock's {stock.upper:.9g} is below {ours.lower:.9g}")
            if max(stock.first, ours.first) > FEW and not self.speed() >= (
                case.ratio or 0.0
            ):
                lines.append(f"{self.speed():.2f} times as fast, goal {case.ratio:g}")
        return [f"{case.name}: {line}" for line in lines]

    def cells(self) -> dict[str, str]:
        """Returns the row's cells by their columns."""
        found, cells = self.ours, {"case": self.case.name}
        if found is None:
            return cells
        value = "δ" if self.case.epsilon is not None else "ε"
        if self.case.target is not None:
            cells["noise"] = f"{found.upper:.5f}"
        else:
            cells |= {"lower": f"{found.lower:.7g}", "upper": f"{found.upper:.7g}"}
            cells["gap"] = f"{found.gap:.1e}"
        cells["CPU s"] = f"{found.seconds:.2g}"
        cells["yardsticks"] = f"{found.work:.2g}"
        if self.case.again:
            cells = {"case": self.case.name, "ms": f"{1e3 * found.later:.2g}"}
        elif self.stock is None:
            cells["MB"] = f"{found.megabytes:.0f}"
        if self.stock is not None:
            if self.case.again:
                cells["dp_accounting: ms"] = f"{1e3 * self.stock.later:.2g}"
            else:
                name = "noise" if self.case.target is not None else value
                cells[f"dp_accounting: {name}"] = f"{self.stock.upper:.7g}"
                cells["its CPU s"] = f"{self.stock.first:.2g}"
            cells["ratio"] = f"{self.speed():.3g}"
        if self.peer is not None:
            cells["PLD-accounting: gap"] = f"{self.peer.gap:.1e}"
            cells["CPU s of it"] = f"{self.peer.seconds:.3g}"
        return cells


def measured(case: cases.Case, page: Mapping[str, str], *, peers: bool = False) -> Row:
    """Returns a case's row; the quickest of a few tries, where one misses a goal."""
    row = Row(case, None)
    for _ in range(TRIES):
        ours = apart(functools.partial(answer, case, ext.PLDAccountant))
        stock = None
        if case.ratio is not None:
            kind = dp_accounting.pld.PLDAccountant
            stock = apart(functools.partial(answer, case, kind))
        row = Row(case, ours, stock, page=page)
        if not row.missed():
            break
    one_of_t = isinstance(case.event, ext.RandomAllocationEvent)
    if peers and one_of_t and case.section == "Random allocation":
        row = dataclasses.replace(row, peer=apart(functools.partial(peer, case)))
    return row


def as_table(rows: Sequence[Row]) -> str:
    """Returns rows in Markdown, with the columns that any of them has."""
    cells = [row.cells() for row in rows]
    columns = dict.fromkeys(itertools.chain.from_iterable(cells))
    columns = [each for each in columns if each != "yardsticks"]
    lines = [columns, ["---"] * len(columns)]
    lines += [[each.get(column, "") for column in columns] for each in cells]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def of_random_cases(rows: Sequence[Row], seed: int) -> str:
    """Returns what random settings have in common, and the widest of them."""
    found = [row for row in rows if row.ours is not None]
    beside = [row for row in found if row.stock is not None]
    ratios = np.quantile([row.speed() for row in beside], [0, 0.25, 0.5, 1])
    low, quarter, half, high = (f"{ratio:.2g}" for ratio in ratios)
    looser = sum(r.ours.upper > r.stock.upper * (1 + 1e-4) for r in beside)
    drawn = [row for row in found if row.stock is None]
    widths = np.quantile([row.ours.gap for row in drawn], [0.5, 0.9, 1])
    median, most, largest = (f"{width:.1e}" for width in widths)
    widest = sorted(drawn, key=lambda row: -row.ours.gap)[:5]
    return (
        f"{len(rows)} settings were drawn with the seed {seed}; "
        f"{len(rows) - len(found)} of them have no answer. dp_accounting supports "
        f"{len(beside)} of them. There a first ε is {low} to {high} times as fast as "
        f"dp_accounting's: less than {quarter} times for a quarter of these settings, "
        f"and less than {half} times for half of them. {looser} bounds are looser. The "
        f"gaps of the {len(drawn)} random allocations have the median {median}. Nine "
        f"tenths are below {most}, and the largest is {largest}. The widest brackets:"
        f"\n\n"
        f"{as_table(widest)}"
    )


def widths_missed(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each goal of random 1 of t steps that is missed."""
    gaps = [row.ours.gap if row.ours else math.inf for row in rows]
    wide, allowed = sum(gap > WIDE for gap in gaps), WIDE_SHARE * len(gaps)
    print(
        f"{wide} of {len(gaps)} are wider than {WIDE:g}; the median is "
        f"{np.median(gaps):.1e}, the widest {max(gaps):.1e}"
    )
    lines = []
    if wide > allowed:
        lines.append(f"{wide} of {len(gaps)} are wider than {WIDE:g}")
    if max(gaps) > WIDEST:
        lines.append(f"the widest is {max(gaps):.1e}, goal {WIDEST:g}")
    return lines


def write(sections: dict[str, str]) -> None:
    """Puts sections in their places on the page, the measured ones first."""
    top, *parts = PAGE.read_text(encoding="utf-8").rstrip("\n").split("\n## ")
    page = dict(part.split("\n", 1) for part in parts)
    page |= {name: f"\n{text}\n" for name, text in sections.items()}
    order = [*cases.INTRODUCTIONS, RANDOM]
    names = [name for name in order if name in page]
    page = {name: page[name] for name in [*names, *page]}
    top = top.partition("\n\nMeasured with ")[0].rstrip()
    top += f"\n\nMeasured with {measured_with.versions('PLD-accounting')}."
    body = "".join(f"\n\n## {name}\n\n{text.strip()}" for name, text in page.items())
    PAGE.write_text(f"{top.rstrip()}{body}\n", encoding="utf-8")


def stale(row: Row) -> list[str]:
    """Returns a line for each bound that is another one on the page."""
    now, cells = row.cells(), row.page
    return [
        f"{row.case.name}: the page has {name} {cells[name]}, measured is {now[name]}"
        for name in ("lower", "upper", "noise")
        if cells.get(name)
        and name in now
        and not math.isclose(float(cells[name]), float(now[name]), rel_tol=STALE)
    ]


def rows_of(page: str) -> dict[tuple[str, str], dict[str, str]]:
    """Returns the cells of a page's tables by section, case and column."""
    found = {}
    for part in page.split("\n## ")[1:]:
        section, text = part.split("\n", 1)
        lines = [line[1:-1].split("|") for line in text.splitlines() if line[:1] == "|"]
        for line in lines[2:]:
            found[section, line[0]] = dict(zip(lines[0], line, strict=True))
    return found


def widest_random(known: Mapping[tuple[str, str], dict[str, str]]) -> list[cases.Case]:
    """Returns the random settings that have a row on the page."""
    return [
        dataclasses.replace(
            case,
            section=RANDOM,
            short=float(known[RANDOM, case.name]["CPU s"]) <= QUICK,
        )
        for case in cases.random_cases(NUMBER, RANDOM_SEED)
        if (RANDOM, case.name) in known
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measures and judges the accountant.")
    parser.add_argument("--short", action="store_true", help="a minute's worth")
    parser.add_argument("--only", nargs="+", choices=cases.INTRODUCTIONS)
    parser.add_argument("--random", action="store_true", help="random settings")
    parser.add_argument("--one-of-t", type=int, metavar="N", help="their widths")
    parser.add_argument("--seed", type=int, default=RANDOM_SEED)
    parser.add_argument("--peers", action="store_true", help="beside PLD-accounting")
    words = f"make the tables of {PAGE.name} anew"
    parser.add_argument("--write", action="store_true", help=words)
    options = parser.parse_args(arguments)
    known = rows_of(PAGE.read_text("utf-8"))
    chosen = [*cases.every_case(), *widest_random(known)]
    if options.random:
        chosen = list(cases.random_cases(NUMBER, options.seed))
    if options.one_of_t:
        chosen = list(cases.random_allocations(options.one_of_t, options.seed))
    chosen = [
        case
        for case in chosen
        if (case.short or not options.short)
        and (not options.only or case.section in options.only)
    ]
    order = list(dict.fromkeys(case.section for case in chosen))
    chosen.sort(key=lambda case: order.index(case.section))
    print(measured_with.versions("PLD-accounting"))
    # What is imported late is imported before anything is timed.
    ext.PLDAccountant().compose(cases.sampled_gaussian(0.3, 7.0)).get_epsilon(1e-3)
    with contextlib.suppress(ImportError):
        importlib.import_module("ot")
    missed, commit = [], measured_with.commit()
    for section, group in itertools.groupby(chosen, lambda case: case.section):
        print(f"\n{section}")
        rows = []
        for case in group:
            page = known.get((section, case.name), {})
            row = measured(case, page, peers=options.peers)
            rows.append(row)
            missed += row.missed()
            missed += [] if options.write else stale(row)
            print(" | ".join(f"{k} {v}" for k, v in row.cells().items()), flush=True)
        if options.one_of_t:
            missed += widths_missed(rows)
        text = f"{cases.INTRODUCTIONS.get(section)}\n\n{as_table(rows)}"
        if options.random:
            section, text = RANDOM, of_random_cases(rows, options.seed)
            print(text)
        if options.write and (options.random or section != RANDOM):
            dated = f"{text}\n\nMeasured at commit {commit}." if commit else text
            write({section: dated})
    for line in missed:
        print(f"MISSED {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
