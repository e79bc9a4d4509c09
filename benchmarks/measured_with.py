"""What a benchmark's figures were measured with: its first line of output."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

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


def commit() -> str:
    """Returns the commit that is measured and its day; "" outside of a checkout.

    Where files differ from that commit, it says so.
    """
    command = ["git", "-C", str(pathlib.Path(__file__).parent)]
    try:
        asked = subprocess.run(
            [*command, "log", "-1", "--format=%h of %cs"],
            capture_output=True,
            text=True,
            check=True,
        )
        changed = subprocess.run(
            [*command, "diff", "--quiet", "HEAD", "--", "../dp_accounting_ext"],
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return asked.stdout.strip() + ", and changes" * bool(changed.returncode)
