"""Blocks of bins from below: their matrices, written out."""

import correlated_oracles
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.correlated.chains import blocks_below


def below(block):
    """The matrix of a block, from its definition."""
    scales, places = np.array(block.scales), np.arange(block.length)
    chain = block.correlation ** abs(places[:, None] - places)
    return np.outer(scales, scales) * chain + block.own * np.eye(block.length)


@settings(max_examples=10)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(2, 9))
@example([1.0], 4)
def test_no_block_has_a_larger_covariance(tail, bins):
    """Neither where bins are alike, nor at the end, where they are not."""
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 2, 1.5)
    end = bins
    for block, number in blocks_below.cut_into_blocks(gram).items():
        for _ in range(number):
            places = slice(end - block.length, end)
            assert np.all(below(block) <= gram[places, places])
            end -= block.length
    assert end == 0


def test_bins_that_all_differ_are_blocks_as_well():
    """Of one bin each, and of rows that are no Toeplitz matrix's."""
    gram = np.array([[1.0, 0.5, 0.4], [0.5, 0.8, 0.3], [0.4, 0.3, 0.5]])
    ((block, number),) = blocks_below.cut_into_blocks(gram).items()
    assert number == 1
    assert np.all(below(block) <= gram)
    assert below(block).sum() > 0.9 * gram.sum()
