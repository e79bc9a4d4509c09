"""The side that a bound is on, and the dataset that holds the record."""

import enum


class Bound(enum.Enum):
    """Which side of the true privacy profile a pair certifies."""

    UPPER = "upper"
    LOWER = "lower"


class Direction(enum.Enum):
    """Which of the two adjacent datasets holds the record."""

    REMOVE = "remove"
    ADD = "add"
