"""Bounds in few digits, rounded outwards: what is printed is a bound, too."""

import decimal


def rounded_down(value: float | None, digits: int = 7) -> str:
    """Returns so many significant digits, not above the value; of None, words."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def rounded_up(value: float | None, digits: int = 7) -> str:
    """Returns so many significant digits, not below the value; of None, words."""
    return _rounded(value, digits, decimal.ROUND_CEILING)


def _rounded(value: float | None, digits: int, rounding: str) -> str:
    if value is None:
        return "none known"
    context = decimal.Context(prec=digits, rounding=rounding)
    return str(context.create_decimal_from_float(value)).lower().replace("inity", "")
