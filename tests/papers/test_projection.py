"""The figure of paper 3, with few passes, is as the mathematics says."""

import numpy as np
import picture_checks
import pytest

from dp_accounting_ext.papers import projection


@pytest.fixture(scope="module")
def picture():
    return projection.figure_1(data=projection.ring(passes=(1, 20, 200)))


def test_the_figure_is_drawn_with_its_table(picture, tmp_path):
    picture_checks.check_bands(picture)
    picture_checks.check_files(picture, tmp_path)


def test_the_ring(picture):
    laws = picture_checks.curves_of(picture)
    for name in ("private distribution", "KL projection", "Wasserstein projection"):
        assert sum(laws[name].upper) == pytest.approx(1.0)
    cost, masses = projection.ring_cost(), np.array(laws["private distribution"].upper)
    reached = [
        projection.reaching_cost(masses, cost, np.array(laws[name].upper))
        for name in ("Wasserstein projection", "KL projection")
    ]
    assert reached[0] < 0.6 * reached[1]
    paths = picture_checks.curves_of(picture, 1)
    exact = paths["exact projection"].upper[0]
    assert exact == pytest.approx(reached[0] ** 0.5)
    finest = paths["λ = 0.0005 max C"].upper
    assert finest[0] > 2 * exact and exact <= finest[-1] < 1.01 * exact


def test_the_ring_for_another_epsilon():
    data = projection.ring(2.0, passes=(1, 10), regularizations=(0.01,))
    picture = projection.figure_1(2.0, data=data)
    assert "ε = 2" in picture.title
    labels = list(picture_checks.curves_of(picture, 1))
    assert labels == ["λ = 0.01 max C", "exact projection"]
