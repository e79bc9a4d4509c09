"""What a query touches is measured here, and said on the page of the architecture."""

import pathlib
import re
import subprocess
import sys

import dp_accounting_ext as ext

PACKAGE = pathlib.Path(ext.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"

# In a process of its own, where no pair was made before.
PROGRAM = """
import sys
import dp_accounting
import dp_accounting_ext as ext

sample = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
accountant = ext.PLDAccountant().compose(sample, 1000)
called, depth, deepest = set(), 0, 0


def watch(frame, event, _):
    global depth, deepest
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    if "dp_accounting_ext" not in path or name.startswith("<"):
        return
    if event == "call":
        called.add((path, frame.f_code.co_firstlineno))
        depth += 1
        deepest = max(deepest, depth)
    elif event == "return":
        depth -= 1


sys.setprofile(watch)
accountant.get_epsilon(1e-6)
sys.setprofile(None)
print(len(called), len({path for path, _ in called}), deepest)
"""


def test_the_page_says_what_a_query_touches():
    """The page's numbers are no less than what is measured, and hardly more."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )
    measured = [int(number) for number in run.stdout.split()]
    said = re.search(
        r"calls (\d+) functions in (\d+) modules,\s+at most (\d+) calls deep",
        PAGE.read_text(),
    )
    for most, found in zip(map(int, said.groups()), measured, strict=True):
        assert 0.9 * most <= found <= most, measured


def test_the_table_of_the_page_names_each_function_and_module_once():
    text = PAGE.read_text()
    section = text.partition("## What a query touches")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \| (\d+) \|", section, re.MULTILINE)
    functions, modules = re.search(r"calls (\d+) functions in (\d+)", section).groups()
    assert sum(int(number) for _, number in rows) == int(functions)
    named = [name for row, _ in rows for name in re.findall(r"`(\w+)`", row)]
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert len([name for name in named if name not in folders]) == int(modules)
