"""Mutation testing: which changes of the code no test sees.

    python .ci/mutants.py kernel
    python .ci/mutants.py sampler
    python .ci/mutants.py amplification --module random_allocation

Works in a temporary copy of the checkout. Every mutant has a process of its own, in
which tests run, the quickest first, until one fails. What `explained_mutants.txt` says
makes no bound wrong is not tried. Prints survivors, and a row for each module. Ends
with status 1 if there are any.
"""

import argparse
from collections.abc import Callable
import contextlib
import difflib
import io
import json
import math
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile

from mutmut.mutation import file_mutation
from mutmut.utils import format_utils
import pytest

ROOT = pathlib.Path(__file__).parent.parent
EXPLAINED = ROOT / ".ci" / "explained_mutants.txt"
# Of sums, samples and allocation laws find what their own tests do not.
LAWS = ["tests/laws/test_trees.py", "tests/golden"]
TARGETS = {
    "kernel": (
        ["dp_accounting_ext/kernel/*.py"],
        ["tests/kernel", *LAWS],
    ),
    "pairs": (
        ["dp_accounting_ext/pairs/*.py"],
        ["tests/pairs", "tests/golden", "tests/test_rounding.py"],
    ),
    "sampler": (
        ["dp_accounting_ext/wpm/integer_weights.py"],
        ["tests/wpm/test_integer_weights.py"],
    ),
    "amplification": (
        ["dp_accounting_ext/amplification/**/*.py"],
        ["tests/amplification", *LAWS],
    ),
}
OPTIONS = ["-x", "-p", "no:cacheprovider"]
# Of a mutant's test: CPU seconds over those of the code as it is, more of them, and
# others in which it may wait.
TIMES, MORE_SECONDS, WAITED = 3, 10, 900
MOST_BYTES = 8 << 30
MutatedFile = file_mutation.MutatedFile


class QuickestFirst:
    """A plugin of pytest: measures tests, and runs those that took least time first.

    The process ends where one takes far longer.

    Args:
        longest: Tests that took more seconds are left out.
    """

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if nodeid in self.seconds:
            most = TIMES * self.seconds[nodeid] + MORE_SECONDS
            signal.setitimer(signal.ITIMER_PROF, most)
            signal.alarm(WAITED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = spent + report.duration

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0.0))
        items[:] = [x for x in items if self.seconds.get(x.nodeid, 0.0) <= self.longest]


def copied(folder: pathlib.Path) -> None:
    """Copies what git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())


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


def started(run: Callable[[], int]) -> int:
    """Returns the process in which a function runs, and of which it is the status."""
    process = os.fork()
    if not process:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        status = 1
        try:
            status = run()
        finally:
            os._exit(status)
    return process


def survivors(
    names: list[str], tests: list[str], longest: float, children: int
) -> set[str]:
    """Returns the mutants that no test sees, so many at a time."""
    plugin, times = QuickestFirst(longest), pathlib.Path("seconds.json")

    def tested(*options: str) -> int:
        return int(pytest.main([*OPTIONS, *options, *tests], plugins=[plugin]))

    def timed() -> int:
        status = tested()
        times.write_text(json.dumps(plugin.seconds))
        return status

    def mutated(name: str) -> int:
        os.environ["MUTANT_UNDER_TEST"] = name
        return tested()

    # Once for all of them; what the package remembers would hide a mutant.
    with contextlib.redirect_stdout(io.StringIO()):
        collected = tested("--collect-only")
    if collected or os.wait4(started(timed), 0)[1]:
        sys.exit("tests fail without a mutant")
    plugin.seconds = json.loads(times.read_text())
    running: dict[int, str] = {}
    found: set[str] = set()

    def wait() -> None:
        process, status = os.wait()
        name = running.pop(process)
        print("." if status else f"\n{name} survives\n", end="", flush=True)
        if not status:
            found.add(name)

    for name in names:
        if len(running) >= children:
            wait()
        running[started(lambda name=name: mutated(name))] = name
    while running:
        wait()
    print()
    return found


def change(file: MutatedFile, mutant: str) -> str:
    """Returns "module.function: old line → new line"."""
    module, _, name = mutant.rpartition(".")
    lines = file.code.splitlines()
    texts = []
    for each in (
        f"{format_utils.mangled_name_from_mutant_name(name)}__mutmut_orig",
        name,
    ):
        span = file.line_span_by_function_name[each]
        body = lines[span.start - 1 : span.end]
        texts.append([line.replace(each, "") for line in body])
    function, owner = format_utils.orig_function_and_class_names_from_key(mutant)
    found = list(difflib.unified_diff(*texts, n=0, lineterm=""))[2:]
    old, new = (
        " ".join(line[1:].strip() for line in found if line.startswith(sign))
        for sign in "-+"
    )
    place = [module.rpartition(".")[2], owner, function.rpartition(".")[2]]
    return f"{'.'.join(filter(None, place))}: {old} → {new}"


def explanations() -> list[re.Pattern[str]]:
    """Returns patterns of changes that make no bound wrong, whether a test sees or not.

    The reason stands before its patterns, which are indented: "part of the old line →
    part of the new one".
    """
    return [
        re.compile(line.strip().replace(" → ", ".* → .*"))
        for line in EXPLAINED.read_text().splitlines()
        if line.startswith("    ")
    ]


def report(rows: dict[str, list[int]], alive: dict[str, str]) -> None:
    """Prints the table and the survivors.

    Args:
        rows: Of each module how many mutants there are, and how many are explained.
        alive: The survivors' changes, and their modules.
    """
    print("NOT EXPLAINED", *alive, sep="\n    ")
    print("\n| module | mutants | explained | killed | survived | score |")
    print("|---|---|---|---|---|---|")
    left = {module: list(alive.values()).count(module) for module in rows}
    total = [sum(column) for column in zip(*rows.values(), strict=True)]
    for module, (number, explained) in {**rows, "all": total}.items():
        survived = left.get(module, len(alive))
        killed = number - explained - survived
        score = 100 * killed / max(number - explained, 1)
        row = (module, number, explained, killed, survived, f"{score:.1f} %")
        print("|", " | ".join(map(str, row)), "|")


def main() -> int:
    """Makes mutants, tries them and reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--module", help="the name of one module of the target")
    parser.add_argument("--sample", type=int, help="mutants, of all; drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, default=math.inf, help="seconds of a test that is run"
    )
    parser.add_argument("--children", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    modules = modules_of(options.target, options.module)
    with tempfile.TemporaryDirectory() as folder:
        copied(pathlib.Path(folder))
        os.chdir(folder)
        sys.path.insert(0, folder)
        every: dict[str, tuple[str, MutatedFile]] = {}
        for path in map(pathlib.Path, modules):
            file = file_mutation.mutate_file_contents(str(path), path.read_text())
            path.write_text(file.code)
            for each in file.mutant_names:
                every[format_utils.get_mutant_name(path, each)] = path.as_posix(), file
        names = sorted(every)
        if options.sample:
            print(f"{options.sample} of {len(names)} mutants, seed {options.seed}")
            names = random.Random(options.seed).sample(names, options.sample)
        texts = {name: change(every[name][1], name) for name in names}
        patterns, rows = explanations(), {}
        for name, text in list(texts.items()):
            row = rows.setdefault(every[name][0], [0, 0])
            row[0] += 1
            if any(pattern.search(text) for pattern in patterns):
                row[1] += 1
                del texts[name]
        tests = TARGETS[options.target][1]
        alive = survivors(list(texts), tests, options.longest, options.children)
        report(rows, {texts[name]: every[name][0] for name in alive})
        os.chdir(ROOT)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
