"""Every message that a user reaches at the public edge, provoked once.

Each is one line that names the field, says what it must be, and what was found. The
last test asks the source: a message without its case here fails it.
"""

import ast
import math
import pathlib
import re

import dp_accounting
from dp_accounting import privacy_accountant
import numpy as np
import pytest
import test_refusals

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import risk
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import sampling_certificate
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

PACKAGE = pathlib.Path(ext.__file__).parent
Gaussian = dp_accounting.GaussianDpEvent
Composed = dp_accounting.ComposedDpEvent
Unsupported = privacy_accountant.UnsupportedEventError


def compose(event, accountant=ext.PLDAccountant):
    return lambda: accountant().compose(event)


def run(**changes):
    return lambda: training_run.TrainingRun(**{"steps_per_epoch": 10, **changes})


def profiles(**options):
    setting = training_run.TrainingRun(1.0, 2, 1, 1, 1e-3)
    return lambda: curves.profiles(setting, **options)


def certify(event, **options):
    return lambda: ext.certify_by_sampling(event, **{"delta": 0.01, **options})


def audit(scores=(2.0, 1.0), members=(1, 0), guesses=1, **options):
    return lambda: canaries.audit(NOTHING, scores, members, guesses=guesses, **options)


def mixture(gram):
    return lambda: sampling_certificate.certify_mixture(gram, 0.01)


def strategy(value, steps=2):
    return lambda: strategies.strategy(value, steps)


def buffered(decays, scales):
    make = ext.MatrixAllocationEvent.from_buffered_toeplitz
    return lambda: make(decays, scales, 1.0, 2, 2)


def windowed(strategy=(1.0, 0.5), **fields):
    fields = {"window": 5, "separation": 3, "num_cycles": 2} | fields
    return compose(ext.WindowedAllocationEvent(strategy, 1.0, **fields))


def min_sep(strategy=(1.0, 0.5), **fields):
    fields = {"separation": 2, "num_steps": 3} | fields
    return compose(ext.MinSepSamplingEvent(strategy, 1.0, 0.5, **fields))


def sampled_again_and_again():
    event = Gaussian(1.0)
    for _ in range(20):
        event = dp_accounting.PoissonSampledDpEvent(0.5, event)
    return event


class Unknown(dp_accounting.DpEvent):
    """Registered nowhere."""


ADD_OR_REMOVE = privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE
GROUP = ext.GroupSubsampledEvent(2, Gaussian(9.0))
MATRIX = ext.MatrixAllocationEvent((1.0, 0.5), 3.0, 4, 1)
NOTHING = ext.PLDAccountant()
LOOP = Composed([])
LOOP.events.append(LOOP)
SETTING = training_run.TrainingRun(None, 10, 1, 1, 1e-6)

# Beside the rows of test_refusals.py. The last test finds each message in the source.
CASES = [
    # validation.fields, by the field of an event, an accountant or a run
    compose(Gaussian(math.nan)),
    compose(Gaussian(10**400)),
    lambda: fields.real_number("epsilon", np.longdouble("1e-4000")),
    compose(Gaussian(1e99)),
    compose(ext.PLDSubsampleEvent(1e-200, Gaussian(1.0))),
    lambda: ext.PLDAccountant().get_true_positive_rate_bounds("x"),
    lambda: ext.PLDAccountant().get_true_positive_rate_bounds(2.0),
    compose(ext.RandomAllocationEvent(Gaussian(1.0), 5, 3)),
    compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 10**10)),
    run(group_size=2**60),
    run(epochs=-0.5),
    compose(
        ext.GroupSubsampledEvent(
            9999, dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(1.0))
        )
    ),
    compose(ext.ScheduledAllocationEvent("x", [1], 2)),
    lambda: ext.PLDAccountant("ADD"),
    lambda: ext.PLDAccountant(value_discretization_interval=0.0),
    lambda: ext.PLDAccountant().get_epsilon_bounds(1e-6, direction="out"),
    # studies.training_run
    run(noise_multiplier=0.0),
    run(steps_per_epoch=10**6, epochs=10**6),
    run(delta=1.0),
    run(steps_per_epoch=None),
    run(dataset_size=10, batch_size=2),
    run(steps_per_epoch=None, dataset_size=10, batch_size=20),
    run(num_steps=9, epochs=2),
    run(sampling="shuffle"),
    run(batches_per_record=11),
    lambda: strategy_comparison.event_of(
        "1,0.5", run(noise_multiplier=1.0, epochs=2.5)()
    ),
    lambda: strategy_comparison.event_of(
        "1,0.5", run(noise_multiplier=1.0, num_steps=25)()
    ),
    lambda: run(sampling="shuffled")().event,
    lambda: run(sampling="shuffled")().accountant(ADD_OR_REMOVE),
    lambda: comparison.compare(training_run.TrainingRun(1.0, 10)),
    lambda: statement.claims(1.0),
    lambda: comparison.compare({"delta": 1e-6}),
    # studies.calibration, studies.curves
    lambda: calibration.calibrate(SETTING, -1.0),
    lambda: calibration.calibrate(run(delta=1e-15)(), 1e-12),
    profiles(epsilons=[-1.0]),
    profiles(num_points=2),
    lambda: curves.trade_offs(SETTING, least_rate=0.0),
    # studies.canaries
    audit(scores=[1.0, math.nan]),
    audit(scores="x"),
    audit(members=[1]),
    audit(members=[1, 2]),
    audit(scores=[], members=[], guesses=1),
    audit(scores=[0.0] * 30, members=[True] * 30),
    audit(guesses=3),
    audit(guesses=0),
    audit(guesses=1.0),
    audit(guess="out"),
    audit(significance=1.0),
    lambda: canaries.epsilon_lower_bound(3, 2, 9, 1e-5),
    lambda: canaries.plan(NOTHING, 1.0, 9),
    # studies.sweep
    lambda: sweep.check_columns(["noise multiplier"]),
    lambda: sweep.check_columns(["a", "a"]),
    lambda: sweep.check_columns(["noise_multiplier"]),
    lambda: sweep.check_columns(["note"]),
    lambda: sweep.check_columns(["fpr"]),
    lambda: sweep.columns_of(["x"]),
    lambda: sweep.setting_of({"delta": "x", "sampling": "shuffled"}),
    lambda: sweep.setting_of({"steps_per_epoch": "x", "sampling": "shuffled"}),
    lambda: sweep.setting_of({"sampling": "shuffled", "fpr": 2}),
    sweep.Setting(SETTING, epsilon=0.0).with_noise,
    lambda: sweep.sweep_to_file([], "", None),
    lambda: sweep.sweep_to_file([{"strategy": 1}, {"name": 1}], "", None),
    lambda: sweep.sweep_to_file([{"strategy": "a\nb"}], "", None),
    lambda: sweep.sweep_to_file([{"strategy": "a"}], __file__, None),
    lambda: ext.PLDAccountant().get_delta("high"),
    lambda: ext.PLDAccountant().get_delta(["high"]),
    # risk, budget
    lambda: risk.membership_success(NOTHING, 0.0),
    lambda: risk.attack_success(NOTHING, -0.1),
    lambda: risk.advantage(0.5),
    lambda: risk.positive_predictive_value(NOTHING, 0.0),
    lambda: budget.RenyiFilter(0.0, 0.1),
    lambda: budget.GaussianFilter(1.0, 1.0),
    lambda: budget.RenyiFilter(1.0, 0.1, orders=[1.0]),
    lambda: budget.RenyiFilter(0.1, 1e-6, orders=[2.0]),
    lambda: budget.RenyiFilter(1.0, 0.1).spend(dp_accounting.NonPrivateDpEvent()),
    lambda: budget.RenyiFilter(1.0, 0.1).spend(GROUP),
    lambda: budget.GaussianFilter(1.0, 0.1).spend(Gaussian(0.0)),
    lambda: budget.remaining(NOTHING, Gaussian(1.0), -1.0, 0.1),
    lambda: budget.remaining(NOTHING, dp_accounting.NoOpDpEvent(), 1.0, 0.1),
    # sampling_certificate
    certify(Gaussian(1.0)),
    certify(ext.PoissonMatrixEvent((1.0, 0.5), 1.0, 1.0, 9)),
    certify(ext.PoissonMatrixEvent((1.0, 0.5), 0.0, 0.5, 9)),
    certify(ext.PoissonMatrixEvent((1.0,) * 9, 50.0, 0.5, 100)),
    compose(ext.PoissonMatrixEvent((1.0,), 1.0, 0.5, 1 << 18)),
    compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 1024, 129)),
    compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 9, 8)),
    certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 12, 2)),
    certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 0.0, 2, 12)),
    certify(ext.MatrixAllocationEvent((1.0,), 0.0, 2, 1)),
    certify(ext.RandomAllocationEvent(Gaussian(0.0), 2, 9)),
    certify(ext.RandomAllocationEvent(Gaussian(1.0), 2, 92)),
    certify(MATRIX, seed="x"),
    certify(MATRIX, delta=0.0),
    certify(MATRIX, most_seconds=0.0),
    mixture([1.0, 0.5]),
    mixture(np.broadcast_to(1.0, (4097, 4097))),
    mixture([[math.nan]]),
    mixture(np.zeros((2, 2))),
    mixture([[1.0, 0.5], [0.4, 1.0]]),
    # validation.strategies
    strategy(()),
    strategy((0.0, 1.0)),
    strategy((1.0, -0.5)),
    strategy((1.0, 1e-200)),
    strategy(((1.0,),)),
    strategy(((1.0,),) * 1025, 1025),
    strategy(((1.0,), (1.0, 2.0))),
    strategy(((1.0, 0.5), (0.0, 1.0))),
    strategy(((1.0, 0.0), (1.0, 0.0))),
    compose(ext.MatrixAllocationEvent((1.0,), 1.0, 5000, 1)),
    compose(ext.MatrixAllocationEvent((1.0,), 1.0, 4096, 33)),
    min_sep(separation=5000),
    min_sep(num_steps=1 << 18),
    min_sep(warm_start=1),
    min_sep(strategy=(1.0, 0.5, 0.5)),
    min_sep(strategy=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.0, 1.0))),
    windowed(window=5000),
    windowed(num_cycles=20000),
    windowed(strategy=((1.0, 0.0), (0.5, 1.0))),
    windowed(strategy=(1.0, 0.5, 0.5, 0.5)),
    buffered([0.5], [0.1, 0.2]),
    buffered([1.5], [0.1]),
    buffered([0.5], [math.inf]),
    # validation.event_trees
    compose(Composed([1.0])),
    compose(Composed([Gaussian(1.0)] * 300_000)),
    compose(LOOP),
    compose(sampled_again_and_again()),
    # accountants
    lambda: risk.published(mu=1.0, rho=1.0),
    lambda: risk.published(mu=1.0, delta=0.1),
    lambda: risk.largest_rho(501.0, 1e-5),
    lambda: risk.largest_mu(1.0, 1.0),
    lambda: risk.published(mu=-1.0),
    lambda: risk.gaussian_regret(ext.PLDAccountant(), -1.0),
    lambda: ext.PLDAccountant().get_gdp_parameter_estimate([0.9]),
    lambda: ext.PLDAccountant().get_gdp_parameter_bounds(least_false_positive_rate=0.9),
    lambda: ext.PLDAccountant().explain(1.0),
    lambda: ext.RdpAccountant().get_epsilon(-1.0),
    lambda: ext.RdpAccountant().get_delta(-1.0),
    lambda: ext.RdpAccountant([0.5]),
    lambda: ext.RdpAccountant([]),
]


@pytest.fixture(scope="module")
def messages():
    found = []
    for provoke in [*CASES, *(call for _, call in test_refusals.ROWS)]:
        with pytest.raises((TypeError, ValueError)) as error:
            provoke()
        found.append(str(error.value))
    return found


def test_each_is_one_line_of_field_value_and_remedy(messages):
    named = r"[a-z_]+('s \w+| out of \w+| and \w+)?( times \w+|,[\w ']+,)? must "
    part = r"[a-z_]+( of (a )?[a-z_]+)?( from itself| and \w+)? (must|may) "
    for message in messages:
        assert re.match(f"{named}|{part}", message), message
        assert re.search(r"Found |CSV file", message), message
        assert "\n" not in message and message.endswith((".", "…")), message


EDGE = [
    "validation/fields.py",
    "validation/event_trees.py",
    "correlated/strategies.py",
    "accountants/risk.py",
    "accountants/budget.py",
    "accountants/noise_search.py",
    "correlated/sampling/sampling_certificate.py",
    "studies/training_run.py",
    "studies/calibration.py",
    "studies/canaries.py",
    "studies/curves.py",
    "studies/sweep.py",
    "wpm/base_measures.py",
    "wpm/checks.py",
    "wpm/costs.py",
    "wpm/estimates.py",
    "wpm/mechanism.py",
    "wpm/private_rows.py",
    "wpm/sampling_mechanism.py",
    "wpm/sphere.py",
    "kernel/dominating_pair.py",
    "kernel/output_pairs.py",
    "mechanisms/batches.py",
    "reading/stock_pld.py",
    "accountants/pld.py",
    "accountants/pld_accountant.py",
    "accountants/rdp_accountant.py",
]


def templates(path):
    """The longest constant part of what is said by each raise of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        name = getattr(node.exc.func, "id", "")
        if name in ("TypeError", "ValueError") and node.exc.args:
            parts = [
                part.value
                for part in ast.walk(node.exc.args[0])
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if parts:
                yield max(parts, key=len)


def test_every_message_of_the_edge_is_here(messages):
    for name in EDGE:
        found = list(templates(PACKAGE / name))
        assert found, name
        for part in found:
            assert any(part.strip() in each for each in messages), (name, part)


@pytest.mark.parametrize(
    ("event", "accountant", "remedy"),
    [
        (Unknown(), ext.PLDAccountant, "`PLDAccountant.register` takes one"),
        (Unknown(), ext.RdpAccountant, "`PLDAccountant.register` takes one"),
        (
            ext.GroupSubsampledEvent(2, ext.GroupSubsampledEvent(2, Gaussian(1.0))),
            ext.PLDAccountant,
            "`GroupSubsampledEvent`",
        ),
    ],
)
def test_refusals_name_what_would_work(event, accountant, remedy):
    with pytest.raises(Unsupported) as error:
        accountant().compose(event)
    assert type(event).__name__ in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
