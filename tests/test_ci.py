"""Every step of `.ci/run` can fail, at a deliberate fault; old faults fit the code."""

import importlib
import importlib.util
import json
import math
import pathlib
import shutil
import subprocess
import sys

import pytest

CI = pathlib.Path(__file__).parent.parent / ".ci"
BLOCKS = {"compare": "true compare", "pytest": "true && true pytest"}
STEPS = ("ruff check", "ruff format", "mypy", "pip install", "check_site")
STEPS += ("pictures.py --check", "run.py")
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


def script(name):
    spec = importlib.util.spec_from_file_location(name, CI / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """The script, with one picture and table that are quickly made."""
    module = script("pictures")
    module.epsilon = 1.0

    def make(small):
        numbers = {"ε": module.epsilon / (1 + small)}
        rows = [["a", "1"], ["b", "2"]]
        return module.Made(numbers, lambda path: path.write_bytes(b"picture"), rows)

    page = "# Page\n\n|name|number|\n|---|---|\n|old|0|\n\nText.\n"
    (tmp_path / "page.md").write_text(page)
    shown = module.Shown(make, "one.png", "page.md", "|name|")
    monkeypatch.setattr(module, "DOCS", tmp_path)
    monkeypatch.setattr(module, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(module, "SHOWN", {"one": shown})
    assert module.main(["--check"]) == 1  # It was never made.
    assert module.main([]) == 0
    return module


def test_pictures_that_were_just_made_are_not_stale(pictures):
    for how in (["--check"], ["--check", "--whole"]):
        assert pictures.main(how) == 0
    page = (pictures.DOCS / "page.md").read_text()
    assert page.endswith("|---|---|\n|a|1|\n|b|2|\n\nText.\n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda at: setattr(at, "epsilon", 1.01), "ε is 0.505 now, and was 0.5"),
        (lambda at: (at.DOCS / "one.png").write_bytes(b"other"), "not the file"),
        (
            lambda at: (at.DOCS / "page.md").write_text("\n|name|\n|-|\n|a|3|\n"),
            "not the one that was made",
        ),
        (lambda at: setattr(at, "epsilon", math.nan), "ε is nan now"),
    ],
)
def test_a_stale_picture_is_told(pictures, fault, words, capsys):
    fault(pictures)
    assert pictures.main(["--check"]) == 1
    assert words in capsys.readouterr().out


def test_what_the_script_makes_is_there_and_recorded():
    module = script("pictures")
    made = {shown.picture for shown in module.SHOWN.values()} - {""}
    assert made <= {path.name for path in module.DOCS.rglob("*.png")}
    assert json.loads(module.RECORD.read_text("utf-8")).keys() == module.SHOWN.keys()
