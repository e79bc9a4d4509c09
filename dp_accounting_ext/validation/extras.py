"""Libraries that only some functions need: the extra that installs each of them."""

_EXTRAS = {
    "distributed": "dask",
    "flint": "verify",
    "jax_privacy": "jax-privacy",
    "matplotlib": "plot",
    "opacus": "opacus",
    "ot": "wpm",
    "pandas": "files",
    "panel": "explore",
    "pyarrow": "files",
}


def missing(error: ImportError) -> str:
    """Returns one sentence on a library that is missing, with what installs it.

    Args:
        error: What its import raised.
    """
    name = (error.name or "a library").partition(".")[0]
    run = f"run python -m pip install {name}"
    if name in _EXTRAS:
        # From the checkout: no index has this package.
        run = f"in the checkout, run python -m pip install '.[{_EXTRAS[name]}]'"
    return f"{name} must be installed. Found none; {run}."
