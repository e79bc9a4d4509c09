"""A statement claims what accountants certify, and no ε that is less."""

import math

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

KNOWN = "no amplification"
RUN = training_run.TrainingRun(
    dataset_size=2000,
    batch_size=100,
    epochs=3,
    noise_multiplier=1.1,
    delta=1e-6,
    group_size=3,
)


def claim(found, *of):
    (one,) = [
        each for each in found if (each.sampling, each.adjacency, each.group_size) == of
    ]
    return one


@pytest.fixture(scope="module")
def found():
    return statement.claims(RUN)


def test_levels_adjacencies_and_ways_of_sampling(found):
    keys = [(each.group_size, each.sampling, each.adjacency) for each in found]
    ways = ["random allocation", "Poisson sampling", "no amplification"]
    assert keys == [
        (size, way, adjacency)
        for size in (1, 3)
        for way in ways
        for adjacency in ("add or remove", "replace")
    ]


def test_a_claim_is_the_events(found):
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.1), 1, 20)
    bounds = ext.PLDAccountant().compose(epoch, 3).get_epsilon_bounds(1e-6)
    one = claim(found, "random allocation", "add or remove", 1)
    assert (one.epsilon_lower, one.epsilon_upper) == bounds


def test_a_user_of_a_poisson_sample_is_a_binomial_mixture(found):
    """The stock event for a group of which each is in a sample on its own."""
    sizes = range(4)
    mixture = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(
        1.1, sizes, stats.binom.pmf(sizes, 3, 0.05)
    )
    stock = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    epsilon = stock.compose(mixture, 60).get_epsilon(1e-6)
    one = claim(found, "Poisson sampling", "add or remove", 3)
    assert one.epsilon_lower <= epsilon
    assert one.epsilon_upper == pytest.approx(epsilon, rel=0.02)


def test_to_replace_a_known_example_is_twice_as_far(found):
    far = privacy_loss_distribution.from_gaussian_mechanism(1.1 / 2).self_compose(3)
    one = claim(found, "no amplification", "replace", 1)
    assert one.epsilon_upper == pytest.approx(far.get_epsilon_for_delta(1e-6), 1e-3)


def numbers_of(text):
    return [
        float(word)
        for line in text.splitlines()
        if line.startswith("  ") and ")  " in line
        for word in line.split(")")[1].replace("none known", "").split()
    ]


def test_words_say_the_numbers_rounded_up(found):
    text = statement.privacy_statement(RUN)
    printed = numbers_of(text)
    upper = [each.epsilon_upper for each in found if each.epsilon_upper is not None]
    assert len(printed) == len(upper)
    assert (np.array(printed) >= upper).all()
    assert (np.array(printed) < np.array(upper) + 1.001e-3).all()
    assert text.count("none known") == len(found) - len(upper)
    assert "2000 examples in batches of 100" in text
    assert "User level, 3 examples a user" in text
    assert "shuffle" in text
    assert max(map(len, text.splitlines())) <= 80


def test_words_say_what_was_counted():
    """So that a loop that takes more steps than these sees that it does."""
    loop = training_run.TrainingRun(
        dataset_size=1000, batch_size=300, epochs=2, noise_multiplier=1.0, delta=1e-6
    )
    text = " ".join(statement.privacy_statement(loop).split())
    assert "Each of 8 steps draws its batch anew" in text
    assert "with probability q = 300/1000" in text
    assert "More steps than that break it" in text
    assert "one batch of t = 3," in text


def test_shuffled_batches_have_the_number_of_a_replaced_example_alone():
    text = " ".join(statement.privacy_statement(RUN).split())
    assert "a shuffle this holds where an example is replaced, and not where" in text


def test_examples_in_several_batches_are_not_repeated_ones():
    run = training_run.TrainingRun(1.0, 1000, 3, 1, 1e-6, sampling=KNOWN)
    text = " ".join(statement.privacy_statement(run).split())
    assert "in 3 batches of each epoch, once in each" in text
    assert "Examples in more batches than that, or twice in one, break it" in text


@pytest.mark.parametrize(("delta", "count"), [(1e-3, 1), (0.1, 1), (0.9e-3, 0)])
def test_a_delta_that_publishing_one_example_meets(delta, count):
    run = training_run.TrainingRun(
        dataset_size=1000, batch_size=10, noise_multiplier=1.0, delta=delta
    )
    assert len(statement.warnings(run)) == count
    text = " ".join(statement.privacy_statement(run).split())
    assert text.count(f"Warning: δ = {delta!r} is not below 1/1000") == count


@pytest.mark.parametrize("question", [statement.claims, statement.privacy_statement])
def test_a_setting_is_a_training_run(question):
    with pytest.raises(TypeError, match=r"setting must be a TrainingRun\. Found \{'d"):
        question({"delta": 1e-6})


def test_without_a_bound_on_a_users_examples_a_user_has_no_promise():
    one = training_run.TrainingRun(2.0, 20, 2, 1, 1e-5, sampling="random allocation")
    text = statement.privacy_statement(one)
    assert "Nothing is promised to a user with several examples" in text
    assert "joins 2 batches" in text and "Poisson" not in text
    assert {each.sampling for each in statement.claims(one)} == {
        "random allocation",
        "no amplification",
    }


@pytest.mark.parametrize("missing", ["delta", "noise_multiplier"])
def test_what_a_statement_needs(missing):
    fields = {"delta": 1e-6, "noise_multiplier": 1.0, missing: None}
    with pytest.raises(ValueError, match=rf"{missing} must be given\. Found it m"):
        statement.claims(training_run.TrainingRun(num_steps=5, **fields))


@pytest.mark.parametrize("noise", [1e-60, 1e-7, 1e9])
def test_numbers_of_any_size(noise):
    strange = training_run.TrainingRun(noise, 2, 1, 1, 1e-6, sampling=KNOWN)
    text = statement.privacy_statement(strange)
    assert max(map(len, text.splitlines())) <= 80
    upper = [each.epsilon_upper for each in statement.claims(strange)]
    printed = numbers_of(text)
    assert (np.array(printed) >= upper).all()
    assert printed == pytest.approx(upper, rel=1e-6, abs=1e-3)


def test_no_bound_on_epsilon_is_infinite():
    row = statement.Claim(KNOWN, "replace", 1, 0.0, math.inf)
    assert "  inf" in statement.words(RUN, [row])
