"""The exponential between rational bounds, in integer arithmetic alone."""

from fractions import Fraction

BITS = 256


def bounds(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Returns rational bounds of e^x for x > 0.

    Args:
        exponent: The exponent x.

    Returns:
        A lower and an upper bound, multiples of 2^−256 some 2^−240 apart.

    Guarantees:
        The lower one is a partial sum of the series, every term rounded down. The
        upper one has its terms rounded up and stops where each further term is less
        than half of the last, so that they add up to less than the last.
    """
    up, down = exponent.numerator, exponent.denominator
    low = high = low_sum = high_sum = 1 << BITS
    count = 0
    while low or high > 1 or count < 2 * exponent:
        count += 1
        low = low * up // (down * count)
        high = -(-high * up // (down * count))
        low_sum += low
        high_sum += high
    return Fraction(low_sum, 1 << BITS), Fraction(high_sum + high, 1 << BITS)
