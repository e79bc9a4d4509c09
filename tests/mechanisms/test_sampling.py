"""A sampling scheme of one's own: written, registered, and held to the enumeration."""

import dataclasses
from fractions import Fraction
import itertools
import math

import attr
import dp_accounting
import enumerated_batches as enumerated
from mechanism_laws import deltas
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.validation import fields

NeighborRel = dp_accounting.NeighboringRelation
RATE = Fraction(1, 4)
COMMON = ["c", "d"]
LAPLACE = mechanisms.NeighboringBatches(
    discrete_outputs.DiscreteLaplace(math.log(2), 1)
)
EPSILONS = (0.0, 0.2, 0.7, 1.4)


@dataclasses.dataclass(frozen=True)
class Everybody(mechanisms.Scheme):
    """One coin for all: the whole dataset, or an empty batch."""

    rate: float

    def coupled(self, removed, inserted):
        everybody = mechanisms.Coupled(
            ((float(removed), 1.0),), ((float(inserted), 1.0),), probability=self.rate
        )
        return [everybody, mechanisms.Coupled(probability=1 - self.rate)]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EverybodyEvent(dp_accounting.DpEvent):
    """Represents Gaussian noise on the sum over such a batch."""

    rate: float
    noise_multiplier: float


def read(event, reader):
    rate = fields.sampling_probability(event.rate)
    noise = mechanisms.Noise(fields.noise_multiplier(event.noise_multiplier))
    return Everybody(rate).one(noise, reader.neighboring_relation)


def outputs(dataset, value):
    """Returns the law of noisy sums over batches of a dataset, exactly."""
    whole, empty = sum(map(value, dataset)), 0
    return enumerated.mixed(
        [(RATE, enumerated.noisy(whole)), (1 - RATE, enumerated.noisy(empty))]
    )


@pytest.mark.parametrize("split", [(1, 0), (0, 1), (1, 1), (2, 1), (3, 0)])
@pytest.mark.parametrize("others", list(itertools.product((-1, 0, 1), repeat=2)))
def test_a_scheme_bounds_what_is_enumerated(split, others):
    removed, inserted = split
    mechanism = Everybody(float(RATE)).split(LAPLACE, removed, inserted)
    value = {"a": 1, "b": -1, **dict(zip(COMMON, others, strict=True))}
    first = COMMON + [f"a{i}" for i in range(removed)]
    second = COMMON + [f"b{i}" for i in range(inserted)]
    p, q = (outputs(each, lambda record: value[record[0]]) for each in (first, second))
    for epsilon in EPSILONS:
        kappa = Fraction(math.nextafter(math.exp(epsilon), math.inf))
        remove, add = deltas(mechanism, epsilon)
        assert enumerated.hockey_stick(p, q, kappa) <= remove
        assert enumerated.hockey_stick(q, p, kappa) <= add
        # Nothing was said to be attained.
        assert deltas(mechanism, epsilon, Bound.LOWER) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("relation", "moved"),
    [
        (NeighborRel.ADD_OR_REMOVE_ONE, 1),
        (NeighborRel.REPLACE_ONE, 2),
        (NeighborRel.REPLACE_SPECIAL, 1),
    ],
)
def test_a_registered_scheme_is_accounted_for(relation, moved):
    """Where the coin is told, δ is its chance times that of noise on the dataset."""
    ext.PLDAccountant.register(EverybodyEvent, read)
    accountant = ext.PLDAccountant(relation).compose(EverybodyEvent(0.25, 3.0))
    noise = dp_accounting.GaussianDpEvent(3.0 / moved)
    alone = ext.PLDAccountant().compose(noise)
    for epsilon in EPSILONS:
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower == 0
        truth = 0.25 * alone.get_delta_bounds(epsilon)[0]
        assert truth <= upper <= truth * (1 + 1e-4)
    of_three = ext.GroupSubsampledEvent(3, EverybodyEvent(0.25, 3.0))
    grouped = ext.PLDAccountant(relation).compose(of_three).get_delta(0.5)
    assert accountant.get_delta(0.5) < grouped < 0.25


@pytest.mark.parametrize(
    "scheme", [sampling.Poisson(0.2), sampling.FixedSize(9, 3, False)]
)
@pytest.mark.parametrize("split", [(1, 0), (2, 1)])
def test_what_is_attained_lies_below(scheme, split):
    found = scheme.split(mechanisms.Noise(1.0), *split)
    for epsilon in EPSILONS:
        lower = deltas(found, epsilon, Bound.LOWER)[0]
        upper = deltas(found, epsilon)[0]
        assert 0 < lower <= upper


@pytest.mark.parametrize("chance", [0.5, math.nan])
def test_a_scheme_whose_parts_are_no_law_is_refused(chance):
    class Half(Everybody):
        def coupled(self, removed, inserted):
            return [mechanisms.Coupled(probability=chance)]

    with pytest.raises(ValueError, match=r"probabilities of parts must"):
        Half(0.5).split(LAPLACE, 1, 0)
