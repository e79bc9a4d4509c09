"""Random allocation: the record takes part in a random set of the steps."""

from collections.abc import Sequence
import dataclasses
import math
import operator

from flint import arb

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lines
from dp_accounting_ext.verify import runs

Channel = channels.Channel
Row = channels.Row
Side = channels.Side
# Tuning: the most products of masses in one allocation, and the fewest outputs to which
# channels are reduced for that.
_MOST_PRODUCTS, _FEWEST = 4_000_000, 8


def allocated(
    steps: Sequence[tuple[Channel, int]], selected: int, most: int, rare: float = 1e-40
) -> Channel:
    """Returns the channel of several steps, k of which the record takes part in.

    The set of these steps is drawn uniformly at random.

    Blocks of steps are joined one after another. Row j of a block is the sum, over all
    sets of j of its steps, of the probabilities of the outputs if the record takes part
    in the steps of the set.

    Args:
        steps: Channels of a step, and the number of steps with each channel.
        selected: The number of steps in which the record takes part.
        most: The approximate number of outputs to which products are reduced.
        rare: Probability of tails that may be truncated, as in `runs.power`.

    Raises:
        TooLargeError: If the channel cannot be bounded with few enough outputs.
    """
    parts = channels.alike([channel for channel, _ in steps])
    numbers = [number for _, number in steps]
    total = sum(numbers)
    if selected == total:
        parts = [runs.power(c, n, most) for c, n in zip(parts, numbers, strict=True)]
        found = parts[0]
        for part in parts[1:]:
            found = channels.product(found, part, most)
        return found
    if parts[0].side is not Side.EXACT and selected == 1:
        line = lines.one_of(list(zip(parts, numbers, strict=True)), most, rare)
        if line is not None:
            return line
    # Joining two blocks multiplies every two outputs, for each pair of row indices.
    pairs = (selected + 1) * (selected + 2) * total.bit_length()
    most = min(most, max(math.isqrt(_MOST_PRODUCTS // pairs), _FEWEST))
    if parts[0].side is Side.HIGH and selected > 1:
        # Channels of more than two rows cannot be split: all outputs are listed.
        sizes = [min(max(int(6e4 ** (1 / total) / 2), 2), c.size) for c in parts]
        parts = [channels.reduced(c, n) for c, n in zip(parts, sizes, strict=True)]
        listed = math.prod(c.size**n for c, n in zip(parts, numbers, strict=True))
        if listed > 6e4:
            raise channels.TooLargeError
    joined: Channel | None = None
    for channel, number in zip(parts, numbers, strict=True):
        base = channels.reduced(channel, most)
        block: Channel | None = None
        for digit in bin(number)[2:]:
            if block is not None:
                block = _joined(block, block, selected, most)
            if digit == "1":
                block = base if block is None else _joined(block, base, selected, most)
        assert block is not None
        joined = block if joined is None else _joined(joined, block, selected, most)
    assert joined is not None
    sets = arb(math.comb(total, selected))
    rows = [joined.rows[0], [x / sets for x in joined.rows[selected]]]
    return channels.reduced(dataclasses.replace(joined, rows=rows), most)


def _joined(one: Channel, other: Channel, selected: int, most: int) -> Channel:
    """Returns the block of the steps of two blocks, with rows j ≤ `selected`."""
    channels.check_size(one, other)
    rows = []
    for j in range(min(selected, len(one.rows) + len(other.rows) - 2) + 1):
        row: Row | None = None
        for i in range(len(one.rows)):
            if 0 <= j - i < len(other.rows):
                part = channels.outer(one.rows[i], other.rows[j - i])
                row = part if row is None else [*map(operator.add, row, part)]
        assert row is not None
        rows.append(row)
    # Each ratio is a sum of products of at most `selected` of the blocks' ratios.
    return channels.reduced(Channel(rows, one.side, one.blur + other.blur), most)
