"""The accountants in Opacus itself: its hooks, calibration, loaders and checkpoints."""

import io
import itertools
import json
import math

import dp_accounting
import numpy as np
import opacus
from opacus import accountants
import opacus_training
from opacus_training import DELTA
from opacus_training import EPOCH
from opacus_training import RECORDS
from opacus_training import SAMPLED
from opacus_training import STEP
from opacus_training import STEPS
from opacus_training import balls_and_bins
from opacus_training import shuffled
import pytest
from scipy import stats
import torch

import dp_accounting_ext as ext
from dp_accounting_ext.integrations import opacus as certified

# Opacus' own, of its random numbers, and PyTorch's of its hooks.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def composed(*events):
    accountant = ext.PLDAccountant()
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


# All values of torch.rand.
VALUES = torch.arange(2**24, dtype=torch.float32) / 2**24


def sampled(rate, noise=1.0):
    """Steps on samples with the probability that Opacus' sampler has."""
    step = dp_accounting.GaussianDpEvent(noise)
    drawn = torch.count_nonzero(rate > VALUES).item() / len(VALUES)
    return dp_accounting.PoissonSampledDpEvent(drawn, step)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "truth"),
    [
        (1e-3, 1.0, 1000, 0.18552135),
        (1e-5, 1.0, 100_000, 0.0131408),
        (1e-7, 0.6, 10_000_000, 0.004206),
    ],
)
def test_samples_that_are_drawn_in_single_precision(rate, noise, steps, truth):
    accountant = accountants.create_accountant("certified")
    accountant.history = [(noise, rate, steps)]
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    drawn = ext.PLDAccountant().compose(sampled(rate, noise), steps)
    assert upper >= max(truth, drawn.get_epsilon_bounds(1e-6)[0])
    assert lower <= drawn.get_epsilon(1e-6) <= truth * (1 + 2e-3)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_probability_of_a_record_in_a_poisson_sample(default):
    """It is that of the event, and of Opacus' own sampler, whatever torch's default."""
    assert bool((torch.rand(10_001) * 2**24 % 1 == 0).all())
    rates = [0.0, 1e-12, 1e-7, 1e-5, 0.1, 1 / 3, 0.5, 1 - 1e-9, 1.0, np.float64(0.3)]
    for rate in rates:
        accountant = accountants.create_accountant("certified")
        accountant.step(noise_multiplier=1.0, sample_rate=rate)
        (event,) = accountant.event().events
        assert event.event == sampled(rate)
    sampler = opacus_training.poisson().loader.batch_sampler
    plain = opacus.utils.uniform_sampler.UniformWithReplacementSampler(
        num_samples=RECORDS, sample_rate=1 / STEPS
    )
    torch.manual_seed(1)
    expected = list(plain)
    torch.manual_seed(1)
    torch.set_default_dtype(default)
    try:
        assert list(sampler) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_noise_may_change():
    training = opacus_training.poisson().run()
    training.optimizer.noise_multiplier = 2.0
    training.run()
    rate = 1 / STEPS
    history = [(1.0, rate, STEPS), (2.0, rate, STEPS)]
    assert training.engine.accountant.history == history
    expected = composed((sampled(rate), STEPS), (sampled(rate, 2.0), STEPS))
    assert training.epsilon() == expected


@pytest.mark.parametrize(
    ("make", "event", "count"),
    [
        (opacus_training.poisson, SAMPLED, STEPS),
        (balls_and_bins, EPOCH, 1),
        (opacus_training.of_shuffles, STEP, 1),
    ],
)
def test_large_batches_in_small_memory(make, event, count):
    """Virtual steps are one step."""
    training = make().run_in_small_memory(7)
    relation = training.engine.accountant.neighboring_relation
    assert training.epsilon() == opacus_training.epsilon(event, count, relation)


def test_an_epoch_that_is_left_early_ends():
    """The next one draws anew: 4 + 4 steps are not 8 of one draw."""
    training = balls_and_bins().run(steps=4).run(steps=4)
    part = ext.ScheduledAllocationEvent([STEP], [4], STEPS)
    assert training.epsilon() == composed((part, 2))
    together = ext.ScheduledAllocationEvent([STEP], [8], STEPS)
    assert training.epsilon() > composed((together, 1))
    assert training.run().epsilon() == composed((part, 2), (EPOCH, 1))


def test_noise_that_changes_amid_an_epoch():
    accountant = accountants.create_accountant("balls_and_bins")
    for noise, steps in ((1.0, 10), (2.0, 5)):
        for _ in range(steps):
            accountant.step(noise_multiplier=noise, sample_rate=0.25)
    two = dp_accounting.GaussianDpEvent(2.0)
    expected = [
        (ext.RandomAllocationEvent(STEP, 1, 4), 2),
        (ext.ScheduledAllocationEvent([STEP, two], [2, 2], 4), 1),
        (ext.ScheduledAllocationEvent([two], [3], 4), 1),
    ]
    assert accountant.get_epsilon(DELTA) == composed(*expected)


@pytest.mark.parametrize(
    ("rate", "remedy"),
    [(256 / 25_000, "use 1/98"), (3 / 98, "divide that length"), (0.0, "Found 0")],
)
def test_rates_that_are_no_epochs(rate, remedy):
    accountant = accountants.create_accountant("balls_and_bins")
    with pytest.raises(ValueError, match=f"sample_rate must be .*{remedy}"):
        accountant.step(noise_multiplier=1.0, sample_rate=rate)
    assert accountant.history == []


def test_a_rate_that_changes_amid_an_epoch():
    accountant = accountants.create_accountant("balls_and_bins")
    accountant.step(noise_multiplier=1.0, sample_rate=1 / 98)
    accountant.step(noise_multiplier=1.0, sample_rate=1 / 49)
    with pytest.raises(ValueError, match="1/49 after 1/98, of which 97"):
        accountant.get_epsilon(DELTA)


@pytest.mark.parametrize("name", ["certified", "balls_and_bins"])
@pytest.mark.parametrize("bad", [math.nan, -1.0, "1"])
def test_steps_that_mean_nothing(name, bad):
    accountant = accountants.create_accountant(name)
    for fields in (
        {"noise_multiplier": bad, "sample_rate": 0.1},
        {"noise_multiplier": 1.0, "sample_rate": bad},
    ):
        with pytest.raises((TypeError, ValueError), match="must be"):
            accountant.step(**fields)
    assert accountant.history == []
    with pytest.warns(UserWarning, match="No step was seen"):
        assert accountant.get_epsilon(DELTA) == 0


@pytest.mark.parametrize(
    ("name", "event", "count"),
    [
        ("certified", lambda noise: sampled(1 / STEPS, noise), 10 * STEPS),
        (
            "balls_and_bins",
            lambda noise: ext.RandomAllocationEvent(
                dp_accounting.GaussianDpEvent(noise), 1, STEPS
            ),
            10,
        ),
    ],
)
def test_make_private_with_epsilon(name, event, count):
    """Opacus' own search finds the noise for a target."""
    engine = opacus.PrivacyEngine(accountant=name)
    loader = shuffled()
    if name == "balls_and_bins":
        loader = certified.balls_and_bins(loader, engine.accountant)
    model = torch.nn.Linear(3, 2)
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        target_epsilon=2.0,
        target_delta=DELTA,
        epochs=10,
        max_grad_norm=1.0,
        poisson_sampling=name == "certified",
    )
    assert len(engine.accountant) == 0
    assert 1.98 < composed((event(optimizer.noise_multiplier), count)) <= 2.0


@pytest.mark.parametrize(
    "make", [opacus_training.poisson, balls_and_bins, opacus_training.of_shuffles]
)
@pytest.mark.parametrize("steps", [STEPS, 4])
def test_a_checkpoint_is_resumed(make, steps):
    """After a whole epoch, and amid one: of balls and bins the next draw is new."""
    first, kept = make().run(steps=steps), io.BytesIO()
    first.engine.save_checkpoint(
        path=kept, module=first.model, optimizer=first.optimizer
    )
    second = make()
    kept.seek(0)
    second.engine.load_checkpoint(
        path=kept, module=second.model, optimizer=second.optimizer
    )
    assert second.epsilon() == first.epsilon()
    first.run(steps=4)
    second.run(steps=4)
    assert second.epsilon() == first.epsilon()
    assert len(second.engine.accountant) == steps + 4


@pytest.mark.parametrize("name", ["certified", "balls_and_bins"])
def test_a_state_survives_json_and_bad_ones_change_nothing(name):
    accountant = accountants.create_accountant(name)
    for _ in range(3):
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    state = json.loads(json.dumps(accountant.state_dict()))
    other = accountants.create_accountant(name)
    other.load_state_dict(state)
    assert other.get_epsilon(DELTA) == accountant.get_epsilon(DELTA)
    other.step(noise_multiplier=1.0, sample_rate=0.1)
    assert other.history == [(1.0, 0.1, 4)]
    if name == "balls_and_bins":  # No sampler told of a new draw: a resumed one is.
        parts = [ext.ScheduledAllocationEvent([STEP], [n], 10) for n in (3, 1)]
        assert other.get_epsilon(DELTA) == composed(*((part, 1) for part in parts))
    for change in (
        {"history": [(1.0, 0.1, -3)]},
        {"history": [(math.nan, 0.1, 3)]},
        {"mechanism": "prv"},
    ):
        with pytest.raises((TypeError, ValueError)):
            other.load_state_dict({**state, **change})
        assert other.history == [(1.0, 0.1, 4)]


def test_the_sampler_has_the_law_that_is_accounted_for():
    """One batch for each record, uniform, independent of others, anew in each epoch."""
    records, steps, epochs = 400, 5, 500
    accountant = accountants.create_accountant("balls_and_bins")
    sampler = certified.BallsAndBinsSampler(
        records, steps, accountant, generator=torch.Generator().manual_seed(1)
    )
    assert len(sampler) == steps
    bins = np.empty((epochs, records), dtype=int)
    for epoch in range(epochs):
        batches = list(sampler)
        assert len(batches) == steps
        assert sorted(itertools.chain(*batches)) == list(range(records))
        for number, batch in enumerate(batches):
            bins[epoch, batch] = number
    counts = np.bincount(bins.ravel(), minlength=steps)
    assert stats.chisquare(counts).pvalue > 1e-6
    # A record's bins in two epochs, and two records' bins in one, are independent.
    for pairs in ((bins[:-1], bins[1:]), (bins[:, :-1], bins[:, 1:])):
        table = np.histogram2d(pairs[0].ravel(), pairs[1].ravel(), bins=steps)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-6
    # Sizes vary as a binomial's do: a shuffled dataset that is cut has one size.
    sizes = np.apply_along_axis(np.bincount, 1, bins, minlength=steps)
    variance = records * (1 / steps) * (1 - 1 / steps)
    assert 0.8 < sizes.var() / variance < 1.2


@pytest.mark.parametrize("steps", [1, 3, 64, 65])
def test_bins_come_from_a_power_of_two(steps, monkeypatch):
    """Of other numbers, remainders of random bits are not uniform."""
    randint, numbers = torch.randint, []

    def noted(number, size, **options):
        numbers.append(number)
        return randint(number, size, **options)

    monkeypatch.setattr(torch, "randint", noted)
    accountant = accountants.create_accountant("balls_and_bins")
    batches = list(certified.BallsAndBinsSampler(1000, steps, accountant))
    assert sorted(itertools.chain(*batches)) == list(range(1000))
    assert len(batches) == steps
    assert all(number & (number - 1) == 0 for number in numbers)
