"""The second opinion: it confirms what is right, and sees what is wrong."""

import json
import math
import sys

from command_runner import run
import dp_accounting
from dp_accounting import pld as stock_pld
import nights
import numpy as np
import pytest
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext import verify
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.studies import second_opinion
from dp_accounting_ext.verify import brackets
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import sampling
from dp_accounting_ext.verify import verification

ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
STEP = dp_accounting.GaussianDpEvent(1.0)
SAMPLE = dp_accounting.PoissonSampledDpEvent(0.01, STEP)
ALLOCATED = ext.RandomAllocationEvent(STEP, 1, 100)
# Of draws: what has no theorem is looked at for as long.
SECONDS = 0.4
COMMAND = "verify --noise-multiplier 1 --delta 1e-6 --steps-per-epoch 8 "
POISSON = COMMAND + "--sampling poisson-sampling"


def each_once(compute):
    """Returns the function, which then computes the bracket of each question once."""
    known = {}

    def bracket(*asked, **sizes):
        question = repr((asked, sizes))
        if question not in known:
            known[question] = compute(*asked, **sizes)
        return known[question]

    return bracket


COMPUTED = brackets.brackets
BRACKET = each_once(COMPUTED)


@pytest.fixture(autouse=True)
def few_cells(request, monkeypatch):
    """Brackets of half a percent are enough where nobody asks for their width."""
    monkeypatch.setitem(verify.verify_epsilon.__kwdefaults__, "seconds", SECONDS)
    if "nightly" not in request.keywords:
        monkeypatch.setattr(brackets, "_CELLS", 150)
        monkeypatch.setattr(brackets, "_OUTPUTS", 120)
        monkeypatch.setattr(brackets, "brackets", BRACKET)
        monkeypatch.setattr(sampling, "_MOST", 400_000)


def verified(event, count=1, delta=1e-6):
    return verify.verify_epsilon(ext.PLDAccountant().compose(event, count), delta)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("event", "count"),
    [
        (SAMPLE, 1000),
        (ext.PLDSubsampleEvent(0.1, ALLOCATED), 1),
    ],
)
def test_brackets_are_narrow_within_a_minute(event, count):
    found = verified(event, count)
    assert found.verdict is verify.Verdict.CONFIRMED
    assert 0 < found.upper - found.lower < 0.01 * found.upper
    assert found.seconds < 60
    assert found.possible_error < 0.01


@pytest.mark.parametrize(
    ("event", "truth"),
    [
        (dp_accounting.NoOpDpEvent(), 0.0),
        (dp_accounting.NonPrivateDpEvent(), math.inf),
        (dp_accounting.LaplaceDpEvent(2.0), None),
        (
            dp_accounting.ComposedDpEvent(
                [ext.ScheduledAllocationEvent([STEP], [2], 9), SAMPLE]
            ),
            None,
        ),
        (ext.GroupSubsampledEvent(2, SAMPLE), None),
    ],
)
def test_what_is_right_is_confirmed(event, truth):
    found = verified(event)
    assert found.verdict is verify.Verdict.CONFIRMED
    if truth is not None:
        assert found.lower == found.upper == truth


def test_accountants_of_others_are_verified():
    accountant = stock_pld.PLDAccountant().compose(SAMPLE, 5)
    found = verify.verify_epsilon(accountant, 1e-6)
    assert found.verdict is verify.Verdict.CONFIRMED and found.claimed_lower == 0
    loose = ext.RdpAccountant().compose(SAMPLE, 5)
    assert verify.verify_epsilon(loose, 1e-6).possible_error == 0


@pytest.mark.parametrize(
    ("wrong", "share"), [("epsilon", 0.97), ("bounds", 0.97), ("both", math.nan)]
)
def test_every_answer_of_an_accountant_is_verified(wrong, share):
    """A subclass may override one question only."""

    class Wrong(ext.PLDAccountant):
        def get_epsilon(self, target_delta):
            right = super().get_epsilon(target_delta)
            return right if wrong == "bounds" else share * right

        def get_epsilon_bounds(self, target_delta):
            low, high = super().get_epsilon_bounds(target_delta)
            return low, high if wrong == "epsilon" else share * high

    found = verify.verify_epsilon(Wrong().compose(SAMPLE, 20), 1e-6)
    assert found.verdict is verify.Verdict.DISAGREES
    assert found.possible_error > 0.02


class Claims(ext.PLDAccountant):
    """Claims the same of every event, which need not be computed."""

    def get_epsilon(self, target_delta):
        return 1.0

    def get_epsilon_bounds(self, target_delta):
        return 0.5, 1.0


def test_where_there_is_no_bound_it_says_so():
    event = ext.GroupSubsampledEvent(65, SAMPLE)
    found = verify.verify_epsilon(Claims().compose(event), 1e-6)
    assert found.verdict is verify.Verdict.UNDECIDED
    assert found.reason.startswith("no theorem")
    assert (found.lower, found.upper) == (0, math.inf)


COLUMN = (1.0, 0.5, 0.25)
ALLOCATION = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(2.0), 1, 20)
BINS = ext.MatrixAllocationEvent(COLUMN, 2.0, 4, 2)
WINDOWS = ext.WindowedAllocationEvent(COLUMN, 1.5, 4, 3, 5, 0.5)
# Events without a theorem, and what an accountant with a fault reads in their place.
NOT_BRACKETED = {
    "bins": (BINS, ext.MatrixAllocationEvent((1.0, 0.3, 0.1), 2.0, 4, 2), ADD),
    "windows": (WINDOWS, ext.WindowedAllocationEvent(COLUMN, 1.5, 4, 3, 4, 0.5), ADD),
    "apart": (ext.MinSepSamplingEvent(COLUMN, 2.0, 0.1, 3, 20), None, ADD),
    "groups": (ext.CyclicPoissonEvent(COLUMN, 2.0, 0.3, 4, 20), None, ADD),
    "samples": (ext.PoissonMatrixEvent(COLUMN, 2.0, 0.1, 20), None, ADD),
    "many bands": (ext.PoissonMatrixEvent((1.0,) * 12, 6.0, 0.1, 20), None, ADD),
    "two of eight": (ext.SelectedStepsMatrixEvent(COLUMN, 4.0, 2, 8, 1), None, ADD),
    "replaced in 1 of 20": (
        ALLOCATION,
        ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(2.1), 1, 20),
        REPLACE,
    ),
    # Few outputs of so few steps can be listed, but bound ε only from far above.
    "two of six": (
        ext.RandomAllocationEvent(STEP, 2, 6),
        ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.1), 2, 6),
        ADD,
    ),
    "replaced in 3 of 10": (ext.RandomAllocationEvent(STEP, 3, 10), None, REPLACE),
    "a group": (ext.GroupSubsampledEvent(3, ALLOCATION), None, ADD),
    "an epoch that stopped": (
        ext.ScheduledAllocationEvent([STEP], [6], 9),
        ext.ScheduledAllocationEvent([STEP], [6], 12),
        REPLACE,
    ),
    "truncated": (
        dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(50, 0.1, 5, 1.0),
        None,
        ADD,
    ),
    "zCDP": (dp_accounting.dp_event.ZCDpEvent(0.1, 0.0), None, ADD),
    "a selection": (
        dp_accounting.dp_event.RepeatAndSelectDpEvent(STEP, 2.0, 1.0),
        None,
        ADD,
    ),
    "a sum": (dp_accounting.ComposedDpEvent([BINS, SAMPLE]), None, ADD),
}


class Claimed:
    """Claims ε of one event for another one."""

    def __init__(self, ledger, read, neighboring_relation):
        self.ledger, self.neighboring_relation = ledger, neighboring_relation
        self.get_epsilon = (
            ext.PLDAccountant(neighboring_relation).compose(read).get_epsilon
        )


# Asked at night: the laws of their draws and losses are tested in test_draws.py.
DRAWN = "apart", "groups", "samples", "many bands", "two of eight"
DRAWN += "an epoch that stopped", "replaced in 3 of 10"


@pytest.mark.parametrize(
    "name", [k for k in NOT_BRACKETED if k not in DRAWN] + nights.at_night(*DRAWN)
)
def test_what_has_no_theorem_is_not_refuted(name):
    event, wrong, relation = NOT_BRACKETED[name]
    found = verify.verify_epsilon(Claimed(event, event, relation), 1e-5)
    assert found.verdict is verify.Verdict.NOT_REFUTED
    assert 0 < found.lower < found.claimed_upper < found.upper
    assert 0 < found.visible_error < 1
    if wrong is None:
        return
    seen = verify.verify_epsilon(Claimed(event, wrong, relation), 1e-5)
    assert seen.verdict is verify.Verdict.DISAGREES


@pytest.mark.parametrize(
    ("event", "at"),
    [
        *((SAMPLE, at) for at in (-0.5, 0.0, "half", "rate")),
        *((BINS, at) for at in (-0.5, "half", "rate")),
    ],
)
def test_every_other_answer_is_looked_at(event, at):
    """ε is right, and one answer beside it is wrong."""

    class Wrong(ext.PLDAccountant):
        def get_delta_bounds(self, target_epsilon):
            low, high = super().get_delta_bounds(target_epsilon)
            wrong = target_epsilon == at or (at == "half" and target_epsilon > 0)
            return (0.0, 0.7 * low) if wrong else (low, high)

        def get_true_positive_rate_bounds(self, rate):
            low, high = super().get_true_positive_rate_bounds(rate)
            return (0.0, 0.9 * low) if at == "rate" else (low, high)

    found = verify.verify_epsilon(Wrong().compose(event), 1e-5)
    assert found.verdict is verify.Verdict.DISAGREES
    assert sum(answer.is_wrong for answer in found.answers) == 1


@pytest.fixture(params=["too small", *nights.at_night("too large")])
def wrong_bounds(request, monkeypatch):
    """The package as it would be with a bound on the wrong side, by a percent.

    The second opinion computes its brackets anew, which must not follow.
    """
    monkeypatch.setattr(brackets, "brackets", each_once(COMPUTED))
    worst, share = (
        privacy_bounds.WorstPrivacyBounds,
        0.99 if request.param[4:] == "small" else 1.01,
    )
    right, both = worst.upper_epsilons, worst.epsilon_bounds
    monkeypatch.setattr(worst, "upper_epsilons", lambda *a: right(*a) * share)
    monkeypatch.setattr(
        worst, "epsilon_bounds", lambda *a: [share * each for each in both(*a)]
    )


def test_a_wrong_bound_is_seen(capsys, wrong_bounds):
    status, out, err = run(capsys, POISSON + " --json")
    (row,) = json.loads(out)["results"]
    assert (status, err, row["verdict"]) == (1, "", "disagrees")
    assert row["claimed_upper"] < row["lower"] or row["claimed_lower"] > row["upper"]
    status, out, _ = run(capsys, POISSON)
    assert status == 1 and "One of them is wrong" in " ".join(out.split())
    assert out.count("[") == 2  # Both brackets.
    asked = POISSON.replace("verify", "statement") + " --verify"
    status, out, _ = run(capsys, asked)
    assert status == 1 and "Do not rely on these numbers" in out


def test_the_command_and_the_sentence(capsys):
    status, out, err = run(capsys, POISSON + " --json")
    (row,) = json.loads(out)["results"]
    assert (status, err, row["verdict"]) == (0, "", "confirmed")
    assert row["lower"] <= row["claimed_upper"] and row["claimed_lower"] <= row["upper"]
    none = COMMAND + "--batches-per-record 2 --sampling random-allocation"
    status, out, err = run(capsys, none)
    assert (status, err) == (4, "") and "would have been refuted" in " ".join(
        out.split()
    )
    unknown = verification.Verification(1e-6, 0.0, math.inf, 1.0, 1.1, 0.0)
    opinion = second_opinion.Opinion("any", "replace", 1, unknown)
    assert "No second computation" in second_opinion.sentence([opinion])
    shown = POISSON.replace("verify", "statement") + " --brief --verify"
    status, out, _ = run(capsys, shown)
    assert status == 0 and "confirms ε of Poisson sampling" in " ".join(out.split())


def test_without_the_library_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    status, out, err = run(capsys, POISSON)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and "pip install '.[verify]'" in err


@pytest.mark.parametrize("masses", [(), (0.6,), (0.4, 0.4, 0.4), (1.0, 0.2)])
def test_private_samples_of_given_masses_are_not_refuted(masses):
    """Laws that the given masses do not allow were compared with the claims."""
    event = ext.wpm.PrivateSamplingEvent(1.0, 1.2, masses)
    accountant = ext.PLDAccountant(REPLACE).compose(event)
    found = verify.verify_epsilon(accountant, 0.05)
    assert found.verdict is not verify.Verdict.DISAGREES
    assert found.lower > 0.7 * found.claimed_lower
    assert masses or found.verdict is verify.Verdict.CONFIRMED


@pytest.mark.nightly
def test_ratios_whose_squares_fit_no_float():
    steps = [dp_accounting.GaussianDpEvent(0.1), dp_accounting.LaplaceDpEvent(0.00134)]
    event = dp_accounting.PoissonSampledDpEvent(
        0.999999999, ext.ScheduledAllocationEvent(steps, (3, 2), 6)
    )
    assert verified(event, delta=1e-215).verdict != "disagrees"


def test_truncated_batches_without_noise():
    """Of three records, so that the probability of a member decides all."""
    event = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(3, 0.0275, 4, 0.0)
    accountant = ext.PLDAccountant().compose(event, 4)
    found = verify.verify_epsilon(accountant, 0.2)
    (delta,) = [a for a in found.others if a.kind == "δ" and a.at == 0.0]
    truth = 1 - (1 - 0.0275) ** 4
    assert delta.claimed_lower <= truth <= delta.claimed_upper
    assert delta.lower <= truth * (1 + 1e-12)
    assert delta.lower > 0.999 * truth


@pytest.mark.parametrize("epsilon", [0.3, 3.0, 8.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_exponential_mechanisms_of_two_candidates(epsilon, share):
    """Beside the largest δ of any difference of their losses, by its closed form."""
    event = ext.dp_event.ExponentialMechanismDpEvent(epsilon)
    at, sizes = share * epsilon, channels.Sizes(channels.Side.LOW)
    found = max(
        float(case.delta(at, remove=way)[0])
        for case in kinds.cases(event, ADD, sizes)
        for way in (True, False)
    )
    gaps = epsilon * np.linspace(-3, 3, 601)
    q, p = (special.expit(gaps + move * epsilon / 2) for move in (-1, 1))
    gains = np.maximum(p - np.exp(at) * q, 0)
    gains += np.maximum((1 - p) - np.exp(at) * (1 - q), 0)
    assert 0.25 * gains.max() <= found <= gains.max() * (1 + 1e-9)
