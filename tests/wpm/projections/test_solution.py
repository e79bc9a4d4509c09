"""Solutions of users, one or many."""

import numpy as np

from dp_accounting_ext.wpm.projections import solution


def test_joined_solutions_keep_their_order():
    one = solution.one_user(np.array([0.5, 0.5]), np.zeros(2), 1.0, 3, True)
    other = solution.one_user(np.array([0.1, 0.9]), np.ones(2), 2.0, 4, False)
    whole = solution.joined([one, other], 2)
    np.testing.assert_array_equal(whole.values, [1.0, 2.0])
    np.testing.assert_array_equal(whole.converged, [True, False])
    assert whole.distributions.shape == (2, 2)


def test_nobody_is_an_empty_solution():
    none = solution.joined([], 7)
    assert none.distributions.shape == none.prices.shape == (0, 7)
    assert none.values.shape == none.iterations.shape == (0,)


def test_a_result_of_one_is_numbers():
    arrays = [np.array([[0.2, 0.8]])] + [np.array([x]) for x in (2.0, 1.5, 0.0, 3)]
    found = solution.ProjectionResult(*arrays, np.array([True])).first()
    assert (found.value, found.gap, found.converged) == (2.0, 0.5, True)
    assert found.distribution.shape == (2,)
