"""What a benchmark's figures were measured with: its first line of output."""

import importlib.metadata
import os
import platform

_USUAL = ("dp-accounting-ext", "dp-accounting", "numpy", "scipy")


def versions(*others: str) -> str:
    """Returns one line on the interpreter, the packages and the machine.

    Args:
        others: Distributions that are named where they are installed.
    """
    found = []
    for name in (*_USUAL, *others):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    return f"Python {platform.python_version()}, {', '.join(found)}; {machine}"
