"""Puts faults like those of old into the package, one by one: the laws must find each.

    python .ci/old_faults.py
    python .ci/old_faults.py --only sinks --minutes 2

Works in a temporary copy. For each fault it searches the referee's trees and the laws,
a few examples of each in turn, until one fails or the time is over; CPU time counts. It
prints what found the fault, and after how long. Ends with status 1 if one was not found
or, without any fault, something fails.
"""

import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

import faults
from faults import fault

HUNT = pathlib.Path(__file__).parent / "hunt.py"
FAULTS = [
    fault(
        "sinks: what underflows in a sum is lost",
        "    lost = _UNDERFLOW * cells\n",
        "    return 0.0, 0.0\n    lost = _UNDERFLOW * cells\n",
        "        lost_p = floats.raised(cut_p + less_p)\n"
        "        lost_q = floats.raised(cut_q + less_q)\n",
        "        lost_p = lost_q = 0.0\n",
    ),
    fault(
        "sinks: rare masses of a pair are dropped on their way into a sum",
        "    if given.bound is Bound.UPPER and not kept.all():\n"
        "        infinity_mass +=",
        "    if False:\n        infinity_mass +=",
    ),
    fault(
        "sinks: tails that are cut off go nowhere",
        "        infinity_mass=atoms.infinity_mass,\n"
        "        zero_mass=atoms.zero_mass,\n",
        "",
    ),
    fault(
        "denormals: the rarest outputs of an upper law are left out",
        '        object.__setattr__(self, "infinity_mass", self.infinity_mass'
        " + p_lost)",
        "",
        '        object.__setattr__(self, "zero_mass", self.zero_mass + q_lost)\n',
        "",
    ),
    fault(
        "order: ratios and losses are taken as they come",
        "        wrong = ratios[1:] < ratios[:-1] * (1 - _DISORDER)\n",
        "        wrong = np.zeros(1, dtype=np.bool_)\n",
        "        if (self.ratios[1:] < self.ratios[:-1]).any():\n",
        "        if False:\n",
        '        order = np.argsort(losses, kind="stable")\n'
        "        losses, masses = losses[order], masses[order]\n",
        "        # Not sorted.\n",
    ),
    fault(
        "order: crossings are cut, and an upper δ is a billionth too small",
        "    crossed = np.flatnonzero(lower > upper)\n",
        "    lower = np.minimum(lower, upper)\n"
        "    crossed = np.flatnonzero(lower > upper)\n",
        "            found = np.maximum(found, least)\n",
        "            found = np.maximum(found * (1 - 1e-9), least)\n",
    ),
    fault(
        "rounding: δ and ε of a profile err the wrong way",
        "        sign = 1.0 if self.bound is Bound.UPPER else -1.0\n        moved",
        "        sign = -1.0 if self.bound is Bound.UPPER else 1.0\n        moved",
        "        sign = 1.0 if self.bound is Bound.UPPER else -1.0\n        goals",
        "        sign = -1.0 if self.bound is Bound.UPPER else 1.0\n        goals",
    ),
    fault(
        "rounding: losses that are merged are not off by anything",
        "    ratio_error = (_SAME * most + 2 * floats.UNIT_ROUNDOFF) * (\n",
        "    ratio_error = 0.0 * (\n",
        "    ratio_error += 4 * floats.UNIT_ROUNDOFF * (1 + largest)\n",
        "    ratio_error = 0.0\n",
    ),
    fault(
        "rare: both ends of Laplace noise are added to one atom once",
        "    masses[0] += q_ends[0]\n    masses[-1] += q_ends[1]\n",
        "    masses[[0, -1]] += q_ends\n",
    ),
    fault(
        "rare: a law without finite losses has the sinks of half of its copies",
        "        if number > known and found is not None:\n",
        "        if number > known and found is not None and found.values.size:\n",
        "    masses[0] += q_ends[0]\n    masses[-1] += q_ends[1]\n",
        "    masses[[0, -1]] += q_ends\n",
    ),
    fault(
        "rare: sums for replaced records whose profiles cross by rounding",
        "max(math.log(start / after), 0.0)",
        "math.log((start - after) / after)",
    ),
    fault(
        "groups: the closed form of little noise has no digit left from below",
        "(1 + abs(first))\n",
        "(1 + abs(first) + mean**2)\n",
    ),
    fault(
        "split: an odd node of an upper law joins the lower one",
        "        out[:, :number] += lower * odd\n"
        "        out[:, 1 : 1 + number] += upper * odd\n",
        "        out[:, :number] += (lower + upper) * odd\n",
    ),
    fault(
        "split: an atom of an upper law goes to the nearer node",
        "    above = places - floors\n",
        "    above = np.rint(places - floors)\n",
    ),
    fault(
        "rates: what is found of an output too rare for a float costs nothing",
        "        if not self._upper:\n            # Of an output",
        "        if False:\n            # Of an output",
    ),
    fault(
        "Rényi: a fractional order has the moment below it",
        "        moment += share * known[below + 1] if share else 0.0\n",
        "        moment += share * known[below] if share else 0.0\n",
    ),
    fault(
        "Rényi: what a pair's sink holds has no moment",
        "        if above.infinity_mass and bound is Bound.UPPER:\n",
        "        if False:\n",
    ),
    fault(
        "Rényi: matrices' divergences are no numbers",
        "    precision = part.claims().gaussian_precision\n    found = np.minimum(",
        "    precision = part.claims().gaussian_precision\n"
        "    found[~(found < 1e3)] = math.nan\n    found = np.minimum(",
    ),
    fault(
        "directions: a fixed batch is read the one way alone",
        "            either = Symmetrized(either)\n",
        "            pass\n",
    ),
    fault(
        "directions: one pair serves both where Q is far from P",
        "        given = found.zero_mass - probability\n",
        "        return found, True\n        given = found.zero_mass - probability\n",
        "        cut_p, cut_q = float(p[cut].sum()), float(q[cut].sum())\n",
        "        cut_p, cut_q = float(p[cut].sum()), 0.0\n",
    ),
    fault(
        "claims: a sample loses no more than its rate times its inner loss",
        "math.log1p(self.sampling_probability * math.expm1(loss))\n",
        "self.sampling_probability * loss\n",
    ),
    fault(
        "answers: after one of a small δ, all others are read off its law",
        "            asked = np.maximum(deltas[open_], least)\n",
        "            if any(known[2] > level for known in self._profiles):\n"
        "                continue\n"
        "            asked = np.maximum(deltas[open_], least)\n",
    ),
    fault(
        "answers: of an array, all are read off the law for its smallest δ",
        "            open_ = open_[deltas[open_] < least]\n",
        "            open_ = open_[[deltas[open_].min() < least] * open_.size]\n",
    ),
    fault(
        "answers: an allocation of large losses is no answer but an error",
        "    if not kept.any():\n        return dominating_pair.trivial_pair",
        "    if not kept.all():\n        raise ZeroDivisionError\n"
        "    if not kept.any():\n        return dominating_pair.trivial_pair",
    ),
]


def hunted(folder: pathlib.Path, seed: int, seconds: float) -> str:
    """Returns what the search found first, and after how long, or nothing."""
    tests = folder / "tests"
    paths = [folder, tests, *(tests / name for name in ("laws", "referee", "golden"))]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HUNT, str(seed), str(seconds)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        cwd=folder,
    )
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return done.stdout.strip()


def main() -> int:
    """Puts in each fault in turn, and prints what finds it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the names of faults")
    parser.add_argument("--minutes", type=float, default=1.0, help="of CPU, for each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        faults.copied(folder)
        print("| fault | found by |\n|---|---|")
        none = [] if options.only else [faults.Fault("(none)", ())]
        for chosen in itertools.chain(none, FAULTS):
            if options.only not in chosen.name:
                continue
            before = faults.put_in(folder, chosen)
            found = hunted(folder, options.seed, 60 * options.minutes)
            for path, text in before.items():
                path.write_text(text)
            missed += bool(found) == (not chosen.changes)
            print(f"| {chosen.name} | {found or 'nothing'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
