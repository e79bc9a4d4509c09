"""Everything public is documented; a method that overrides another may be by it."""

import importlib
import importlib.util
import inspect
import pkgutil

import pytest

import dp_accounting_ext

# Modules that import another library, which an extra installs.
LIBRARIES = {
    "integrations.jax_privacy": "jax_privacy",
    "integrations.jax_strategies": "jax_privacy",
    "integrations.opacus": "opacus",
    "integrations.opacus_accountants": "opacus",
    "integrations.opacus_clipping": "opacus",
    "integrations.opacus_draws": "opacus",
    "integrations.opacus_loaders": "opacus",
    "integrations.opacus_processes": "opacus",
}


def module_names():
    found = pkgutil.walk_packages(dp_accounting_ext.__path__, "dp_accounting_ext.")
    missing = {
        f"dp_accounting_ext.{name}"
        for name, library in LIBRARIES.items()
        if importlib.util.find_spec(library) is None
    }
    return [
        info.name
        for info in found
        if not info.name.endswith("__main__") and info.name not in missing
    ]


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


@pytest.mark.parametrize("name", module_names())
def test_all_that_is_public_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__
    found = dict(public(module, name))
    assert [what for what, doc in found.items() if not doc] == []


@pytest.mark.parametrize("name", dp_accounting_ext.__all__)
def test_public_classes_say_what_they_are_and_what_their_fields_are(name):
    """An event "represents"; every argument of a constructor has its line."""
    exported = getattr(dp_accounting_ext, name)
    doc = inspect.getdoc(exported)
    if name.endswith("Event"):
        assert doc.startswith("Represents ")
        assert "Source: https://arxiv.org/abs/" in doc
    for argument in inspect.signature(exported).parameters:
        assert f"{argument}:" in doc, argument
