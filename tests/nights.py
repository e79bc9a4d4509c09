"""Rows of a test that are asked at night: `.ci/nightly` runs these."""

import pytest


def at_night(*rows):
    """Returns parameters of a test; a tuple has the values of several names."""
    values = (row if isinstance(row, tuple) else (row,) for row in rows)
    return [pytest.param(*each, marks=pytest.mark.nightly) for each in values]
