"""Every step of `.ci/run` can fail, at a deliberate fault; faults fit the code."""

import ast
import importlib
import importlib.util
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

from dp_accounting import dp_event as stock
from dp_accounting.privacy_accountant import NeighboringRelation
import pytest

import dp_accounting_ext as ext

CI = pathlib.Path(__file__).parent.parent / ".ci"
BLOCKS = {"compare": "true compare", "pytest": "true && true pytest"}
STEPS = ("ruff check", "ruff format", "mypy", "pip install", "check_site")
STEPS += ("pictures.py --check", "run.py")
PROGRAMS = (".ci/oldest", ".ci/wheel", "tools/mkdocs")
# What concerns no part of the package alone: with all of them, every night.
OWN = {"tests/test_benchmarks.py", "tests/test_ci.py"}


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


def test_every_script_is_run_by_a_workflow():
    """By its name, in the workflow or in a script that is run itself."""
    root = CI.parent
    known = (root / ".github/workflows/ci.yml").read_text()
    known += (root / "mkdocs.yml").read_text()
    scripts = {path for path in CI.iterdir() if path.suffix in ("", ".py")}
    left = {path for path in scripts if path.is_file()}
    while found := {p for p in left if re.search(rf"\b{p.stem}\b", known)}:
        left -= found
        known += "".join(path.read_text() for path in found)
    assert not left


def test_each_fault_is_put_into_one_place():
    module = script("mass_faults")
    for fault in module.FAULTS:
        _, code = module.place_of(CI.parent, fault)
        changed = code.replace(fault.old, fault.new)
        assert changed != code, fault.name
        ast.parse(changed)  # Of code that is no code, nothing would be tested.


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


@pytest.mark.parametrize(
    ("old", "new", "words", "is_fault"),
    [
        ((1.0, 1.1), (1.0, 1.1), [], False),
        ((1.0, 1.1), (1.11, 1.2), ["Brackets that do not meet"], True),
        ((1.0, 1.1), (0.8, 0.99), ["Brackets that do not meet"], True),
        ((1.0, 1.1), (math.nan, 1.1), ["Bounds that are not in order"], True),
        ((1.0, 1.1), None, ["Refused now: an error"], True),
        (None, (1.0, 1.1), [], False),
        ((1.0, 1.1), (0.9, 1.1), ["wider: 9.09% to 18.18%"], False),
        ((1.0, math.inf), (1.0, 1.1), [], False),
    ],
)
def test_what_is_told_of_two_revisions(old, new, words, is_fault, capsys):
    module = script("beside")

    class Stub:
        def __init__(self, bounds):
            self.bounds = bounds

        def ask(self, setting):
            error = "" if self.bounds else "an error"
            return module.Answer(0.1, self.bounds, error)

    asked = module.settings(2, 1, ["training"])
    assert module.compare(Stub(old), Stub(new), asked) == 2 * is_fault
    told = capsys.readouterr().out
    for word in words:
        assert told.count(word) == 2
    assert words or "Setting(" not in told
    slow = module.judged(module.Answer(1.0, (0.0, 1.0)), module.Answer(3, (0.0, 1.0)))
    assert slow == ["slower: 1.00 to 3.00 s"]


@pytest.mark.nightly
def test_a_revision_answers_settings_of_every_kind():
    module = script("beside")
    revision = module.Revision(CI.parent)
    try:
        answer = revision.ask(module.Setting("", "stock.GaussianDpEvent(1.0)", 1e-5))
        assert answer.bounds == pytest.approx((4.377178, 4.377178), rel=1e-6)
        wrong = revision.ask(module.Setting("", "stock.GaussianDpEvent(-1.0)", 1e-5))
        assert wrong.bounds is None and "ValueError" in wrong.error
    finally:
        revision.close()
    # Every kind is an event that an accountant takes.
    for setting in module.settings(3 * len(module.KINDS), 7, list(module.KINDS)):
        event = eval(setting.event, {"stock": stock, "ext": ext})
        relation = NeighboringRelation[setting.relation]
        assert ext.PLDAccountant(relation).supports(event), setting


def test_what_is_asked_at_night_is_asked_where_what_it_protects_was_touched():
    """Each file with such tests is under a path of the map, whose paths are there."""
    root = CI.parent
    loader = importlib.machinery.SourceFileLoader("nightly", str(CI / "nightly"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("nightly", loader)
    )
    loader.exec_module(module)
    for tests, protected in module.PROTECTS.items():
        assert all((root / path).exists() for path in (tests, *protected))
    folders = [path for path in module.PROTECTS if path != "tests"]
    whole = module.PROTECTS["tests"]
    for path in (root / "tests").rglob("test_*.py"):
        name = path.relative_to(root).as_posix()
        if re.search(r"nights\.|mark\.nightly|nightly = ", path.read_text("utf-8")):
            home = f"{module.PACKAGE}{name.split('/')[1]}/"
            assert name.startswith(tuple(folders)) or home in whole or name in OWN, name
