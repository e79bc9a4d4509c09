"""Events of jax_privacy's strategies, and its own calibration with our accountants."""

import copy
import dataclasses
import json
import math
import pickle
import statistics

import dp_accounting
import jax.numpy as jnp
from jax_privacy import accounting
from jax_privacy import batch_selection
from jax_privacy.experimental import execution_plan
from jax_privacy.matrix_factorization import buffered_toeplitz
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import risk
from dp_accounting_ext.integrations import jax_privacy as certified

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
Relation = dp_accounting.NeighboringRelation
Partition = batch_selection.PartitionType
Poisson = batch_selection.CyclicPoissonSampling
Bins = batch_selection.BallsInBinsSampling
Fixed = batch_selection.FixedBatchSampling
Apart = batch_selection.BMinSepSampling
Tracked = certified.StrategyAccountant
DELTA = 1e-6
NOISE = 1.5
STEP = dp_accounting.GaussianDpEvent(NOISE)


def repeated(event, count):
    return dp_accounting.SelfComposedDpEvent(event, count)


def epsilon(event, relation=Relation.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event).get_epsilon(DELTA)


SAMPLED = dp_accounting.PoissonSampledDpEvent(0.1, STEP)
INDEPENDENT = {"partition_type": Partition.INDEPENDENT}
REPLACED = {"num_examples": 200, "neighboring_relation": Relation.REPLACE_ONE}
SPECIAL = {"neighboring_relation": Relation.REPLACE_SPECIAL}
BANDED = {"matrix": [1.0, 0.5]}
Truncated = dp_accounting.TruncatedSubsampledGaussianDpEvent
Without = dp_accounting.SampledWithoutReplacementDpEvent
With = dp_accounting.SampledWithReplacementDpEvent
Allocated, Schedule = ext.RandomAllocationEvent, ext.ScheduledAllocationEvent
UNEVEN = Schedule([repeated(STEP, 3), repeated(STEP, 2)], [10, 10], 20)
EVENTS = [
    (Poisson(0.1, 60), {}, repeated(SAMPLED, 60)),
    (
        Poisson(0.1, 62, cycle_length=4, **INDEPENDENT),
        {},
        ext.CyclicPoissonEvent([1.0], NOISE, 0.1, 4, 62),
    ),
    (
        Poisson(0.1, 60, truncated_batch_size=30),
        {"num_examples": 200, **SPECIAL},
        repeated(Truncated(200, 0.1, 30, NOISE), 60),
    ),
    (
        Poisson(0.1, 60, truncated_batch_size=10, cycle_length=4),
        {"num_examples": 202, **SPECIAL},
        repeated(Truncated(50, 0.1, 10, NOISE), 15),
    ),
    (Bins(60, 20), {}, Allocated(repeated(STEP, 3), 1, 20)),
    (Bins(50, 20), {}, UNEVEN),
    (Bins(7, 20), {}, Schedule([repeated(STEP, 1)], [7], 20)),
    (Bins(12, 4), BANDED, ext.MatrixAllocationEvent([1.0, 0.5], NOISE, 4, 3)),
    (
        Apart(0.1, 12, 4, warm_start=False),
        BANDED,
        ext.MinSepSamplingEvent([1.0, 0.5], NOISE, 0.1, 4, 12, False),
    ),
    (Apart(0.1, 12, 4), {}, ext.MinSepSamplingEvent([1.0], NOISE, 0.1, 4, 12)),
    (Fixed(20, 10), REPLACED, repeated(Without(200, 20, STEP), 10)),
    (Fixed(20, 10, replace=True), REPLACED, repeated(With(200, 20, STEP), 10)),
]


@pytest.mark.parametrize(("strategy", "options", "expected"), EVENTS)
def test_events_of_strategies(strategy, options, expected):
    event = certified.from_strategy(strategy, NOISE, **options)
    assert event == expected
    relation = options.get("neighboring_relation", Relation.ADD_OR_REMOVE_ONE)
    assert 0 < epsilon(event, relation) < math.inf
    users = batch_selection.UserSelectionStrategy(strategy, 2)
    assert certified.from_strategy(users, NOISE, **options) == expected


def test_groups_of_cyclic_samples_are_secret():
    """The bracket is that of a mixture over groups, not of a group that is known."""
    strategy = Poisson(1.0, 8, cycle_length=4, **INDEPENDENT)
    tracked = Tracked(strategy, NOISE)
    assert len(list(tracked.batch_iterator(100, 1))) == 8
    found = tracked.get_epsilon_bounds(DELTA)
    once = Allocated(repeated(STEP, 2), 1, 4)
    assert found == ext.PLDAccountant().compose(once).get_epsilon_bounds(DELTA)
    # With a known group it is a Gaussian mechanism, of which it is no lower bound.
    assert found[1] < 0.9 * epsilon(repeated(STEP, 2))


@pytest.mark.parametrize("relation", [Relation.REPLACE_SPECIAL, Relation.REPLACE_ONE])
def test_groups_of_equal_size_are_known(relation):
    """Two examples in groups of one: the outputs reveal where the other one is."""
    event = certified.from_strategy(
        Poisson(1.0, 2, cycle_length=2), NOISE, neighboring_relation=relation
    )
    found = epsilon(event, relation)
    assert found >= epsilon(STEP, relation)
    # The other example moves a coordinate of its own in one of the steps. The larger of
    # its two outputs is in its step with this probability.
    seen = statistics.NormalDist().cdf(1 / (NOISE * math.sqrt(2)))
    steps = np.linspace(-8, 9, 1701)
    density = np.exp(-(steps**2) / 2) * 0.01 / math.sqrt(2 * math.pi)
    ratios = np.exp(steps / NOISE - 0.5 / NOISE**2)
    ratio = seen * ratios[:, np.newaxis] + (1 - seen) * ratios
    more = np.maximum(ratio - math.exp(found), 0.0)
    assert density @ more @ density <= DELTA


@pytest.mark.parametrize(
    ("rate", "column", "expected"),
    [
        (0.1, [1.0], repeated(SAMPLED, 16)),
        (
            0.1,
            [1.0, 0.0, 0.0, 0.0, 0.5],
            ext.CyclicPoissonEvent([1.0, 0.0, 0.0, 0.0, 0.5], NOISE, 0.1, 4, 62),
        ),
        # The first row has 1, and the fifteen rows after it in its group have 1 + 0.5.
        (1.0, [1.0, 0.0, 0.0, 0.0, 0.5], NOISE / math.sqrt(1 + 15 * 1.5**2)),
    ],
)
def test_columns_of_groups_of_equal_size(rate, column, expected):
    event = certified.from_strategy(
        Poisson(rate, 62, cycle_length=4),
        NOISE,
        matrix=column,
        **SPECIAL,
    )
    if rate == 1:
        assert expected * (1 - 1e-11) < event.noise_multiplier <= expected
    elif len(column) > 1:
        assert event == expected
    else:
        ours, theirs = (epsilon(e, Relation.REPLACE_SPECIAL) for e in (event, expected))
        assert theirs <= ours <= theirs * (1 + 1e-9)


@pytest.mark.parametrize(
    "column", [[1.0, 0.6, 0.3, 0.0], [1.0, 0.6, 0.3, 0.1, 0.1], [1.0]]
)
def test_bands_on_cyclic_samples(column):
    strategy = Poisson(0.1, 62, cycle_length=4, **INDEPENDENT)
    event = certified.from_strategy(strategy, NOISE, matrix=column)
    assert event == ext.CyclicPoissonEvent(column, NOISE, 0.1, 4, 62)
    # A shorter run is the beginning of a longer one.
    tracked = Tracked(strategy, NOISE, matrix=column)
    batches = tracked.batch_iterator(100, 1)
    for _ in range(10):
        next(batches)
    (shorter,) = tracked.event().events
    assert shorter == ext.CyclicPoissonEvent(column, NOISE, 0.1, 4, 10)


def test_buffered_noise_with_balls_in_bins():
    blt = buffered_toeplitz.BufferedToeplitz.build(
        [0.5, 0.9], [0.2, 0.1], dtype=jnp.float32
    )
    event = certified.from_strategy(Bins(12, 4), NOISE, matrix=blt)
    dense = [float(x) for x in blt.toeplitz_coefs(12)]
    np.testing.assert_allclose(event.strategy, dense, rtol=1e-6)
    assert (event.num_bins, event.num_epochs) == (4, 3)
    event = certified.from_strategy(Poisson(0.1, 12), NOISE, matrix=blt)
    np.testing.assert_allclose(event.strategy, dense, rtol=1e-6)
    assert (event.cycle_length, event.num_steps) == (1, 12)


class Nearly(Poisson):
    """A subclass may draw otherwise."""


SPLIT = {"truncated_batch_size": 3, "partition_type": Partition.INDEPENDENT}
REFUSED = [
    (Apart(0.1, 60, 4, truncated_batch_size=9), {}, "BMinSepSampling with truncated_b"),
    (
        Poisson(0.1, 60, truncated_batch_size=9),
        BANDED,
        "CyclicPoissonSampling with truncated_batch_size and more bands than",
    ),
    (Apart(0.1, 60, 2), {"matrix": [1.0, 0.5, 0.5]}, "than min_sep. Found 3 and 2"),
    (Nearly(0.1, 60), {}, "Nearly"),
    (Fixed(20, 10), {"num_examples": 9, "matrix": [1.0, 0.5]}, "FixedBatchSampling"),
    (Poisson(0.1, 60, cycle_length=4), {}, "must be INDEPENDENT"),
    (Poisson(0.1, 60, cycle_length=4, **SPLIT), {"num_examples": 9}, "be EQUAL_SPLIT"),
    (Fixed(20, 10), {}, "num_examples must be given"),
    (Bins(13, 4), BANDED, "multiple of cycle_length"),
    (Bins(12, 4), {"matrix": np.eye(12)}, "Toeplitz"),
    (Bins(0, 4), {}, "iterations"),
    (Poisson(0.1, 0), BANDED, "iterations must be at least 1. Found 0"),
    ("Poisson", {}, "strategy must be"),
    *(
        (strategy, {"matrix": column}, "matrix must begin with a positive coeff")
        for strategy in (Poisson(0.1, 2), Bins(2, 1), Apart(0.1, 2, 3))
        for column in ([0.0, 0.0, 1.0], [0.0], [])
    ),
    *(
        (Poisson(0.1, 60), {"noise_multiplier": noise}, "noise_multiplier")
        for noise in (-1.0, math.nan, "1")
    ),
]


@pytest.mark.parametrize(("strategy", "options", "message"), REFUSED)
def test_what_is_not_covered_is_refused_by_name(strategy, options, message):
    error = dp_accounting.UnsupportedEventError, ValueError, TypeError
    with pytest.raises(error, match=message):
        certified.from_strategy(strategy, **{"noise_multiplier": NOISE, **options})


def test_steps_are_counted_as_they_are_handed_out():
    strategy = Bins(60, 20)
    tracked = Tracked(strategy, NOISE)
    with pytest.warns(UserWarning, match="Train on tracked.batch_iterator"):
        assert tracked.get_epsilon_bounds(DELTA) == (0, 0)
    batches = list(tracked.batch_iterator(100, 0))
    expected = list(strategy.batch_iterator(100, 0))
    assert all(map(np.array_equal, batches, expected)) and len(batches) == 60
    whole = certified.from_strategy(strategy, NOISE)
    lower, upper = tracked.get_epsilon_bounds(DELTA)
    assert lower <= upper == epsilon(whole)
    assert risk.advantage(tracked.pld_accountant())[1] < 1


def test_a_run_that_is_resumed_draws_anew():
    tracked = Tracked(Bins(60, 20), NOISE)
    for number, _ in enumerate(tracked.batch_iterator(100, 0), start=1):
        if number == 33:
            break
    state = json.loads(json.dumps(tracked.state_dict()))
    resumed = Tracked(Bins(60, 20), NOISE)
    resumed.load_state_dict(state)
    assert resumed.get_epsilon_bounds(DELTA) == tracked.get_epsilon_bounds(DELTA)
    list(resumed.batch_iterator(100, 1))
    both = [certified.from_strategy(Bins(n, 20), NOISE) for n in (33, 60)]
    assert resumed.event() == dp_accounting.ComposedDpEvent(both)
    for bad in ({"draws": [-1]}, {"draws": 3}, {"draws": None}, {"began": None}):
        with pytest.raises((TypeError, ValueError), match="draws|began"):
            resumed.load_state_dict({**state, **bad})
    assert resumed.event() == dp_accounting.ComposedDpEvent(both)
    with pytest.warns(UserWarning, match="forgets 93 steps that ran"):
        resumed.load_state_dict(state)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937])
def test_a_run_that_is_resumed_with_the_seed_of_its_start(kind):
    """Identical batches in both halves have twice the loss, not that of two draws."""
    first = Tracked(Poisson(0.1, 30), NOISE)
    list(first.batch_iterator(1000, np.random.Generator(kind(0))))
    resumed = Tracked(Poisson(0.1, 30), NOISE)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    with pytest.raises(RuntimeError, match="another seed where a run is resumed"):
        resumed.batch_iterator(1000, np.random.Generator(kind(0)))
    assert len(list(resumed.batch_iterator(1000, 1))) == 30
    assert resumed.event() == dp_accounting.ComposedDpEvent([repeated(SAMPLED, 30)] * 2)


@pytest.mark.parametrize(
    ("strategy", "noise", "options"),
    [
        (Poisson(0.2, 30), NOISE, {}),
        (Poisson(0.1, 31), NOISE, {}),
        (Poisson(0.1, 30), 2 * NOISE, {}),
        (Poisson(0.1, 30), NOISE, {"matrix": [1.0, 0.1]}),
        (Poisson(0.1, 30), NOISE, {"num_examples": 100}),
        (Poisson(0.1, 30), NOISE, {"neighboring_relation": Relation.REPLACE_ONE}),
    ],
)
def test_a_checkpoint_of_other_steps(strategy, noise, options):
    first = Tracked(Poisson(0.1, 30), NOISE)
    list(first.batch_iterator(100, 0))
    other = Tracked(strategy, noise, **options)
    with pytest.raises(ValueError, match="same strategy, noise and options"):
        other.load_state_dict(first.state_dict())
    assert not any(other.state_dict()["draws"])


def test_correlated_noise_is_not_resumed():
    """It is refused before a batch is handed out, and ε of what ran is kept."""
    tracked = Tracked(Bins(8, 4), NOISE, matrix=[1.0, 0.5])
    early = tracked.batch_iterator(100)
    list(tracked.batch_iterator(100))
    found = tracked.get_epsilon_bounds(DELTA)
    resumed = Tracked(Bins(8, 4), NOISE, matrix=[1.0, 0.5])
    resumed.load_state_dict(tracked.state_dict())
    for attempt in (
        lambda: tracked.batch_iterator(100),
        lambda: resumed.batch_iterator(100),
        lambda: next(early),
    ):
        with pytest.raises(RuntimeError, match="cannot be resumed.* run of 8 steps"):
            attempt()
    for accountant in (tracked, resumed):
        assert accountant.get_epsilon_bounds(DELTA) == found
    state = {**tracked.state_dict(), "draws": [8, 8]}
    with pytest.warns(UserWarning, match="forgets"):
        tracked.load_state_dict(state)
    with pytest.raises(ValueError, match="must run once"):
        tracked.event()


def test_iterators_that_draw_the_same_batches():
    tracked = Tracked(Poisson(0.1, 60), NOISE)
    list(tracked.batch_iterator(100, 0))
    for again in (0, np.random.default_rng(0)):
        with pytest.raises(RuntimeError, match="rng must be another"):
            tracked.batch_iterator(100, again)
    rng = np.random.default_rng(1)
    for old in (rng, rng, np.random.Generator(np.random.MT19937(0)), None, None):
        list(tracked.batch_iterator(100, old))
    with pytest.raises(RuntimeError, match="rng must be another"):
        tracked.batch_iterator(100, np.random.Generator(np.random.MT19937(0)))
    assert tracked.event().events[-1].count == 60 and len(tracked.event().events) == 6


def test_another_number_of_examples_than_was_accounted_for():
    options = REPLACED
    tracked = Tracked(Fixed(20, 10), NOISE, **options)
    with pytest.raises(RuntimeError, match=r"num_examples=100"):
        tracked.batch_iterator(100)
    users = batch_selection.UserSelectionStrategy(Fixed(20, 10), 2)
    tracked = Tracked(users, NOISE, **options)
    with pytest.raises(RuntimeError, match=r"num_examples=100"):
        tracked.batch_iterator(np.arange(200) // 2)
    assert len(list(tracked.batch_iterator(np.arange(400) // 2))) == 10


BANDS = np.array([1.0, 0.5, 0.2, 0.1])
NO_CLIP = {"l2_clip_norm": 0.0, "rescale_to_unit_norm": False}
NORMALIZED = {"strategy": BANDS / np.linalg.norm(BANDS), "column_normalize": True}


def of_bands(**changes):
    options = {
        "iterations": 100,
        "strategy": BANDS,
        "epsilon": 2.0,
        "delta": 1e-5,
        "sampling_prob": 0.2,
        "partition_type": Partition.INDEPENDENT,
        "accountant": ext.PLDAccountant(),
        "noise_seed": 1,
    }
    return execution_plan.BandMFExecutionPlanConfig(**{**options, **changes})


def of_plan(**changes):
    """A plan of two bands and groups of equal size."""
    options = {"iterations": 40, "strategy": np.array([1.0, 0.5]), "epsilon": 1.0}
    options |= {"delta": DELTA, "partition_type": Partition.EQUAL_SPLIT}
    options["accountant"] = ext.PLDAccountant(Relation.REPLACE_SPECIAL)
    return of_bands(**{**options, **changes}).plan


def test_a_plan_that_is_not_what_runs():
    plan = of_plan()
    noise = plan.dp_event.event.event.noise_multiplier * math.sqrt(1.25)
    options = BANDED | SPECIAL
    tracked = Tracked(plan.batch_selection_strategy, noise, **options)
    tracked.check(plan, DELTA)
    for other in (of_plan(sampling_prob=0.1), of_plan(iterations=20)):
        with pytest.raises(RuntimeError, match=r"plan.batch_selection_strategy"):
            tracked.check(other, DELTA)
    bins = dataclasses.replace(plan, batch_selection_strategy=Bins(40, 2))
    with pytest.raises(RuntimeError, match="must be the one that runs"):
        tracked.check(bins, DELTA)
    for less in (noise / 1.01, noise / 2):
        quieter = Tracked(tracked.strategy, less, **options)
        with pytest.raises(RuntimeError, match="must not promise less"):
            quieter.check(plan, DELTA)
    with pytest.raises(TypeError, match="batch_selection_strategy"):
        tracked.check(tracked.strategy, DELTA)


def test_a_forgotten_matrix_is_found():
    """ε would be 1.0077, and is between 1.392 and 2."""
    plan = of_bands().plan
    noise = plan.dp_event.event.event.noise_multiplier
    forgotten = Tracked(plan.batch_selection_strategy, noise)
    assert "independent noise" in repr(forgotten)
    with pytest.raises(RuntimeError, match=r"correlation of -0.42\d between.* of 1:"):
        forgotten.check(plan)
    list(forgotten.batch_iterator(1000, 1))
    assert forgotten.get_epsilon_bounds(1e-5)[1] < 1.0077
    tracked = certified.from_plan(of_bands())
    assert "the matrix [1.  0.5 0.2 0.1]" in repr(tracked)
    list(tracked.batch_iterator(1000, 1))
    lower, upper = tracked.get_epsilon_bounds(1e-5)
    assert 1.3922 <= lower <= 1.39221 and 1.999 < upper <= 2.0


@pytest.mark.parametrize(
    ("factor", "matrix", "found"),
    [
        (1.0, [1.0, 0.5, 0.2], "correlation"),
        (1.0, [1.0, 0.5, 0.2, 0.11], "correlation"),
        (1.0, [1.0, 0.5, 0.2, 0.1, 0.02], "correlation"),
        (1.004, BANDS, r"standard deviation of .*Found"),
        (2.0, BANDS, r"standard deviation of .*Found"),
    ],
)
def test_noise_of_another_matrix_or_size(factor, matrix, found):
    plan = of_bands(noise_multiplier=2.0, epsilon=None, delta=None).plan
    noise = factor * 2.0 * np.linalg.norm(BANDS)
    other = Tracked(plan.batch_selection_strategy, noise, matrix=matrix)
    with pytest.raises(
        RuntimeError, match=f"noise, times the strategy matrix.*{found}"
    ):
        other.check(plan, 0.5)  # Where ε is 0.


@pytest.mark.parametrize(
    ("changes", "clips"),
    [
        ({}, 1),
        ({"iterations": 1, "strategy": np.ones(1)}, 1),
        ({"l2_clip_norm": 3.0, "rescale_to_unit_norm": False, "normalize_by": 7.0}, 1),
        (
            {
                "accountant": ext.PLDAccountant(Relation.REPLACE_ONE),
                "partition_type": Partition.EQUAL_SPLIT,
            },
            2,
        ),
        (
            {
                "accountant": ext.PLDAccountant(Relation.REPLACE_SPECIAL),
                "partition_type": Partition.EQUAL_SPLIT,
                "num_examples": 1000,
                "truncated_batch_size": 60,
            },
            1,
        ),
        ({"noise_multiplier": 0.0, "epsilon": None, "delta": None}, 1),
    ],
)
def test_all_is_read_from_a_plan(changes, clips):
    config = of_bands(**changes)
    tracked = certified.from_plan(config)
    plan, options = config.plan, tracked.options
    assert tracked.strategy == plan.batch_selection_strategy
    step = plan.dp_event.event
    noise = getattr(step, "noise_multiplier", None)
    noise = step.event.noise_multiplier if noise is None else noise
    expected = clips * noise * np.linalg.norm(config.strategy)
    assert math.isclose(tracked.noise_multiplier, expected, rel_tol=1e-12)
    assert options["neighboring_relation"] is config.accountant.neighboring_relation
    assert np.array_equal(options["matrix"], config.strategy)
    if noise:
        relation = options["neighboring_relation"]
        event = certified.from_strategy(
            tracked.strategy, tracked.noise_multiplier, **options
        )
        found = ext.PLDAccountant(relation).compose(event).get_epsilon(1e-5)
        assert found <= 2.0 * (1 + 1e-6)
        # The library counts the distance of a replaced record twice.
        assert found > 1.98 or relation is Relation.REPLACE_ONE


def test_a_plan_that_adds_noise_where_there_should_be_none():
    config = of_bands(noise_multiplier=0.0, epsilon=None, delta=None)
    silent = certified.from_plan(config)
    noisy = dataclasses.replace(
        of_bands().plan, dp_event=dp_accounting.NonPrivateDpEvent()
    )
    with pytest.raises(RuntimeError, match="standard deviation of 0. Found"):
        silent.check(noisy)


@dataclasses.dataclass(frozen=True)
class RandomAllocationSampling:
    """That of newer versions, by its fields."""

    total_participations: int
    iterations: int

    def batch_iterator(self, num_examples, rng=None):
        yield from [[]] * self.iterations


def test_random_allocation_of_newer_versions(monkeypatch):
    name = "RandomAllocationSampling"
    kind = getattr(batch_selection, name, RandomAllocationSampling)
    monkeypatch.setattr(batch_selection, name, kind, raising=False)
    for selected in (1, 2):
        event = certified.from_strategy(kind(selected, 10), NOISE)
        assert event == Allocated(STEP, selected, 10)
    assert certified.from_strategy(kind(0, 10), NOISE) == dp_accounting.NoOpDpEvent()
    for selected in (1, 2):
        tracked = Tracked(kind(selected, 10), NOISE)
        batches = tracked.batch_iterator(100)
        for _ in range(4):
            next(batches)
        cut = Schedule([STEP], [4], 10, selected)
        assert tracked.event() == dp_accounting.ComposedDpEvent([cut])
    # With correlated noise, until the draw has ended nothing is known.
    event = certified.from_strategy(kind(2, 10), NOISE, matrix=[1.0, 0.5])
    assert event == ext.SelectedStepsMatrixEvent((1.0, 0.5), NOISE, 2, 10)
    tracked = Tracked(kind(1, 10), NOISE, matrix=[1.0, 0.5])
    batches = tracked.batch_iterator(100)
    next(batches)
    with pytest.raises(ValueError, match="to its end with correlated.* 1 of 10"):
        tracked.event()
    assert len(list(batches)) == 9
    whole = ext.SelectedStepsMatrixEvent((1.0, 0.5), NOISE, 1, 10)
    assert tracked.event() == dp_accounting.ComposedDpEvent([whole])


def test_its_training_accountant_takes_ours():
    accountant = accounting.DpsgdTrainingAccountant(certified.accountant_config())
    parameters = accounting.DpParams(
        noise_multipliers=NOISE, num_samples=1000, delta=DELTA, batch_size=100
    )
    assert accountant.compute_epsilon(60, parameters) == epsilon(repeated(SAMPLED, 60))
    noise = accounting.calibrate_noise_multiplier(
        target_epsilon=1.0,
        accountant=accountant,
        batch_sizes=100,
        num_updates=60,
        num_samples=1000,
        target_delta=DELTA,
    )
    step = dp_accounting.GaussianDpEvent(noise)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, step)
    assert epsilon(repeated(sampled, 60)) <= 1.0 + 1e-9


def test_b_min_sep_sampling_draws_what_the_event_says():
    """Shares of a batch, from a warm start, and steps that are apart."""
    strategy = Apart(0.2, 12, 4)
    batches = [set(batch) for batch in strategy.batch_iterator(20_000, 1)]
    share = 0.2 / (1 + 3 * 0.2)
    for batch in batches:
        assert abs(len(batch) / 20_000 - share) < 5 * math.sqrt(share / 20_000)
    for first, batch in enumerate(batches):
        for other in batches[first + 1 : first + 4]:
            assert not batch & other
    tracked = Tracked(strategy, NOISE, matrix=[1.0, 0.5])
    for _, _ in zip(range(5), tracked.batch_iterator(100, 3), strict=False):
        pass
    assert tracked.event().events[0].num_steps == 5


def test_numpy_draws_rare_examples_at_their_rate():
    """Where 1 - rate would round to 1, or to a number with half of the rate."""
    rng = np.random.default_rng(1)
    for num_examples, rate in ((10**16, 1e-17), (10**15, 1.6e-16), (10**6, 1e-7)):
        drawn = rng.binomial(num_examples, rate, 400_000)
        missed = math.exp(num_examples * math.log1p(-rate))
        spread = math.sqrt(missed * (1 - missed) / len(drawn))
        assert abs(np.mean(drawn == 0) - missed) < 5 * spread


def test_what_counted_steps_had_stays():
    """Less noise or rarer batches for steps that ran would have a smaller ε."""
    tracked = Tracked(Poisson(0.1, 40), NOISE)
    list(tracked.batch_iterator(100, 0))
    before = tracked.get_epsilon_bounds(DELTA)
    for name, value in (("noise_multiplier", 9.0), ("strategy", Poisson(0.01, 40))):
        with pytest.raises(AttributeError, match=f"{name} must stay"):
            setattr(tracked, name, value)
    tracked.options["neighboring_relation"] = Relation.REPLACE_SPECIAL
    assert tracked.get_epsilon_bounds(DELTA) == before
    kept = pickle.loads(pickle.dumps(copy.deepcopy(tracked)))
    assert kept.get_epsilon_bounds(DELTA) == before


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda make: make(num_examples=0), "num_examples must be at least 1"),
        (lambda make: make(num_examples="a"), "num_examples must be an integer"),
        (lambda make: make(matrix="x"), "matrix must be the Toeplitz coefficients"),
        (lambda make: make(matrix=[math.nan]), "matrix must be the Toeplitz"),
        (lambda make: make(probability=2.0), "sampling_probability must"),
        (lambda make: make(probability="x"), "sampling_probability must"),
        (lambda make: make().batch_iterator(0), "num_examples must be at least 1"),
        (lambda make: make().batch_iterator([1, 2]), "num_examples must be an integer"),
        (lambda make: make().batch_iterator(9, "x"), "rng must be a seed"),
        (lambda make: make().batch_iterator(9, -1), "rng must be a seed"),
        (lambda make: make().load_state_dict(None), "state must be what"),
        (lambda make: make().load_state_dict("x"), "state must be what"),
        (lambda make: certified.from_plan(of_bands().plan), "ExecutionPlanConfig"),
        (lambda make: certified.from_plan(of_bands(**NO_CLIP)), "l2_clip_norm must be"),
        (
            lambda make: certified.from_plan(of_bands(**NORMALIZED)),
            "column_normalize must be False",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_named(make, words):
    """No error comes from inside of a library."""

    def accountant(probability=0.1, **options):
        return Tracked(Poisson(probability, 40), NOISE, **options)

    with pytest.raises((TypeError, ValueError), match=words) as raised:
        make(accountant)
    assert "dp_accounting_ext" in str(raised.traceback[-1].path)
