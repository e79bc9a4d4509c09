"""Runs the command line: python -m dp_accounting_ext."""

import sys

import dp_accounting_ext


def main() -> int:
    """Runs a command; for the version alone nothing else is imported.

    Returns:
        The exit status, as of `command_line.main`.
    """
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"dp-accounting-ext {dp_accounting_ext.__version__}")
        return 0
    from dp_accounting_ext import command_line

    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())
