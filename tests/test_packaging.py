"""What is published says the same everywhere."""

import pathlib
import re
import runpy
import sys
import types

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest needs the other.
    import tomli as tomllib

import dp_accounting_ext

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
