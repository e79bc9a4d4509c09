"""Numbers with few digits, rounded outwards so that a printed bound is a bound."""

import decimal


def rounded_down(value: float | None, digits: int = 7) -> str:
    """Returns the value rounded down to some digits, or words for None."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def rounded_up(value: float | None, digits: int = 7) -> str:
    """Returns the value rounded up to significant digits, or words for None."""
    return _rounded(value, digits, decimal.ROUND_CEILING)


def _rounded(value: float | None, digits: int, rounding: str) -> str:
    if value is None:
        return "none known"
    context = decimal.Context(prec=digits, rounding=rounding)
    return str(context.create_decimal_from_float(value)).lower().replace("inity", "")
