"""Audits by canaries, against every mechanism of a few, and many runs of some."""

import functools
import itertools
import math
import time

import dp_accounting
import mpmath
import nights
import numpy as np
import pytest
from scipy import optimize
from scipy import sparse
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext import risk
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import training_run

Gaussian = dp_accounting.GaussianDpEvent
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
LEVEL = 0.05
# What the solver of the programs allows itself.
SOLVED = 1e-7


def accountant_of(event, count=1):
    return ext.PLDAccountant().compose(event, count)


@functools.cache
def sampled(noise=1.0):
    return accountant_of(
        dp_accounting.PoissonSampledDpEvent(0.01, Gaussian(noise)), 1000
    )


@functools.cache
def allocated():
    return accountant_of(ext.RandomAllocationEvent(Gaussian(0.7), 1, 100), 10)


def game(canaries_, guesses, right, guess):
    """Scores and members with which so many guesses are right."""
    ins = guesses if guess == "in" else -(-guesses // 2)
    right_ins = right * ins // guesses
    right_outs = right - right_ins
    members = np.arange(canaries_) % 2
    members[:ins] = np.arange(ins) < right_ins
    outs = guesses - ins
    members[canaries_ - outs :] = np.arange(outs) >= right_outs
    return -np.arange(canaries_, dtype=float), members


def p_value(accountant, canaries_, guesses, right, guess):
    scores, members = game(canaries_, guesses, right, guess)
    found = canaries.audit(accountant, scores, members, guesses=guesses, guess=guess)
    assert found.right == right
    return found.p_value


# Linear programs.


class Program:
    """A linear program, with rows that are added one by one."""

    def __init__(self, size):
        self.size, self.rows, self.limits = size, [], []

    def add_parts(self, parts, limit):
        """Σ max(part, 0) ≤ limit, of parts that are maps from variables to factors."""
        news = range(self.size, self.size + len(parts))
        self.size += len(parts)
        for new, part in zip(news, parts, strict=True):
            self.add({**part, new: -1.0}, 0.0)
        self.add(dict.fromkeys(news, 1.0), limit)

    def add(self, row, limit):
        self.rows.append(row)
        self.limits.append(limit)

    def largest(self, objective, sums):
        """The largest objective where each of the sums of variables is one."""

        def matrix(rows):
            found = sparse.lil_matrix((len(rows), self.size))
            for number, row in enumerate(rows):
                for variable, factor in row.items():
                    found[number, variable] = factor
            return found.tocsr()

        cost = np.zeros(self.size)
        for variable, factor in objective.items():
            cost[variable] = -factor
        rows = [dict.fromkeys(each, 1.0) for each in sums]
        found = optimize.linprog(
            cost, matrix(self.rows), self.limits, matrix(rows), np.ones(len(rows))
        )
        return -found.fun


@functools.cache
def of_mechanisms(lines, m, r, v, guess):
    """The largest P[W ≥ v] of all mechanisms, whose outputs are guesses.

    Variables are the probabilities of guesses, 1, 0 or None for each canary, for each
    set of members. All other outputs can be mapped to these guesses.
    """
    said = (1,) if guess == "in" else (1, 0)
    guesses = [
        each
        for each in itertools.product((*said, None), repeat=m)
        if m - each.count(None) == r
    ]
    members = list(itertools.product((0, 1), repeat=m))
    at = {key: number for number, key in enumerate(itertools.product(members, guesses))}
    program = Program(len(at))
    for one in members:
        for place in range(m):
            other = (*one[:place], 1 - one[place], *one[place + 1 :])
            for epsilon, delta in lines:
                slope = -math.exp(epsilon)
                parts = [{at[one, y]: 1.0, at[other, y]: slope} for y in guesses]
                program.add_parts(parts, delta)
    objective = {
        variable: 1 / len(members)
        for (one, y), variable in at.items()
        if sum(map(int.__eq__, one, (2 if x is None else x for x in y))) >= v
    }
    return program.largest(
        objective, [[at[one, y] for y in guesses] for one in members]
    )


@functools.cache
def of_laws(lines, m, r, v, guess):
    """The largest P[W ≥ v] of all laws of W that Theorem 1 allows.

    Each list of parts is of disjoint sets of outputs, and of one order of members.
    """
    program, share = Program(r + 1), 0.5 if guess == "in" else 1.0
    # Of canaries of which nothing is guessed: the members, and the others.
    left = [(0.5 - w / m, 0.5 - (r - w) / m) for w in range(r + 1)]
    if guess == "in":
        for side in (0, 1):
            program.add({w: -each[side] for w, each in enumerate(left)}, 0.0)
    for epsilon, delta in lines:
        slope, orders = math.exp(epsilon), ([], [])
        for w in range(r):
            right, wrong = (w + 1) / m, (r - w) / m
            orders[0].append({w + 1: right, w: -slope * wrong})
            orders[1].append({w + 1: -slope * right, w: wrong})
        if guess == "in":
            orders[0].append({w: x - slope * y for w, (x, y) in enumerate(left)})
            orders[1].append({w: y - slope * x for w, (x, y) in enumerate(left)})
        for parts in orders if guess == "in" else [orders[0] + orders[1]]:
            program.add_parts(parts, share * delta)
    return program.largest(dict.fromkeys(range(v, r + 1), 1.0), [range(r + 1)])


PARAMETERS = [(1.0, 0.0), (1.0, 0.1), (0.5, 0.3), (3.0, 1e-3)]
FEW = [(m, r, v) for m in range(1, 4) for r in range(1, m + 1) for v in range(1, r + 1)]


@functools.cache
def twice():
    """Two runs of (0.5, 0.1), whose curve has corners at 0 and at 1 alone."""
    accountant = accountant_of(risk.ParametersEvent(0.5, 0.1), 2)
    return accountant, tuple((e, accountant.get_delta(e)) for e in (0.0, 1.0))


@pytest.mark.parametrize("guess", ["in", "both"])
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_no_mechanism_of_a_few_canaries_is_right_more_often(parameters, guess):
    accountant = risk.published(epsilon=parameters[0], delta=parameters[1])
    for m, r, v in FEW:
        found = p_value(accountant, m, r, v, guess)
        truth = of_mechanisms((parameters,), m, r, v, guess)
        assert found >= truth - SOLVED
        if guess == "both":  # Theorem 2 is exact.
            assert found <= truth + 1e-6


@pytest.mark.parametrize("guess", ["in", "both"])
def test_nor_one_of_a_curve(guess):
    accountant, lines = twice()
    for m, r, v in FEW:
        found = p_value(accountant, m, r, v, guess)
        truth = of_mechanisms(lines, m, r, v, guess)
        assert found >= truth - SOLVED
        if guess == "both":
            assert found <= 1.3 * truth


@pytest.mark.parametrize("guess", ["in", "both"])
@pytest.mark.parametrize(("m", "r"), [(12, 12), (30, 15), *nights.at_night((200, 20))])
def test_no_law_of_more_canaries_has_a_smaller_p_value(m, r, guess):
    accountant, lines = twice()
    for v in range(1, r + 1):
        truth = of_laws(lines, m, r, v, guess)
        found = p_value(accountant, m, r, v, guess)
        assert found >= truth - SOLVED
        if truth > 1e-3:
            assert found <= 2 * truth


@pytest.mark.parametrize(
    ("m", "r", "v", "delta"),
    [
        (1000, 100, 95, 1e-5),
        (10**5, 1000, 990, 1e-5),
        (10**5, 300, 300, 1e-5),
        (10**5, 10**5, 74_000, 1e-9),
        (40, 40, 33, 0.0),
    ],
)
def test_a_lower_bound_on_epsilon_is_the_largest_that_is_refuted(m, r, v, delta):
    """Without any tolerance."""
    with mpmath.workdps(40):
        found = canaries.epsilon_lower_bound(v, r, m, delta, LEVEL, guess="both")
        assert binomial_bound(found, delta, m, r, v) <= LEVEL
        assert binomial_bound(found + 3e-6, delta, m, r, v) > LEVEL


def binomial_bound(epsilon, delta, m, r, v):
    """The bound of Theorem 2 with guesses of both kinds, in forty digits."""
    slope = mpmath.exp(mpmath.mpf(epsilon))
    total = term = mpmath.mpf(1)
    for j in range(r - v):
        term *= slope * (r - v - j) / (v + 1 + j)
        total += term
    b = mpmath.binomial(r, v) * slope**v / (1 + slope) ** r * total
    return b + (1 - b) * min(1, delta * m * total / v)


@pytest.mark.parametrize(
    ("epsilon", "delta", "r", "numbers"),
    [
        (4.25, 1e-5, 2000, (1955, 1962, 1970, 1980, 1990, 2000)),
        (0.5, 0.0, 10**4, (5000, 6225, 6400, 6600)),
        (10.0, 1e-5, 300, (300,)),
        (1.0, 0.2, 40, range(1, 41)),
    ],
)
def test_p_values_are_exact_where_the_theorem_is(epsilon, delta, r, numbers):
    """From below without any tolerance, and to six digits."""
    accountant = risk.published(epsilon=epsilon, delta=delta)
    with mpmath.workdps(40):
        for v in numbers:
            found = p_value(accountant, r, r, v, "both")
            truth = binomial_bound(epsilon, delta, r, r, v)
            assert truth <= found <= 1.000001 * truth


# Tightness: how few right guesses are enough to refute a claim.


@pytest.mark.parametrize("epsilon", [0.0049, 0.305, 1.005, 2.7183, 17.2])
def test_no_power_is_lost_between_the_epsilons_that_are_asked_for(epsilon):
    """Randomized response has the binomial law of right guesses, whatever ε is."""
    chance = 1 / (1 + math.exp(-epsilon))
    most = int(stats.binom.isf(0.05, 10_000, chance)) + 1
    found = canaries.needed(
        risk.published(epsilon=epsilon), 10_000, 10_000, guess="both"
    )
    assert most <= found <= most + 1


@pytest.mark.parametrize(
    ("accountant", "by_curve", "by_epsilon"),
    [(sampled, 1469, 1749), (allocated, 1772, 1982)],
)
def test_fewer_right_guesses_are_needed_than_by_epsilon(
    accountant, by_curve, by_epsilon
):
    """The first row is that of the page on risk."""
    one = risk.published(epsilon=accountant().get_epsilon(1e-5), delta=1e-5)
    needed = (
        canaries.needed(each, 2000, 2000, guess="both") for each in (accountant(), one)
    )
    assert (*needed,) == (by_curve, by_epsilon)
    # A curve has tests of its own, beside those of each line.
    few = canaries.needed(accountant(), 1000, 100)
    assert few <= {sampled: 82, allocated: 95}[accountant]


@pytest.mark.parametrize("share", [0.735, 0.737, *nights.at_night(0.5, 1.0)])
def test_many_canaries_take_seconds(share):
    m = 10**5
    accountant = sampled.__wrapped__()  # Nothing of it is computed yet.
    scores, members = game(m, m, int(share * m), "both")
    begin = time.process_time()
    found = canaries.audit(accountant, scores, members, guesses=m, guess="both")
    assert time.process_time() - begin <= 3
    assert found.refuted == (share > 0.736)


# Any event, any scores.


@pytest.mark.parametrize(
    "accountant",
    [
        accountant_of(ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 4, 1)),
        accountant_of(ext.GroupSubsampledEvent(2, Gaussian(2.0))),
        accountant_of(ext.RandomAllocationEvent(Gaussian(2.0), 1, 5)),
        ext.PLDAccountant(REPLACE).compose(Gaussian(2.0)),
        accountant_of(dp_accounting.NonPrivateDpEvent()),
        ext.PLDAccountant(),
    ],
)
def test_any_event_can_be_claimed(accountant):
    needed = canaries.needed(accountant, 400, 100)
    assert needed <= 101
    if accountant.get_delta(0.0) == 1:
        assert needed == 101
    elif accountant.get_delta(0.0) > 0:
        mu = accountant.get_gdp_parameter_bounds()[1]
        assert needed <= canaries.needed(risk.published(mu=mu), 400, 100)
    else:
        assert needed == stats.binom.isf(LEVEL, 100, 0.5) + 1


def test_scores_in_order_of_membership_prove_nothing():
    """Where they are equal, a file that has members first must not look like one."""
    members = np.arange(1000) < 500
    for guess in ("in", "both"):
        for scores in (np.zeros(1000), np.arange(1000) // 500 * 0.0):
            found = canaries.audit(
                ext.PLDAccountant(), scores, members, guesses=100, guess=guess
            )
            assert found.right == 0 and not found.refuted
    halves = np.repeat([1.0, 0.0], 500)
    found = canaries.audit(ext.PLDAccountant(), halves, members, guesses=600)
    assert found.right == 500


@pytest.mark.parametrize("guess", ["in", "both"])
def test_guesses_are_counted_as_a_loop_counts_them(guess):
    rng = np.random.default_rng(2)
    scores, members = rng.normal(size=51), rng.random(51) < 0.5
    for r in (1, 2, 7, 51):
        found = canaries.audit(
            sampled(), scores.tolist(), members.tolist(), guesses=r, guess=guess
        )
        order = sorted(range(51), key=lambda i: -scores[i])
        outs = r // 2 if guess == "both" else 0
        right = sum(bool(members[i]) for i in order[: r - outs])
        right += sum(not members[i] for i in order[51 - outs :])
        assert found.right == right
        assert (found.canaries, found.guesses) == (51, r)
        whole = canaries.audit(sampled(), scores, members * 1.0, guesses=r, guess=guess)
        assert whole == found


def test_a_verdict_is_that_of_the_p_value():
    for v in (76, 82, 83, 89):
        scores, members = game(1000, 100, v, "in")
        found = canaries.audit(sampled(), scores, members, guesses=100)
        assert found.refuted == (found.right >= found.needed)
        assert found.refuted == (found.p_value <= LEVEL)
        for share in (1.0, 0.99999, 0.99995, 0.9999, 0.9):
            level = share * found.p_value
            other = canaries.audit(
                sampled(), scores, members, guesses=100, significance=min(level, 0.99)
            )
            assert other.refuted == (other.p_value <= other.significance)


def test_a_plan_finds_the_fault_about_as_often_as_it_says():
    claim, fault, m = accountant_of(Gaussian(2.0)), accountant_of(Gaussian(1.0)), 2000
    guesses, power = canaries.plan(claim, fault, m)
    assert 0.5 < power < 1
    rng = np.random.default_rng(4)
    members = rng.random((400, m)) < 0.5
    scores = members + rng.normal(size=members.shape)
    highest = np.argpartition(-scores, guesses, axis=1)[:, :guesses]
    right = np.take_along_axis(members, highest, axis=1).sum(axis=1)
    found = (right >= canaries.needed(claim, m, guesses)).mean()
    assert found == pytest.approx(power, abs=0.12)
    assert canaries.plan(claim, claim, m)[1] < 0.05
    assert canaries.plan(claim, fault, 1) == (1, 0.0)


def test_the_smallest_noise_that_is_refuted():
    def accountant(noise):
        return accountant_of(Gaussian(noise))

    noise = canaries.refuted_noise(accountant, 88, 100, 1000)
    assert canaries.needed(accountant(noise), 1000, 100) <= 88
    assert canaries.needed(accountant(noise * (1 - 1e-3)), 1000, 100) > 88
    assert canaries.refuted_noise(accountant, 55, 100, 1000) == math.inf


# How it shows itself.


def test_what_is_said():
    run = training_run.TrainingRun(
        noise_multiplier=1.0,
        steps_per_epoch=100,
        epochs=10,
        sampling="poisson-sampling",
    )
    scores, members = game(10_000, 320, 290, "in")
    found = canaries.audit(run.accountant(), scores, members, guesses=320)
    assert "refuted (p = 0." in found.in_words and "not refuted" not in found.in_words
    assert f"{found.needed} or more are right" in found.in_words
    scores, members = game(10_000, 320, 200, "in")
    other = canaries.audit(run.accountant(), scores, members, guesses=320)
    assert "not refuted" in other.in_words
    assert "does not show that it is true" in other.in_words
    none = canaries.audit(run.accountant(), scores, members, guesses=1)
    assert "not refuted. Even if all of them were" in none.in_words and not none.refuted
    for each in (found, other, none):
        assert "private" not in repr(each)
        assert max(map(len, repr(each).splitlines())) <= 80
    both = canaries.table("two", {"one": found, "other": none}).text()
    assert both.count("If a claim is true") == 1 and "Where none refute" in both
