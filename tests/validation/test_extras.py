"""What a missing library is told to be installed by."""

import pathlib
import re

import dp_accounting_ext
from dp_accounting_ext.validation import extras


def test_a_library_is_installed_by_its_extra():
    error = ModuleNotFoundError("", name="panel.io")
    assert extras.missing(error) == (
        "panel must be installed. Found none; in the checkout, run python -m pip "
        "install '.[explore]'."
    )
    error = ModuleNotFoundError("", name="numpy")
    assert extras.missing(error).endswith("run python -m pip install numpy.")


def test_extras_are_those_of_the_project():
    project = pathlib.Path(dp_accounting_ext.__file__).parents[1] / "pyproject.toml"
    names = re.findall(r"^([\w-]+) = \[", project.read_text("utf-8"), re.MULTILINE)
    assert set(extras._EXTRAS.values()) <= set(names)
