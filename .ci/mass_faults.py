"""Puts faults that lose or misplace mass into the package, one by one.

    python .ci/mass_faults.py
    python .ci/mass_faults.py --only tail --all

Works in a temporary copy. For each fault it asks ordinary questions until one raises
`ArithmeticError`, and prints which: the package refused to answer by itself, and no
test had to know of the fault. Ends with status 1 if a fault was answered that is not
among `NOT_SEEN`, or if, without any fault, a question was refused.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "dp_accounting_ext"
REFUSED = "refused: "


class Fault(NamedTuple):
    """A change of the code: the one place that has an old text gets a new one."""

    name: str
    old: str
    new: str


FAULTS = [
    # The kernel.
    Fault(
        "kernel: cells one to the left",
        "    floors = np.floor(places)\n    above = places - floors\n",
        "    above = places - np.floor(places)\n    floors = np.floor(places) - 1\n",
    ),
    Fault(
        "kernel: the shares of a split swapped",
        "np.concatenate([lower * masses, upper * masses], axis=1)\n",
        "np.concatenate([upper * masses, lower * masses], axis=1)\n",
    ),
    Fault(
        "kernel: the shares of a loss linear, not exponential",
        "        lower, upper = 1 - above, above\n"
        "        if atoms.law.axis is Axis.LOSS:\n",
        "        lower, upper = 1 - above, above\n        if False:\n",
    ),
    Fault(
        "kernel: what both terms have below is counted once",
        "twice = below and (below[0], 2 * below[1])\n",
        "twice = below\n",
    ),
    Fault(
        "kernel: a binary digit of the count passed over",
        '        if digit == "1":\n            while law.step < total.step:\n',
        "        if False:\n            while law.step < total.step:\n",
    ),
    Fault(
        "kernel: what meets on a level is overwritten",
        "    out[:, begin - first : begin - first + y.shape[1]] += y\n",
        "    out[:, begin - first : begin - first + y.shape[1]] = y\n",
    ),
    Fault(
        "kernel: the last cell of a piece left out",
        "piece[:, first : last + 1]\n",
        "piece[:, first : max(last, first + 1)]\n",
    ),
    Fault(
        "kernel: tails are cut off without a sink",
        "dataclasses.replace(law, law=atoms.law, pieces=pieces), atoms\n",
        "dataclasses.replace(law, pieces=pieces, law=dataclasses.replace("
        "law.law, ledger=atoms.law.ledger)), atoms\n",
    ),
    Fault(
        "kernel: an infinite loss of a sum without the other's",
        "infinity_mass -= self.infinity_mass * other.infinity_mass\n",
        "infinity_mass -= other.infinity_mass\n",
    ),
    Fault(
        "kernel: Q's sink of a sum of ratios without the other's",
        "                infinity_mass += self.zero_mass * other_masses()[0]\n"
        "                infinity_mass += other.zero_mass * masses()[0]\n",
        "                pass\n",
    ),
    Fault(
        "kernel: equal values of a sum overwritten",
        "    rows = np.add.reduceat(rows, starts, axis=1)\n",
        "    rows = rows[:, starts]\n",
    ),
    Fault(
        "kernel: losses 1e-7 too small",
        "values, rows = losses, np.array([p, p])\n",
        "values, rows = losses - 1e-7, np.array([p, p])\n",
    ),
    Fault(
        "kernel: the mean of t ratios divided by t + 1",
        "np.log(ratios) - math.log(count)\n",
        "np.log(ratios) - math.log(count + (count > 1))\n",
    ),
    Fault(
        "kernel: P's masses of t steps over t + 1",
        "p[~zero] / count, q",
        "p[~zero] / (count + (count > 1)), q",
    ),
    Fault(
        "kernel: what a sum's pair cannot hold goes nowhere",
        "        infinity_mass += float((p_masses[~fits] + floats.RARE).sum())"
        " * (1 + 1e-9)\n"
        "        zero_mass += float((q_masses[~fits] + floats.RARE).sum())"
        " * (1 + 1e-9)\n",
        "        pass\n",
    ),
    Fault(
        "kernel: what is carried over 16 nats of a profile is lost",
        "        carried *= math.exp(top - reference) if high < losses.size else 0.0\n",
        "        carried *= 0.0\n",
    ),
    # Pairs.
    Fault(
        "pairs: a tail of Gaussian noise forgotten by its maker, P's",
        "max(p_high - float(edges[-1]) * q_high, 0.0) + 4 * mass_error * p_high\n",
        "0.0\n",
    ),
    Fault(
        "pairs: a tail of Gaussian noise forgotten by its maker, Q's",
        "    masses[-1] += q_high\n",
        "",
    ),
    Fault(
        "pairs: what is above all cells of noise is left out",
        "    masses[-1] += q_high\n",
        "",
    ),
    Fault(
        "pairs: the upper share of a cell goes to its lower end",
        "    at_ends[1:] += raised\n",
        "    at_ends[:-1] += raised\n",
    ),
    Fault(
        "pairs: outputs beyond the last of discrete noise left out",
        "        masses[[0, -1]] /= -math.expm1(-self.parameter)\n",
        "",
    ),
    Fault(
        "pairs: a chain has the gains of the next stretch",
        "gains[np.searchsorted(gain_ends, ends)]\n",
        "gains[np.searchsorted(gain_ends, ends, 'right')]\n",
    ),
    # Amplification.
    Fault(
        "amplification: a sample forgets outputs that only Q has",
        "        masses = np.append(zero_mass, masses)\n        zero_mass = 0.0\n"
        "    infinity_mass = sampling_probability",
        "        masses = np.append(0.0, masses)\n        zero_mass = 0.0\n"
        "    infinity_mass = sampling_probability",
    ),
    Fault(
        "amplification: a sample's ratios a billionth too small",
        "(1 - sampling_probability) + sampling_probability * pair.ratios\n",
        "(1 - sampling_probability) * (1 - 1e-9)"
        " + sampling_probability * pair.ratios\n",
    ),
    Fault(
        "amplification: replaced records, the share of a cell's upper end lost",
        "    masses[1:] += base * share\n",
        "    masses[1:] = base * share\n",
    ),
    Fault(
        "amplification: replaced records, what is below all cells lost",
        "    masses[0] += float(special.ndtr(noise.ends[0])) * _BELOW\n",
        "",
    ),
    Fault(
        "amplification: replaced records, terms a millionth too small",
        "np.maximum.accumulate(weight * (terms + off))\n",
        "np.maximum.accumulate(weight * (terms + off) - 1e-6 * weight)\n",
    ),
    Fault(
        "amplification: k of t, fine rows of a coarse one overlap",
        "np.concatenate([upper[1:], lower])\n",
        "np.concatenate([upper[1:], lower[:-1], [0.0]])\n",
    ),
    Fault(
        "amplification: k of t, steps without the record left out",
        "(masses, count - number)]\n",
        "(masses, count - number - 1)]\n",
    ),
    Fault(
        "amplification: k of t, a step's row shares swapped",
        "np.stack([lower, upper])\n",
        "np.stack([upper, lower])\n",
    ),
    Fault(
        "amplification: k of t, shares of cells that meet are overwritten",
        "        law = sums.gather(cells, weights, self._occupied.size * shape[0])\n",
        "        law = np.zeros(self._occupied.size * shape[0])\n"
        "        law[cells] = weights\n",
    ),
    Fault(
        "amplification: k of t, a window that begins a row too low",
        "np.roll(masses, -(first % coarse), axis=0)\n",
        "np.roll(masses, -(first % coarse) - 1, axis=0)\n",
    ),
    Fault(
        "amplification: k of t, cells shared between two nodes lose one",
        "(shares * masses).ravel())\n",
        "(shares * masses * [[1.0], [0.0]]).ravel())\n",
    ),
    Fault(
        "amplification: 2 of t, a group's mean without its zero",
        "    masses[0] += mean.zero_mass\n",
        "",
    ),
    Fault(
        "amplification: 2 of t, a pair of rows is met once and counted once",
        "np.where(rows > index, 2 * masses, masses)\n",
        "np.where(rows > index, masses, masses)\n",
    ),
    Fault(
        "amplification: groups, what is below all cells lost",
        "        masses[0] += floats.raised(float(special.ndtr(self.cells.ends[0])))\n",
        "",
    ),
    Fault(
        "amplification: groups, the upper shares of cells lost",
        "        masses[1:] += self.cells.masses[0] * share\n",
        "        masses[1:] = self.cells.masses[0] * share\n",
    ),
    Fault(
        "amplification: matrices, moves below the lowest state lost",
        "    matrix[:, 0] += below\n",
        "",
    ),
    Fault(
        "amplification: matrices, the upper ends of states' cells lost",
        "    matrix[:, 1:] += high\n",
        "    matrix[:, 1:] += (1 - 1e-6) * high\n",
    ),
    Fault(
        "amplification: matrices, the upper ends of sums' cells lose a millionth",
        "    shares = np.stack([1 - share, share], axis=1).ravel()\n",
        "    shares = np.stack([1 - share, (1 - 1e-6) * share], axis=1).ravel()\n",
    ),
]

# What moves no mass of these questions but tails that are less than any rounding.
NOT_SEEN = (
    "kernel: what a sum's pair cannot hold goes nowhere",
    "amplification: a sample forgets outputs that only Q has",
    "amplification: 2 of t, a group's mean without its zero",
)


def questions() -> Iterator[tuple[str, Callable[[], tuple[float, ...]]]]:
    """Yields ordinary questions, by name, and what answers them."""
    import dp_accounting as dp

    import dp_accounting_ext as ext

    add = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    replace = dp.NeighboringRelation.REPLACE_ONE
    noise, sampled = dp.GaussianDpEvent, dp.PoissonSampledDpEvent
    allocated = ext.RandomAllocationEvent
    step = sampled(0.01, noise(1.0))
    runs = {
        "DP-SGD": (add, [(step, 1000)]),
        "ten epochs of 1 of 1000": (add, [(allocated(noise(1.0), 1, 1000), 10)]),
        "1 of 50 Laplace": (add, [(allocated(dp.LaplaceDpEvent(1.0), 1, 50), 1)]),
        "a mixed sum": (
            add,
            [
                (noise(3.0), 1),
                (sampled(0.1, dp.LaplaceDpEvent(1.0)), 20),
                (dp.dp_event.DiscreteLaplaceDpEvent(0.5, 1), 5),
                (sampled(1e-26, dp.LaplaceDpEvent(1.0)), 1),
            ],
        ),
        "a sample of 1 of 100": (
            add,
            [(ext.PLDSubsampleEvent(0.1, allocated(noise(1.0), 1, 100)), 5)],
        ),
        "a replaced record in samples": (
            replace,
            [(ext.PLDSubsampleEvent(0.1, dp.LaplaceDpEvent(1.0)), 10)],
        ),
        "a group of 4": (add, [(ext.GroupSubsampledEvent(4, step), 100)]),
        "correlated noise": (
            add,
            [(ext.MatrixAllocationEvent((1.0, 0.5, 0.25), 2.0, 16, 2), 1)],
        ),
        "a group of 2 in 1 of 100": (
            add,
            [(ext.GroupSubsampledEvent(2, allocated(noise(1.0), 1, 100)), 1)],
        ),
        "a replaced record in 1 of 100": (
            replace,
            [(allocated(noise(1.0), 1, 100), 1)],
        ),
        "3 of 100": (add, [(allocated(noise(1.0), 3, 100), 1)]),
        "2 of 10": (add, [(allocated(noise(1.0), 2, 10), 1)]),
    }
    for name, (relation, parts) in runs.items():
        accountant = ext.PLDAccountant(relation)
        for event, count in parts:
            accountant.compose(event, count)

        def answers(accountant: ext.PLDAccountant = accountant) -> tuple[float, ...]:
            return (
                *accountant.get_epsilon_bounds(1e-6),
                *accountant.get_delta_bounds(1.0),
            )

        yield name, answers


def ask(*, every: bool) -> None:
    """Prints the answers to questions, by name, or the error, up to the first one.

    Args:
        every: Whether all questions are asked, after an error too.
    """
    found: dict[str, list[float] | str] = {}
    for name, answers in questions():
        try:
            found[name] = list(answers())
        except ArithmeticError as error:
            found[name] = f"{REFUSED}{error}"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        if isinstance(found[name], str) and not every:
            break
    print(json.dumps(found))


def place_of(folder: pathlib.Path, chosen: Fault) -> tuple[pathlib.Path, str]:
    """Returns the file that has the old text of a fault, and the code in it.

    Raises:
        ValueError: If there is no such place, or if there are several.
    """
    texts = {path: path.read_text() for path in (folder / PACKAGE).rglob("*.py")}
    found = [
        path for path, text in texts.items() for _ in range(text.count(chosen.old))
    ]
    if len(found) != 1:
        raise ValueError(f"{chosen.name}: {len(found)} places, not one.")
    return found[0], texts[found[0]]


def asked(folder: pathlib.Path, *, every: bool) -> dict[str, list[float] | str]:
    """Returns the answers of the package in a folder, as `ask` prints them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--ask", *["--all"][:every]],
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, list[float] | str] = json.loads(done.stdout)
    return found


def told(
    found: dict[str, list[float] | str], usual: dict[str, list[float] | str]
) -> tuple[bool, str]:
    """Returns whether a fault was refused, and what is to be told of it."""
    failed = {name: text for name, text in found.items() if isinstance(text, str)}
    refused = [name for name, text in failed.items() if text.startswith(REFUSED)]
    if refused:
        return True, f"refused by {', '.join(refused)}"
    if failed:
        return False, "; ".join(failed.values())
    changed = [
        f"{name} {answer[1]:.6g} for {usual[name][1]:.6g}"
        for name, answer in found.items()
        if answer != usual[name]
    ]
    return False, f"answered: {', '.join(changed) or 'as ever'}"


def main() -> int:
    """Puts in each fault in turn, and prints what refused it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the names of faults")
    parser.add_argument("--ask", action="store_true", help="the questions alone")
    parser.add_argument("--all", action="store_true", help="who else refuses it, too")
    options = parser.parse_args()
    if options.ask:
        ask(every=options.all)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=ignore)
        usual = asked(folder, every=options.all)
        print("| fault | |\n|---|---|")
        wrong = any(isinstance(answer, str) for answer in usual.values())
        print(f"| (none) | {told(usual, usual)[1]} |", flush=True)
        for chosen in FAULTS:
            if options.only not in chosen.name:
                continue
            path, code = place_of(folder, chosen)
            path.write_text(code.replace(chosen.old, chosen.new))
            is_refused, text = told(asked(folder, every=options.all), usual)
            path.write_text(code)
            wrong |= not is_refused and chosen.name not in NOT_SEEN
            print(f"| {chosen.name} | {text} |", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
