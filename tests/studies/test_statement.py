"""A statement claims what accountants certify, and no ε that is less."""

import dataclasses
import math
import re

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

KNOWN, SHUFFLED = "no amplification", "shuffled or fixed batches"
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
    ways = ["random allocation", "Poisson sampling", KNOWN, SHUFFLED]
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
    assert claim(found, SHUFFLED, "add or remove", 1).epsilon_upper is None
    far = privacy_loss_distribution.from_gaussian_mechanism(1.1 / 2).self_compose(3)
    for way in (KNOWN, SHUFFLED):
        one = claim(found, way, "replace", 1)
        assert one.epsilon_upper == pytest.approx(far.get_epsilon_for_delta(1e-6), 1e-3)


def numbers_of(text):
    """Numbers of tables, in words or in Markdown."""
    lines = [line for line in text.splitlines() if re.search(r"\w \(\d\) ", line)]
    cells = [re.findall(r"\d[\d.e+]*|inf", line.split(")", 1)[1]) for line in lines]
    return [float(cell) for line in cells for cell in line]


@pytest.mark.parametrize("form", [statement.words, statement.card])
def test_forms_say_the_numbers_rounded_up(found, form):
    text = form(RUN, found)
    printed = numbers_of(text)
    upper = [each.epsilon_upper for each in found if each.epsilon_upper is not None]
    assert len(printed) == len(upper)
    assert (np.array(printed) >= upper).all()
    assert (np.array(printed) < np.array(upper) * 1.001).all()
    assert text.count("none known") == len(found) - len(upper)
    assert "2000 records in batches of 100" in text
    assert "User level, 3 examples a user" in text
    assert "shuffle" in text
    if form is statement.words:
        assert text == statement.privacy_statement(RUN)
        assert max(map(len, text.splitlines())) <= 80


def test_wide_rows_have_footnotes_and_are_not_ranked(found):
    wide = [each for each in found if each.is_wide]
    for text in (statement.words(RUN, found), statement.card(RUN, found)):
        marks = re.findall(r"\d \(([a-z])\)", text)
        notes = re.findall(r"^\(([a-z])\) .* ([\d.]+) at least\.$", text, re.M)
        assert [mark for mark, _ in notes] == marks == sorted(set(marks))
        lowers = [float(lower) for _, lower in notes]
        assert len(lowers) == len(wide)
        for printed, each in zip(lowers, wide, strict=True):
            assert printed <= each.epsilon_lower < printed + 1.001e-3
        assert text.count("Not ranked") == len(comparison.unranked(found))
    tight = [each for each in found if not each.is_wide]
    assert "Not tight" not in statement.words(RUN, tight)
    loose = [
        dataclasses.replace(each, epsilon_lower=0.0) for each in found if each in tight
    ]
    assert "Not ranked (replace)" in statement.words(RUN, loose)


def test_the_card_is_markdown(found):
    card = statement.card(RUN, found)
    assert card.startswith("## Differential privacy\n\nDP-SGD: ")
    tables = re.findall(r"^\|  \|.*\n\|---\|---:\|---:\|\n((?:\|.*\|\n)+)", card, re.M)
    assert [table.count("\n") for table in tables] == [4, 4]
    assert re.findall(r"^\((\d)\) ", card, re.M) == ["1", "2", "3", "4"]


def test_three_sentences(found):
    text = " ".join(statement.brief(RUN, found).split())
    assert len(re.findall(r"\. (?=[A-Z])", text)) == 2
    printed = [float(number) for number in re.findall(r"([\d.]+) \([a-zP]", text)]
    known = [each for each in found if each.epsilon_upper is not None]
    order = sorted(known, key=lambda each: (each.group_size, each.adjacency))
    for number, each in zip(printed, order, strict=True):
        assert each.epsilon_upper <= number < each.epsilon_upper * 1.001
    assert text.count("not tight") == len([each for each in known if each.is_wide])
    assert text.count(SHUFFLED) == 2 and text.count("of one user are replaced") == 1


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


def test_only_what_was_asked_for_is_in_the_statement():
    run = dataclasses.replace(RUN, sampling="shuffled", group_size=1)
    text = " ".join(statement.privacy_statement(run).split())
    assert len(statement.claims(run)) == 2
    assert "none known" in text and "is replaced by another" in text
    assert "Poisson" not in text and "no amplification" not in text
    assert "an order that does not depend on the examples" in text


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
    with pytest.raises(TypeError, match=r"run must be a TrainingRun\. Found \{'d"):
        question({"delta": 1e-6})


def test_without_a_bound_on_a_users_examples_a_user_has_no_promise():
    one = training_run.TrainingRun(2.0, 20, 2, 1, 1e-5, sampling="random allocation")
    text = statement.privacy_statement(one)
    assert "Nothing is promised to a user with several examples" in text
    assert "joins 2 batches" in text and "Poisson" not in text
    assert {each.sampling for each in statement.claims(one)} == {"random allocation"}


@pytest.mark.parametrize("missing", ["delta", "noise_multiplier"])
def test_what_a_statement_needs(missing):
    fields = {"delta": 1e-6, "noise_multiplier": 1.0, missing: None}
    with pytest.raises(ValueError, match=rf"{missing} must be given\. Found it m"):
        statement.claims(training_run.TrainingRun(steps_per_epoch=5, **fields))


@pytest.mark.parametrize("noise", [1e-60, 1e-7, 1e9])
def test_numbers_of_any_size(noise):
    strange = training_run.TrainingRun(noise, 2, 1, 1, 1e-6, sampling=KNOWN)
    text = statement.privacy_statement(strange)
    assert max(map(len, text.splitlines())) <= 80
    upper = [each.epsilon_upper for each in statement.claims(strange)]
    printed = numbers_of(text)
    assert (np.array(printed) >= upper).all()
    assert printed == pytest.approx(upper, rel=1e-3)


def test_no_bound_on_epsilon_is_infinite():
    row = comparison.Row(KNOWN, "replace", 1, 1.0, 0.1, 0.0, math.inf, 0.0)
    text = statement.words(RUN, [row])
    assert "inf (a)" in text and "(a) No finite bound is known." in text
