"""Public names are documented and quick to import; files of a release agree.

Docstrings and `__all__` are read from the package. Versions are read from it, and from
pyproject.toml, CITATION.cff, CHANGELOG.md, .ci and .github.
"""

import functools
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import runpy
import subprocess
import sys
import types
from typing import TypeVar

from dp_accounting import dp_event as stock
import numpy as np
import one_of_each
import pytest

import dp_accounting_ext
import dp_accounting_ext as ext
from dp_accounting_ext import dp_event
from dp_accounting_ext.correlated import events


def modules():
    """Yields every module of the package whose imports are installed."""
    for info in pkgutil.walk_packages(ext.__path__, "dp_accounting_ext."):
        if not info.name.endswith("__main__"):
            try:
                yield importlib.import_module(info.name)
            except ModuleNotFoundError as error:
                assert not error.name.startswith("dp_accounting_ext")


MODULES = list(modules())
PUBLIC = [module for module in MODULES if hasattr(module, "__all__")]


def public(owner, module):
    """Public functions, classes and methods that a module or a class defines."""
    for name, value in vars(owner).items():
        inner = inspect.unwrap(getattr(value, "__func__", value))
        if isinstance(inner, property):
            inner = inner.fget
        inner = getattr(inner, "func", inner)  # Cached properties.
        if name.startswith("_") or getattr(inner, "__module__", None) != module:
            continue
        if inspect.isfunction(inner) or inspect.isclass(inner):
            yield f"{owner.__name__}.{name}", inspect.getdoc(getattr(owner, name))
            if inspect.isclass(inner):
                yield from public(inner, module)


def test_all_that_is_public_has_a_docstring():
    for module in MODULES:
        assert module.__doc__, module
        found = dict(public(module, module.__name__))
        assert [what for what, doc in found.items() if not doc] == []


@pytest.mark.parametrize("name", ext.__all__)
def test_public_classes_say_what_their_fields_are_and_events_their_source(name):
    exported = getattr(ext, name)
    doc = inspect.getdoc(exported)
    if name.endswith("Event"):
        assert "Source: https://arxiv.org/abs/" in doc
    for argument in inspect.signature(exported).parameters:
        assert f"{argument}:" in doc, argument


def test_only_public_names_are_offered():
    """All without an underscore that a module defines, and no module of others."""
    for module in PUBLIC:
        assert sorted(dir(module)) == sorted(module.__all__)
        lazily = "__getattr__" in vars(module)
        for name, value in vars(module).items():
            is_ours = getattr(value, "__module__", None) == module.__name__
            is_kept = lazily or name.startswith("_") or isinstance(value, TypeVar)
            assert not is_ours or is_kept or name in module.__all__, name
        for name in module.__all__:
            value = getattr(module, name)
            home = getattr(value, "__name__", "") if inspect.ismodule(value) else ""
            assert not home or home.startswith(module.__name__), name
            assert not name.startswith("_")
    assert set(ext.__all__) <= set(dir(ext))


def test_no_class_leaves_its_display_to_python():
    """Else an instance would show as its address."""
    for module in [ext, *PUBLIC]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("dp_acc"):
                kept = value.__repr__ is not object.__repr__
                assert kept or inspect.isabstract(value), name


EVENTS = [
    known.event
    for known in one_of_each.KNOWN
    if type(known.event).__name__ in (*dp_event.__all__, *events.__all__)
]


def test_these_are_all():
    own = {getattr(home, name) for home in (dp_event, events) for name in home.__all__}
    assert own == {type(event) for event in EVENTS}
    assert all(issubclass(kind, stock.DpEvent) for kind in own)


def test_strategies_of_any_kind_of_sequence_are_one():
    rows = [[1.0, 0.0], [0.5, 1.0]]
    matrix = ext.MatrixAllocationEvent(rows, 1.0, 2, 1)
    assert matrix == ext.MatrixAllocationEvent(np.array(rows), 1.0, 2, 1)
    assert hash(matrix) == hash(ext.MatrixAllocationEvent(rows, 1.0, 2, 1))
    assert stock.DpEvent.from_named_tuple(matrix.to_named_tuple()) == matrix


def test_a_buffered_matrix_is_its_first_column():
    event = ext.MatrixAllocationEvent.from_buffered_toeplitz(
        [0.5, 0.25], [0.5, 1.0], 1.0, 2, 2
    )
    assert event.strategy == (1.0, 1.5, 0.5, 0.1875)


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


def test_modules_are_there_before_anything_is_used():
    run("import dp_accounting_ext as ext; ext.dp_event.EpsilonDeltaDpEvent(1.0, 0.0)")
    for name in dp_accounting_ext.__all__:
        assert hasattr(dp_accounting_ext, name)


try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest needs the other.
    import tomli as tomllib


ROOT = pathlib.Path(__file__).parent.parent


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_has_one_home():
    version = dp_accounting_ext.__version__
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    assert 'dynamic = ["version", "readme"]' in text_of("pyproject.toml")
    assert f"\n## {version}" in text_of("CHANGELOG.md")


def test_pythons_are_those_that_are_tested():
    project, workflow = text_of("pyproject.toml"), text_of(".github/workflows/ci.yml")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert re.search(r"python: \[(.*)\]", workflow)[1].replace('"', "") == ", ".join(
        named
    )
    assert f'requires-python = ">={named[0]}"' in project
    assert f"\noldest={named[0]}\n" in text_of(".ci/oldest")
    assert f'python: "{named[0]}"\n            dependencies: oldest' in workflow


def test_the_oldest_dependencies_are_those_that_are_allowed():
    project = text_of("pyproject.toml")
    oldest = dict(
        re.findall(r"^([\w-]+)==([\d.]+?)\.?\*?$", text_of(".ci/oldest.txt"), re.M)
    )
    del oldest["pyparsing"]  # No dependency of this package.
    assert len(oldest) == 4
    for name, version in oldest.items():
        least = re.search(rf'"{name}>=([\d.]+)"', project)[1]
        assert version.startswith(least), name


def test_the_readme_needs_no_files_beside_it(monkeypatch):
    """Where a registry shows it, the checkout is not there: no link leads into it."""
    shown = {}
    builder = types.SimpleNamespace(setup=lambda **fields: shown.update(fields))
    monkeypatch.setitem(sys.modules, "setuptools", builder)
    runpy.run_path(str(ROOT / "setup.py"))
    page = shown["long_description"]
    assert re.findall(r"\]\((?!https://)", page) == []
    assert "](https://github.com/google/differential-privacy" in page
    assert "All tasks, each as one command" in " ".join(page.split())


def test_nothing_installs_a_package_of_this_name():
    """Until the name is registered, what has it may be a stranger's."""
    package = pathlib.Path(dp_accounting_ext.__file__).parent
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert pages
    for path in [*package.rglob("*.py"), *(ROOT / "docs").rglob("*.py"), *pages]:
        words = " ".join(path.read_text(encoding="utf-8").split())
        found = re.findall(r"install(?: -\S+)* [\"']?dp[-_]accounting[-_]ext", words)
        assert not found, path


def test_the_locked_environment_has_every_dependency():
    project, locked = text_of("pyproject.toml"), text_of(".ci/locked.txt").lower()
    pinned = set(re.findall(r"^([\w.-]+)==", locked, re.M))
    pinned = {re.sub(r"[-_.]+", "-", name) for name in pinned}
    table = tomllib.loads(project)["project"]
    extras = table["optional-dependencies"]
    needed = [*table["dependencies"], *extras["test"], *extras["dev"], *extras["docs"]]
    for requirement in needed:
        name = re.match(r"[\w-]+", requirement)[0].lower()
        assert re.sub(r"[-_.]+", "-", name) in pinned, name


def test_a_release_is_the_version_that_its_tag_names():
    """The step of the workflow that compares them finds the version."""
    workflow = text_of(".github/workflows/release.yml")
    program = re.search(r"sed -n '([^']+)'", workflow)[1]
    assert program == r's/^__version__ = "\(.*\)"$/\1/p'
    home = text_of("dp_accounting_ext/__init__.py")
    found = re.findall(r'^__version__ = "(.*)"$', home, re.M)
    assert found == [dp_accounting_ext.__version__]
    assert "id-token: write" in workflow and "password" not in workflow
