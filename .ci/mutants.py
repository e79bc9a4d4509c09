"""Mutation testing: which changes of the code no test sees.

    python .ci/mutants.py kernel
    python .ci/mutants.py sampler
    python .ci/mutants.py amplification --module random_allocation

Works in a temporary copy of the checkout. Prints a row for each module and every
survivor, with the reason where `explained_mutants.txt` has one. Ends with status 1 if
one has none.
"""

import argparse
from collections.abc import Iterator
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

from mutmut.mutation import diff_apply
from mutmut.mutation import file_mutation
from mutmut.utils import format_utils

ROOT = pathlib.Path(__file__).parent.parent
EXPLAINED = ROOT / ".ci" / "explained_mutants.txt"
ORDER = ROOT / ".ci" / "quickest_first.py"
WPM = "dp_accounting_ext/wpm/exact_draw"
# Of sums, samples and allocation laws find what their own tests do not.
LAWS = ["tests/laws/test_trees.py", "tests/golden"]
TARGETS = {
    "kernel": (["dp_accounting_ext/kernel/*.py"], ["tests/kernel", *LAWS]),
    "pairs": (["dp_accounting_ext/pairs/*.py"], ["tests/pairs", "tests/golden"]),
    "sampler": (
        [
            f"{WPM}/integer_weights.py",
            f"{WPM}/integer_sampler.py",
            f"{WPM}/rational_exponential.py",
        ],
        ["tests/wpm/exact_draw"],
    ),
    "amplification": (
        ["dp_accounting_ext/amplification/**/*.py"],
        ["tests/amplification", *LAWS],
    ),
}
SURVIVED, NO_TESTS = 0, 33  # mutmut's codes; others are failures and timeouts.


def copied(folder: pathlib.Path, modules: list[str], tests: list[str]) -> None:
    """Copies what git tracks, and tells mutmut what to mutate and to run."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    with (folder / "pyproject.toml").open("a") as file:
        file.write(f"only_mutate = {json.dumps(modules)}\n")
        file.write(f"pytest_add_cli_args_test_selection = {json.dumps(tests)}\n")
    (folder / ORDER.name).write_bytes(ORDER.read_bytes())


def mutants_of(modules: list[str]) -> list[str]:
    """Returns the names of all mutants of some modules, in the working directory."""
    names = []
    for path in map(pathlib.Path, modules):
        mutated = file_mutation.mutate_file_contents(str(path), path.read_text())
        names += [format_utils.get_mutant_name(path, n) for n in mutated.mutant_names]
    return names


def modules_of(target: str, name: str | None) -> list[str]:
    """Returns the paths of a target's modules, or of the one of that name."""
    paths = sorted(
        path.relative_to(ROOT)
        for pattern in TARGETS[target][0]
        for path in ROOT.glob(pattern)
        if name is None or path.stem == name
    )
    if not paths:
        sys.exit(f"--module: {target} has none of the name {name!r}")
    return [path.as_posix() for path in paths if path.stem != "__init__"]


def results() -> Iterator[tuple[str, str, int]]:
    """Yields the module, name and exit code of each mutant that was run."""
    for meta in sorted(pathlib.Path("mutants").rglob("*.meta")):
        module = str(meta.relative_to("mutants")).removesuffix(".meta")
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        for name, code in codes.items():
            if code is not None:
                yield module, name, code


def change(module: str, name: str) -> str:
    """Returns "function: old line → new line"."""
    lines = diff_apply.get_diff_for_mutant(name, path=module).splitlines()[2:]
    old, new = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign))
        for sign in "-+"
    )
    function, _ = format_utils.orig_function_and_class_names_from_key(name)
    return f"{function}: {old} → {new}"


def explanations() -> list[tuple[re.Pattern[str], str]]:
    """Returns patterns of changes, each with the reason why no test sees it.

    A reason stands before its patterns, which are indented: "part of the old line →
    part of the new one".
    """
    pairs = []
    reason = ""
    for line in EXPLAINED.read_text().splitlines():
        if line.startswith("    "):
            pattern = line.strip().replace(" → ", ".* → .*")
            pairs.append((re.compile(pattern), reason))
        elif line:
            reason = line
    return pairs


def report() -> bool:
    """Prints the table and the survivors. Returns whether all are explained."""
    reasons = explanations()
    rows: dict[str, list[int]] = {}
    survivors = []
    for module, name, code in results():
        row = rows.setdefault(module, [0, 0, 0])
        row[0] += 1
        if code in (SURVIVED, NO_TESTS):
            text = change(module, name)
            reason = next((why for what, why in reasons if what.search(text)), None)
            row[2 if reason else 1] += 1
            survivors.append((reason or "NOT EXPLAINED", text))
    for reason in sorted({reason for reason, _ in survivors}):
        print(reason)
        print(*(f"    {text}" for why, text in survivors if why == reason), sep="\n")
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    print("\n| module | mutants | killed | not explained | explained | score |")
    print("|---|---|---|---|---|---|")
    for module, (total, left, explained) in rows.items():
        killed = total - left - explained
        score = 100 * killed / max(total - explained, 1)
        row = (module, total, killed, left, explained, f"{score:.1f} %")
        print("|", " | ".join(map(str, row)), "|")
    return rows["all"][1] == 0


def main() -> int:
    """Runs mutmut and reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--module", help="the name of one module of the target")
    parser.add_argument("--sample", type=int, help="mutants, of all; drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--children", type=int, default=os.cpu_count())
    options = parser.parse_args()
    modules = modules_of(options.target, options.module)
    with tempfile.TemporaryDirectory() as folder:
        copied(pathlib.Path(folder), modules, TARGETS[options.target][1])
        os.chdir(folder)
        names = []
        if options.sample:
            every = mutants_of(modules)
            names = sorted(random.Random(options.seed).sample(every, options.sample))
            print(f"{options.sample} of {len(every)} mutants, seed {options.seed}")
        command = [sys.executable, "-m", "mutmut", "run"]
        subprocess.run(
            [*command, f"--max-children={options.children}", *names],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        complete = report()
        os.chdir(ROOT)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
