"""Asks an older revision and this one the same random questions, side by side.

    python .ci/beside.py [REVISION] [--settings 1000] [--seed 1] [--kinds "k of t,bins"]
    python .ci/beside.py [REVISION] --ledger

REVISION is the last commit of a week ago by default. The settings are of every kind
that users ask for, drawn at random or those of `ledger.py`. For each of them both
revisions bound ε, each in a process of its own, and measure the CPU time. The script
prints settings whose brackets do not meet, that are refused now only, or are much wider
or slower now; and the medians of each kind. It ends with status 3 if brackets do not
meet, or a setting is refused now only.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
# What is printed: brackets so many times as wide, or as slow if they take longer than
# the last number, in seconds.
WIDER, SLOWER, SECONDS = 1.25, 2.0, 0.3
# What is added to both times, in seconds, as the clock is coarse.
CLOCK = 1e-3
# How long one question may take, in seconds of CPU time.
LONGEST = 120
WORKER = """
import json, resource, signal, sys, time, warnings
import dp_accounting
from dp_accounting import dp_event as stock
import dp_accounting_ext as ext

def late(*_):
    raise TimeoutError("it takes too long")

warnings.simplefilter("ignore")
signal.signal(signal.SIGPROF, late)
ext.PLDAccountant().compose(stock.GaussianDpEvent(1.0)).get_epsilon_bounds(1e-5)
for line in sys.stdin:
    setting = json.loads(line)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        relation = dp_accounting.NeighboringRelation[setting["relation"]]
        event = eval(setting["event"])
        found = ext.PLDAccountant(relation).compose(event).get_epsilon_bounds(
            setting["delta"]
        )
        answer = {"bounds": [float(bound) for bound in found]}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:150]}
    signal.setitimer(signal.ITIMER_PROF, 0)
    answer["seconds"] = time.process_time() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer["megabytes"] = used.ru_maxrss / 1e3
    print(json.dumps(answer), flush=True)
""".replace("LONGEST", str(LONGEST))


@dataclasses.dataclass(frozen=True)
class Setting:
    """One question."""

    kind: str
    event: str
    delta: float
    relation: str = "ADD_OR_REMOVE_ONE"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a revision answers: its bounds, or the error that it raises."""

    seconds: float
    bounds: tuple[float, float] | None = None
    error: str = ""
    megabytes: float = 0.0

    @property
    def width(self) -> float:
        """The width of the bracket over the upper bound."""
        if self.bounds is None or self.bounds[1] == 0:
            return 0.0
        lower, upper = self.bounds
        return 1.0 if upper == math.inf else (upper - lower) / upper


class Dice:
    """Draws the parameters of settings."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def log(self, low: float, high: float) -> float:
        """A number of three digits from a logarithmic scale."""
        exponent = self._generator.uniform(math.log(low), math.log(high))
        return float(f"{math.exp(exponent):.3g}")

    def whole(self, low: int, high: int) -> int:
        """A whole number from a logarithmic scale."""
        return min(max(round(self.log(low, high + 0.4)), low), high)

    def one_of(self, *choices: str) -> str:
        """One of several texts."""
        return choices[int(self._generator.integers(len(choices)))]

    def noise(self) -> str:
        """A mechanism, most often a Gaussian one."""
        sigma = self.log(0.4, 10)
        return self.one_of(
            *[f"stock.GaussianDpEvent({sigma})"] * 3,
            f"stock.LaplaceDpEvent({sigma})",
            f"stock.DiscreteLaplaceDpEvent({self.log(0.05, 1.5)}, 1)",
        )

    def column(self, bands: int) -> str:
        """Coefficients of the square root of prefix sums, of norm one."""
        ratios = [1.0]
        for index in range(1, bands):
            ratios.append(ratios[-1] * (2 * index - 1) / (2 * index))
        norm = math.hypot(*ratios)
        return str(tuple(round(ratio / norm, 6) for ratio in ratios))


def training(dice: Dice) -> str:
    """Noise on Poisson samples."""
    rate, runs = dice.log(1e-4, 0.3), dice.whole(1, 100_000)
    sample = f"stock.PoissonSampledDpEvent({rate}, {dice.noise()})"
    return f"stock.SelfComposedDpEvent({sample}, {runs})"


def one_of_t(dice: Dice) -> str:
    """Epochs in one of whose steps each record takes part."""
    epoch = f"ext.RandomAllocationEvent({dice.noise()}, 1, {dice.whole(2, 10**6)})"
    return f"stock.SelfComposedDpEvent({epoch}, {dice.whole(1, 3000)})"


def k_of_t(dice: Dice) -> str:
    """Epochs in k of whose steps each record takes part."""
    steps = dice.whole(3, 10**5)
    selected = dice.whole(2, max(min(steps - 1, 60), 2))
    epoch = f"ext.RandomAllocationEvent({dice.noise()}, {selected}, {steps})"
    return f"stock.SelfComposedDpEvent({epoch}, {dice.whole(1, 1000)})"


def sampled(dice: Dice) -> str:
    """Any of the others on a Poisson sample."""
    inner = dice.one_of(one_of_t(dice), k_of_t(dice), training(dice))
    whole = f"ext.PLDSubsampleEvent({dice.log(1e-3, 0.9)}, {inner})"
    return f"stock.SelfComposedDpEvent({whole}, {dice.whole(1, 100)})"


def groups(dice: Dice) -> str:
    """A group of records in training or in epochs."""
    size = dice.whole(2, 32)
    inner = dice.one_of(training(dice), one_of_t(dice))
    return f"ext.GroupSubsampledEvent({size}, {inner})"


def batches(dice: Dice) -> str:
    """Batches of fixed size."""
    records, size = dice.whole(200, 10**6), dice.whole(1, 200)
    kind = dice.one_of("SampledWithoutReplacement", "SampledWithReplacement")
    batch = f"stock.{kind}DpEvent({records}, {size}, {dice.noise()})"
    return f"stock.SelfComposedDpEvent({batch}, {dice.whole(1, 10_000)})"


def truncated(dice: Dice) -> str:
    """Poisson samples that are cut to a size."""
    records, rate = dice.whole(1000, 10**5), dice.log(1e-3, 0.05)
    most = max(round(records * rate * dice.log(1.01, 1.5)), 1)
    sigma = dice.log(0.6, 8)
    step = "stock.TruncatedSubsampledGaussianDpEvent("
    step += f"{records}, {rate}, {most}, {sigma})"
    return f"stock.SelfComposedDpEvent({step}, {dice.whole(1, 10_000)})"


def bins(dice: Dice) -> str:
    """Correlated noise with balls in bins."""
    column, sigma = dice.column(dice.whole(2, 32)), dice.log(0.7, 10)
    number, epochs = dice.whole(4, 300), dice.whole(1, 20)
    return f"ext.MatrixAllocationEvent({column}, {sigma}, {number}, {epochs})"


def windows(dice: Dice) -> str:
    """Correlated noise with fresh windows."""
    bands = dice.whole(2, 24)
    window, cycles = dice.whole(2, 150), dice.whole(1, 30)
    return (
        f"ext.WindowedAllocationEvent({dice.column(bands)}, {dice.log(0.7, 10)}, "
        f"{window}, {bands}, {cycles}, {dice.log(0.1, 1)})"
    )


def min_sep(dice: Dice) -> str:
    """Correlated noise with b-min-sep sampling."""
    bands, rate = dice.whole(2, 24), dice.log(1e-3, 0.1)
    return (
        f"ext.MinSepSamplingEvent({dice.column(bands)}, {dice.log(0.7, 10)}, {rate}, "
        f"{bands}, {dice.whole(bands, 3000)}, {dice.one_of('True', 'False')})"
    )


def near_steps(dice: Dice) -> str:
    """Correlated noise where the steps of a record may be near each other."""
    noise = f"{dice.column(dice.whole(2, 16))}, {dice.log(2, 20)}"
    return dice.one_of(
        f"ext.PoissonMatrixEvent({noise}, {dice.log(1e-3, 0.1)}, 500)",
        f"ext.SelectedStepsMatrixEvent({noise}, {dice.whole(2, 40)}, 500)",
        f"ext.CyclicPoissonEvent({noise}, {dice.log(1e-2, 0.3)}, 8, 500)",
    )


def mixed(dice: Dice) -> str:
    """Several mechanisms with a rare one."""
    parts = [training(dice), dice.noise(), one_of_t(dice)]
    rare = f"stock.PoissonSampledDpEvent({dice.log(1e-30, 1e-6)}, {dice.noise()})"
    return f"stock.ComposedDpEvent([{', '.join([*parts[: dice.whole(2, 3)], rare])}])"


KINDS: dict[str, Callable[[Dice], str]] = {
    "training": training,
    "1 of t": one_of_t,
    "k of t": k_of_t,
    "samples of any": sampled,
    "groups": groups,
    "batches": batches,
    "truncated batches": truncated,
    "bins": bins,
    "windows": windows,
    "b-min-sep": min_sep,
    "near steps": near_steps,
    "mixed": mixed,
}
# Where the replacement of a record has a theorem.
REPLACED = {"training", "1 of t", "batches"}


def settings(number: int, seed: int, kinds: list[str]) -> Iterator[Setting]:
    """Yields settings of all kinds in turn."""
    dice = Dice(seed)
    for index in range(number):
        kind = kinds[index % len(kinds)]
        event = KINDS[kind](dice)
        delta = dice.log(1e-12, 1e-3) if index % 7 else dice.log(1e-40, 1e-12)
        if kind == "truncated batches":
            yield Setting(kind, event, delta, "REPLACE_SPECIAL")
        elif kind in REPLACED and index % 5 == 0:
            yield Setting(kind, event, delta, "REPLACE_ONE")
        else:
            yield Setting(kind, event, delta)


class Revision:
    """A process that answers by the code in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = str(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def ask(self, setting: Setting) -> Answer:
        """Returns the answer to one question."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(dataclasses.asdict(setting)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended at {setting}")
        found = json.loads(line)
        bounds = tuple(found["bounds"]) if "bounds" in found else None
        return Answer(
            found["seconds"], bounds, found.get("error", ""), found["megabytes"]
        )

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()  # It closes the pipes as well.


def judged(old: Answer, new: Answer) -> list[str]:
    """Returns what is wrong with the new answer, in words; the first may be a fault.

    Faults begin with a capital letter.
    """
    if new.bounds is None:
        if old.bounds is None:
            return []
        slow = "takes too long" in new.error
        return [f"{'slower' if slow else 'Refused'} now: {new.error}"]
    words = []
    if not new.bounds[0] <= new.bounds[1]:  # Also for NaN.
        words.append("Bounds that are not in order")
    if old.bounds is None:
        return words
    if new.bounds[0] > old.bounds[1] or old.bounds[0] > new.bounds[1]:
        words.append("Brackets that do not meet")
    if new.width > WIDER * old.width + 1e-6:
        words.append(f"wider: {old.width:.2%} to {new.width:.2%}")
    if new.seconds > max(SLOWER * old.seconds, SECONDS):
        words.append(f"slower: {old.seconds:.2f} to {new.seconds:.2f} s")
    return words


@contextlib.contextmanager
def checked_out(revision: str | None) -> Iterator[pathlib.Path]:
    """Yields a folder with a revision, by default the last one of a week ago."""
    if revision is None:
        asked = ["git", "rev-list", "-1", "--before=1.week", "HEAD"]
        revision = subprocess.check_output(asked, cwd=ROOT, text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "old"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(place), revision]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            yield place
        finally:
            remove = ["git", "worktree", "remove", "--force", str(place)]
            subprocess.run(remove, cwd=ROOT, check=True)


def compare(old: Revision, new: Revision, asked: Iterator[Setting]) -> int:
    """Prints what differs. Returns the number of faults."""
    faults, times, widths = 0, {}, {}
    for number, setting in enumerate(asked):
        # The second of two is asked when the machine is warm.
        if number % 2:
            before, after = old.ask(setting), new.ask(setting)
        else:
            after, before = new.ask(setting), old.ask(setting)
        words = judged(before, after)
        if words:
            print(f"{'; '.join(words)}\n    {setting}", flush=True)
            print(f"    {before.bounds} to {after.bounds}", flush=True)
        faults += any(word[0].isupper() for word in words)
        if before.bounds and after.bounds:
            ratio = (after.seconds + CLOCK) / (before.seconds + CLOCK)
            times.setdefault(setting.kind, []).append(ratio)
            widths.setdefault(setting.kind, []).append((before.width, after.width))
    print("kind: settings; the median time, over the old one; the median widths")
    for kind, ratios in times.items():
        before, after = np.median(widths[kind], axis=0)
        print(
            f"{kind}: {len(ratios)}; {np.median(ratios):.2f}; "
            f"{before:.3%} to {after:.3%}"
        )
    return faults


def main() -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ledger", action="store_true")
    arguments = parser.parse_args()
    kinds = [kind.strip() for kind in arguments.kinds.split(",")]
    asked = settings(arguments.settings, arguments.seed, kinds)
    if arguments.ledger:
        rows = json.loads(pathlib.Path(__file__).with_name("ledger.json").read_text())
        asked = (
            Setting(**row["setting"]) for row in rows if row["setting"]["kind"] in kinds
        )
    with checked_out(arguments.revision) as folder:
        old, new = Revision(folder), Revision(ROOT)
        try:
            return 3 if compare(old, new, asked) else 0
        finally:
            old.close()
            new.close()


if __name__ == "__main__":
    sys.exit(main())
