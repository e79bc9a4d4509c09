"""What is public: documented, offered by `dir`, and shown as more than an address."""

import importlib
import importlib.util
import inspect
import pkgutil
from typing import TypeVar

import pytest

import dp_accounting_ext as ext


def modules():
    """All modules, but those that import a library which is not installed."""
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
def test_public_classes_say_what_they_are_and_what_their_fields_are(name):
    """An event "represents"; every argument of a constructor has its line."""
    exported = getattr(ext, name)
    doc = inspect.getdoc(exported)
    if name.endswith("Event"):
        assert doc.startswith("Represents ")
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
    for name in ("PLDAccountant", "pld", "studies"):
        assert name in dir(ext)
    assert dir(ext.pld) == sorted(ext.pld.__all__)
    assert "np" not in dir(ext.pld) and "re" not in dir(ext.studies.statement)


def test_no_class_leaves_its_display_to_python():
    """Else an instance would show as its address."""
    for module in [ext, *PUBLIC]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("dp_acc"):
                kept = value.__repr__ is not object.__repr__
                assert kept or inspect.isabstract(value), name
