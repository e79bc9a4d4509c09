"""Laws of groups of steps keep their means when they get fewer atoms."""

import math

import numpy as np
import pytest

from dp_accounting_ext.amplification import group_laws


@pytest.mark.parametrize("most", [2, 4, 24])
def test_fewer_values_have_the_same_means(most):
    """In each row, which H fixes; the first row has only zeros, the last one value."""
    rng = np.random.default_rng(4)
    rows = np.repeat(np.arange(5), [3, 40, 2, 60, 1])
    products = np.concatenate(
        [np.sort(rng.lognormal(0, 3, size)) for size in (3, 40, 2, 60, 1)]
    )
    products[:3] = 0.0
    law = group_laws.GroupLaw(
        means=np.array([0.0, 0.5, 1.0, 2.0, 9.0]),
        rows=rows,
        products=products,
        masses=rng.lognormal(-5, 3, rows.size),
        sizes=(3, 3),
        top=1.0,
        mass_error=0.0,
        place_error=0.0,
    )
    coarse = law.coarser(most)
    for row in range(5):
        old, new = law.rows == row, coarse.rows == row
        assert new.sum() <= most + 2
        assert set(coarse.products[new]) <= set(products[old])
        for power in (0, 1):
            before = law.masses[old] @ products[old] ** power
            after = coarse.masses[new] @ coarse.products[new] ** power
            assert math.isclose(before, after, rel_tol=1e-13)
        # By Jensen all convex functions grow.
        for place in products[old]:
            before = law.masses[old] @ np.maximum(products[old] - place, 0)
            after = coarse.masses[new] @ np.maximum(coarse.products[new] - place, 0)
            assert after >= before * (1 - 1e-12)
