"""Every step of `.ci/run` can fail, at a deliberate fault; old faults fit the code."""

import importlib
import pathlib
import shutil
import subprocess

import pytest

CI = pathlib.Path(__file__).parent.parent / ".ci"
BLOCKS = {"compare": "true compare", "pytest": "true && true pytest"}
STEPS = ("ruff check", "ruff format", "mypy", "pip install", "check_site", "run.py")
PROGRAMS = (".ci/oldest", ".ci/wheel", "tools/mkdocs")


def status(folder, blocks, fault):
    """What `.ci/run` ends with where each program is a stub, and one of them fails."""
    (folder / "README.md").write_text(
        "".join(f"```sh\n{line}\n```\n" for line in blocks.values())
    )
    for program in (*PROGRAMS, "tools/python"):
        path = folder / program
        path.parent.mkdir(exist_ok=True)
        bad = f'case "{program} $*" in *"{fault}"*) exit 1;; esac' if fault else ""
        path.write_text(f"#!/bin/sh\n{bad}\nexit 0\n")
        path.chmod(0o755)
    # Its environment is that of the stubs, which README's commands do not make.
    text = (
        (CI / "run")
        .read_text()
        .replace("rm -rf .venv", "")
        .replace(".venv/bin/", "tools/")
    )
    (folder / ".ci" / "run").write_text(text)
    done = subprocess.run([shutil.which("bash"), folder / ".ci" / "run"])
    return done.returncode


def test_it_passes_without_a_fault(tmp_path):
    assert status(tmp_path, BLOCKS, "") == 0


@pytest.mark.parametrize("fault", [*STEPS, *PROGRAMS])
def test_a_fault_of_a_step_is_one_of_all(tmp_path, fault):
    assert status(tmp_path, BLOCKS, fault) != 0


@pytest.mark.parametrize(
    "blocks",
    [
        BLOCKS | {"compare": "false compare"},
        BLOCKS | {"compare": "false compare\ntrue"},
        BLOCKS | {"pytest": "true && false pytest"},
        {"compare": "true compare"},
    ],
)
def test_a_fault_of_the_readme_is_one_of_all(tmp_path, blocks):
    assert status(tmp_path, blocks, "") != 0


@pytest.mark.parametrize("name", ["old_faults", "mass_faults"])
def test_each_fault_is_put_into_one_place(name, monkeypatch):
    monkeypatch.syspath_prepend(CI)
    module = importlib.import_module(name)
    for fault in module.FAULTS:
        for name, old, _ in fault.changes:
            assert (CI.parent / name).read_text().count(old) == 1, fault.name
