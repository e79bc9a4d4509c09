"""Privacy profiles of the ways of drawing batches."""

import math

import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(1.5, 6, 2, 3, 1e-8)


def by_name(found):
    return {(each.scheme, each.group_size): each for each in found}


@pytest.fixture(scope="module")
def profiles():
    return by_name(delta_profile.profiles(RUN, group_sizes=(1, 3), num_points=5))


def test_there_is_a_profile_of_each_scheme_and_size(profiles):
    assert set(profiles) == {
        (name, size) for name in training_run.SCHEMES for size in (1, 3)
    }


def test_profiles_are_bands_that_fall(profiles):
    for profile in profiles.values():
        lower, upper = profile.delta_lower, profile.delta_upper
        assert len(lower) == len(upper) == len(profile.epsilons)
        assert (np.asarray(lower) <= upper).all()
        assert (np.diff(profile.epsilons) > 0).all()
        assert (np.diff(lower) <= 0).all() and (np.diff(upper) <= 0).all()


def test_profiles_end_below_the_smallest_delta(profiles):
    for profile in profiles.values():
        if profile.note:
            continue
        assert len(profile.epsilons) >= 5
        assert (np.asarray(profile.delta_upper[:-1]) >= RUN.delta).all()
        assert profile.delta_upper[-1] <= 1.01 * RUN.delta


def test_all_begin_at_one_epsilon(profiles):
    firsts = {profile.epsilons[0] for profile in profiles.values() if profile.epsilons}
    assert len(firsts) == 1 and min(firsts) > 0


@pytest.mark.parametrize("size", [1, 3])
def test_no_amplification_is_the_gaussian_in_closed_form(profiles, size):
    """k E steps of noise σ seen by K records: one of σ / (K √(k E))."""
    profile = profiles[training_run.NO_AMPLIFICATION, size]
    with mpmath.workdps(40):
        mean = size * mpmath.sqrt(2 * 3) / mpmath.mpf(RUN.noise_multiplier)
    for epsilon, lower, upper in zip(
        profile.epsilons, profile.delta_lower, profile.delta_upper, strict=True
    ):
        assert lower <= oracles.gaussian_delta(mean, epsilon) <= upper
        assert upper - lower <= 1e-9 * upper


def test_groups_have_less_privacy(profiles):
    ends = [profiles[scheme, 1].epsilons for scheme in training_run.SCHEMES]
    first, last = ends[0][0], max(each[-1] for each in ends)
    common = np.geomspace(first, last, 4).tolist()
    found = by_name(delta_profile.profiles(RUN, group_sizes=(1, 3), epsilons=common))
    for scheme in training_run.SCHEMES:
        single, group = profiles[scheme, 1], profiles[scheme, 3]
        pairs = zip(
            common,
            found[scheme, 3].delta_lower,
            found[scheme, 1].delta_upper,
            strict=True,
        )
        seen = [low > high for at, low, high in pairs if at <= single.epsilons[-1]]
        assert len(seen) >= 3 and all(seen)
        assert group.epsilons[-1] > single.epsilons[-1]


def test_groups_under_random_allocation_are_chained(profiles):
    notes = {name: each.note for name, each in profiles.items() if each.note}
    assert notes == {(training_run.RANDOM_ALLOCATION, 3): "chained"}


def test_bounds_are_the_accountants():
    run = training_run.TrainingRun(1.0, 10, 1, 1, 1e-12)
    found = by_name(delta_profile.profiles(run, epsilons=(2.0, 0.0, 1)))
    profile = found[training_run.POISSON_SAMPLING, 1]
    assert profile.epsilons == (0.0, 1.0, 2.0)
    accountant = ext.PLDAccountant().compose(
        training_run.event(training_run.POISSON_SAMPLING, run)
    )
    for i, epsilon in enumerate(profile.epsilons):
        bounds = (profile.delta_lower[i], profile.delta_upper[i])
        assert bounds == accountant.get_delta_bounds(epsilon)


def test_less_than_the_smallest_delta_everywhere():
    found = delta_profile.profiles(
        training_run.TrainingRun(1e9, 10, 1, 1, 0.5), num_points=3
    )
    for profile in found:
        assert len(profile.epsilons) == 1 and profile.delta_upper[0] < 0.5


def test_progress_is_told():
    seen = []
    delta_profile.profiles(
        RUN,
        epsilons=(1.0, 2.0),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, 3) for done in range(1, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": ()}, "epsilons must be finite and not negative"),
        ({"epsilons": (-1.0, 2.0)}, "epsilons must be finite and not negative"),
        ({"epsilons": (math.inf,)}, "epsilons must be finite and not negative"),
        ({"epsilons": (math.nan,)}, "epsilons must be a number"),
        ({"num_points": 2}, "num_points must be at least 3"),
        ({"num_points": 10**9}, "at most 10000"),
        ({"group_sizes": (0,)}, "group_size must be at least 1"),
        ({"group_sizes": (2000,)}, "group_size"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        delta_profile.profiles(RUN, **options)
