"""Pieces of laws: masses on adjacent cells of one level."""

import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import sums

Axis = atom_laws.Axis
# The index of the first cell, on the piece's level, and (rows, cells) masses.
Piece = tuple[int, FloatArray]


def halved(piece: Piece, width: float, law: atom_laws.Law) -> Piece:
    """Returns a piece moved up one level, to cells of twice the given width.

    Odd nodes are split between the two nodes beside them (upper) or join the lower one
    (lower).
    """
    start, masses = piece
    odd_first = start & 1
    odd = masses[:, 1 - odd_first :: 2]
    even = masses[:, odd_first::2]
    out = np.zeros((len(masses), masses.shape[1] // 2 + 2))
    out[:, odd_first : odd_first + even.shape[1]] = even
    number = odd.shape[1]
    if law.bound is Bound.UPPER:
        lower = upper = 0.5
        if law.axis is Axis.LOSS:
            lower, upper = float(special.expit(-width)), float(special.expit(width))
        out[:, :number] += lower * odd
        out[:, 1 : 1 + number] += upper * odd
    elif law.axis is Axis.RATIO or width <= atom_laws.FURTHEST_MOVE:
        out[0, :number] += odd[0]
        moved = math.exp(-width) if law.axis is Axis.LOSS else 1.0
        out[1:, :number] += moved * odd[1:]
        if law.keeps_rests:
            # Each odd node is one width above the lower node that it joins.
            out[1, :number] += width * odd[0]
    return start >> 1, out


def convolved(one: Piece, other: Piece, law: atom_laws.Law) -> Piece:
    """Returns the law of the sum of two pieces of one level, of laws of one kind."""
    (start, x), (begin, y) = one, other
    if law.is_series:
        return start + begin, sums.product_of_series(x, y)
    if law.bound is Bound.LOWER and law.axis is Axis.RATIO:
        met = sums.products(x, y, law.row_degrees, sums.convolve)
        return start + begin, met
    found = [sums.convolve(*rows) for rows in zip(x, y, strict=True)]
    return start + begin, np.array(found)


def added(one: Piece | None, other: Piece) -> Piece:
    """Returns the masses of two pieces of one level added up; the first may be None."""
    if one is None:
        return other
    (start, x), (begin, y) = one, other
    first = min(start, begin)
    last = max(start + x.shape[1], begin + y.shape[1])
    out = np.zeros((len(x), last - first))
    out[:, start - first : start - first + x.shape[1]] = x
    out[:, begin - first : begin - first + y.shape[1]] += y
    return first, out


def joined(one: Piece | None, other: Piece | None) -> Piece | None:
    """Returns the masses of two pieces of one level added up; either may be None."""
    return one if other is None else added(one, other)
