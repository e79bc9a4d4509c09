"""What `import dp_accounting_ext` costs beside `import dp_accounting`."""

import functools
import os
import subprocess
import sys

import dp_accounting_ext

MOST_EXPENSIVE = 1.15
MOST_ROUNDS = 10
SOLVERS = {"certified_projection", "line_sweep", "mechanism"}


def run(code):
    # Bytecode is kept, as it is where a package is installed.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=kept, check=True, capture_output=True, text=True)
    return done.stdout


# In one process: the CPU time of the library, that with what is added, the modules that
# all public names load beside it; and that nothing warns, of the rest of the package.
IMPORTS = """
import sys, time, warnings, dp_accounting
library, before = time.process_time(), set(sys.modules)
warnings.simplefilter("error")
from dp_accounting_ext import PLDAccountant, RdpAccountant
print(library, time.process_time())
from dp_accounting_ext import *
print(*(set(sys.modules) - before))
from dp_accounting_ext import budget, mechanisms, pld, risk, studies, wpm
"""


def imported():
    """Returns what a process of all imports prints: times, and names of modules."""
    times, names = run(IMPORTS).splitlines()
    return list(map(float, times.split())), names.split()


first = functools.cache(imported)


def test_it_costs_hardly_more_than_the_library():
    """What it adds to the CPU time of a fresh process, the least of a few runs."""
    library, ours = first()[0]
    for _ in range(MOST_ROUNDS):
        if ours <= MOST_EXPENSIVE * library:
            break
        theirs, both = imported()[0]
        library, ours = min(library, theirs), min(ours, both)
    assert ours <= MOST_EXPENSIVE * library


def test_it_loads_nothing_but_itself():
    """Neither packages that dp_accounting does not load, nor the solvers of `wpm`."""
    loaded = first()[1]
    ours = {name for name in loaded if name.split(".")[0] == "dp_accounting_ext"}
    foreign = {name.split(".")[0] for name in loaded} - {"dp_accounting_ext"}
    assert foreign <= sys.stdlib_module_names
    assert not {name.split(".")[-1] for name in ours} & SOLVERS


def test_the_version_waits_for_no_library():
    code = (
        "import runpy, sys; sys.argv = ['dp-accounting-ext', '--version']\n"
        "try: runpy.run_module('dp_accounting_ext', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*{'numpy', 'scipy', 'dp_accounting'} & set(sys.modules))"
    )
    assert run(code).split() == ["dp-accounting-ext", dp_accounting_ext.__version__]


def test_what_is_imported_warns_of_nothing():
    """Warnings are errors once the library is there, and end the process."""
    assert first()[1]


def test_modules_are_there_before_anything_is_used():
    run("import dp_accounting_ext as ext; ext.dp_event.EpsilonDeltaDpEvent(1.0, 0.0)")
    for name in dp_accounting_ext.__all__:
        assert hasattr(dp_accounting_ext, name)
