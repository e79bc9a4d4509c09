"""What the Rényi accountant knows of each type of events."""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import renyi_reader
from dp_accounting_ext.reading import selection_events
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import random_allocation
from dp_accounting_ext.renyi import randomized_response
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

Curve = curves.Curve
Reader = renyi_reader.Reader
UnsupportedError = event_reader.UnsupportedError
NeighborRel = privacy_accountant.NeighboringRelation

# Certified: answers less likely than this are as if they were never given.
_LEAST_CHANCE = 1e-300
# Tuning: less leaves higher moments to rarer hits; of a million runs it is 1e-14 of δ.
_RARE_HITS = 1e-20
_REPLACEMENTS = NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL
_ABSENCES = NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL


def no_op(event: stock.DpEvent, reader: Reader) -> Curve:
    """Reads what tells nothing."""
    return curves.NO_OP


def non_private(event: stock.DpEvent, reader: Reader) -> Curve:
    """Reads what has no privacy."""
    return curves.NON_PRIVATE


def gaussian(event: stock.GaussianDpEvent, reader: Reader) -> Curve:
    """Reads the Gaussian mechanism."""
    return _noise(event.noise_multiplier, reader)


def _noise(noise_multiplier: Any, reader: Reader, *, depth: int = 1) -> Curve:
    """Returns the curve of Gaussian noise on as many sums as a tree is deep."""
    if fields.real_number("noise_multiplier", noise_multiplier) == math.inf:
        return curves.NO_OP
    noise = fields.noise_multiplier(noise_multiplier)
    if noise == 0:
        return curves.NON_PRIVATE
    return curves.gaussian(reader.norms_replaced * math.sqrt(depth) / noise)


def laplace(event: stock.LaplaceDpEvent, reader: Reader) -> Curve:
    """Reads the Laplace mechanism."""
    if fields.real_number("noise_multiplier", event.noise_multiplier) == math.inf:
        return curves.NO_OP
    noise = fields.noise_multiplier(event.noise_multiplier)
    if noise == 0:
        return curves.NON_PRIVATE
    return Curve(pure_mechanisms.laplace_rdp, (reader.norms_replaced / noise,))


def epsilon_delta(event: Any, reader: Reader) -> Curve:
    """Reads whatever is (ε, δ)-DP.

    It is a function of an answer that with probability δ is the data, and else that
    of ε-DP randomized response: https://arxiv.org/abs/1311.0776, Theorem 3.4.
    """
    delta = fields.probability("delta", event.delta)
    return Curve(pure_mechanisms.pure_dp_rdp, (_epsilon(event),), delta)


def exponential(event: Any, reader: Reader) -> Curve:
    """Reads the exponential mechanism."""
    return Curve(pure_mechanisms.bounded_range_rdp, (_epsilon(event),))


def permute_and_flip(event: Any, reader: Reader) -> Curve:
    """Reads permute-and-flip, no pair of which is further apart than Laplace noise.

    It releases the largest of scores with exponential noise, in units of which
    neighbours' scores move by less than ε against each other. Let G(s) be the
    probability that the largest noisy score in a set of outcomes is above that
    outside of it by s. Maxima of exponential variables have hazard rates of at most
    one, so that −G' ≤ min(G, 1 − G), and equal for the Laplace law: G(s + ε) is no less
    than Laplace noise with the same G(s) has it.
    """
    return Curve(pure_mechanisms.laplace_rdp, (_epsilon(event),))


def _epsilon(event: Any) -> float:
    return fields.scale("epsilon", event.epsilon)


def discrete_gaussian(event: Any, reader: Reader) -> Curve:
    """Reads the discrete Gaussian: as the continuous one at all integer orders.

    In between it is below: https://arxiv.org/abs/2004.00010, Proposition 5. An integer
    moves by an integer.
    """
    sigma = fields.scale("sigma", event.sigma)
    sensitivity = fields.scale("sensitivity", event.sensitivity)
    if event.dimension is not None:
        fields.positive_integer("dimension", event.dimension)
    if event.dimension == 1:
        sensitivity = float(math.floor(sensitivity))
    if sensitivity == 0:
        return curves.NO_OP
    if sigma == 0:
        return curves.NON_PRIVATE
    distance = reader.norms_replaced * sensitivity / sigma
    return Curve(_concentrated_rdp, (distance**2 / 2, 0.0))


def concentrated(event: stock.ZCDpEvent, reader: Reader) -> Curve:
    """Reads a mechanism whose divergence at the order α is at most ξ + ρα."""
    rho, xi = fields.scale("rho", event.rho), fields.scale("xi", event.xi)
    return Curve(_concentrated_rdp, (rho, xi)) if rho or xi else curves.NO_OP


def _concentrated_rdp(
    orders: tuple[float, ...], rho: float, xi: float
) -> curves.FloatArray:
    line = curves.gaussian_rdp(orders, math.sqrt(2 * rho))
    return line + xi * (1 + 2.0**-50) if rho else line * 0 + xi


def tree_aggregation(event: Any, reader: Reader) -> Curve:
    """Reads sums along trees: a record is in one node of every depth of one tree.

    https://arxiv.org/abs/2103.00039, appendix D.
    """
    reader.require(event, NeighborRel.REPLACE_SPECIAL)
    given = event.step_counts
    steps = (
        [given]
        if not hasattr(given, "__len__")
        else fields.sequence("step_counts", given)
    )
    counts = [fields.non_negative_integer("step_counts", count) for count in steps]
    if not any(counts):
        raise ValueError(f"step_counts must hold a positive integer. Found {given}.")
    return _noise(event.noise_multiplier, reader, depth=max(counts).bit_length())


def _response(event: stock.RandomizedResponseDpEvent) -> tuple[float, int]:
    noise = fields.probability("noise_parameter", event.noise_parameter)
    return noise, fields.positive_integer("num_buckets", event.num_buckets)


def poisson_sampled(
    event: stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent, reader: Reader
) -> Curve:
    """Reads an event, or a tree of events, on a Poisson sample."""
    inner = _on_sample(event, reader)
    rate = fields.sampling_probability(event.sampling_probability)
    replaced = reader.neighboring_relation is NeighborRel.REPLACE_ONE
    if replaced and 0 < rate < 1 and inner != curves.NO_OP:
        if inner.distance() is None and inner != curves.NON_PRIVATE:
            reader.require(event, *_ABSENCES)
        return curves.group(1, [(rate, inner, 1)], replaced=True)
    return _tightened(event, reader, curves.on_poisson_sample(inner, rate))


def _tightened(event: Any, reader: Reader, known: Curve) -> Curve:
    """Returns the curve, or what the pairs of an event say where that is less.

    That of any mechanism on a sample knows of it no more than its divergences.
    """
    if known.kernel not in curves.LOOSE or known.delta:
        return known
    mechanism = reader.mechanism(event)
    return Curve(renyi_reader.least, (known, mechanism)) if mechanism else known


def _on_sample(event: Any, reader: Reader) -> Curve:
    """Returns the curve of what an event runs on a sample of the records."""
    for leaf, _ in event_trees.leaves(event.event):
        if isinstance(leaf, dp_event.GroupSubsampledEvent):
            size, name = leaf.group_size, type(event).__name__
            raise UnsupportedError(
                leaf,
                f"A subevent of `{name}`, a `GaussianDpEvent` or whatever, must be of "
                f"one record. Wrap the whole: GroupSubsampledEvent({size}, {name}(…)).",
            )
    return reader.sampled(event.event)


def without_replacement(
    event: stock.SampledWithoutReplacementDpEvent, reader: Reader
) -> Curve:
    """Reads a batch of fixed size, one record of it replaced."""
    reader.require(event, NeighborRel.REPLACE_ONE)
    if isinstance(event.event, stock.RandomizedResponseDpEvent):
        return _response_on_batch(event)
    inner = _on_sample(event, reader)
    size, batch = _batch(event)
    return _tightened(event, reader, curves.on_batch(inner, batch / size))


def with_replacement(
    event: stock.SampledWithReplacementDpEvent, reader: Reader
) -> Curve:
    """Reads draws with replacement, but for the chance of very many of one record.

    These move a sum so far that every moment of high order is theirs.
    """
    mechanism = reader.mechanism(event)
    if not isinstance(mechanism, batches.ReplacedDraws):
        raise UnsupportedError(event, "Its curve is that of its pairs.")
    usual, chance = mechanism.but_rarely(_RARE_HITS)
    known = renyi_reader.curve_of(usual, reader.neighboring_relation)
    return dataclasses.replace(known, delta=chance)


def _response_on_batch(event: stock.SampledWithoutReplacementDpEvent) -> Curve:
    inner: Any = event.event
    noise, buckets = _response(inner)
    size, batch = _batch(event)
    if buckets > 2:
        raise UnsupportedError(
            inner,
            "num_buckets must be 2 on a batch without replacement: the theorem is of "
            f"a bit query. Found {buckets}.",
        )
    if buckets == 1 or noise == 1 or batch == 0:
        return curves.NO_OP
    if noise / 2 < _LEAST_CHANCE:
        return curves.on_batch(curves.NON_PRIVATE, batch / size)
    return Curve(randomized_response.batch_rdp, (noise, batch / size))


def _batch(event: stock.SampledWithoutReplacementDpEvent) -> tuple[int, int]:
    """Returns the sizes of the dataset and of the batch."""
    size = fields.positive_integer("source_dataset_size", event.source_dataset_size)
    batch = fields.non_negative_integer("sample_size", event.sample_size)
    if batch > size:
        raise ValueError(
            f"sample_size must be at most source_dataset_size. Found {batch} of {size}."
        )
    return size, batch


def selected(event: stock.RepeatAndSelectDpEvent, reader: Reader) -> Curve:
    """Reads the best of a random number of runs."""
    for leaf, _ in event_trees.leaves(event.event):
        if isinstance(leaf, dp_event.GroupSubsampledEvent):
            raise UnsupportedError(
                leaf,
                "`RepeatAndSelectDpEvent` takes single-record events: no theorem "
                "covers the splits of a group.",
            )
    inner = reader.curve(event.event)
    mean, shape = selection_events.number_of_runs(event)
    return inner if inner == curves.NO_OP else curves.selected(inner, mean, shape)


def allocation(event: dp_event.RandomAllocationEvent, reader: Reader) -> Curve:
    """Reads steps of Gaussian noise in k of which each record takes part."""
    reader.require(event, *_ABSENCES)
    inner = _on_sample(event, reader)
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    distance = inner.distance()
    if distance is not None:
        noise = (1 - 2.0**-50) / distance
        return Curve(random_allocation.allocation_rdp, (noise, selected, steps))
    if inner in (curves.NO_OP, curves.NON_PRIVATE):
        return inner
    raise UnsupportedError(
        event.event,
        f"Subevent of `{type(event).__name__}` must be a `GaussianDpEvent`, or "
        f"compositions of such. Found {event.event}. "
        "dp_accounting_ext.PLDAccountant takes more.",
    )


def group(event: dp_event.GroupSubsampledEvent, reader: Reader) -> Curve:
    """Reads Gaussian noise as a group of records sees it."""
    if reader.in_sample:
        raise UnsupportedError(
            event,
            "`GroupSubsampledEvent` cannot run on a sample: put the sampling inside "
            "of it.",
        )
    # Structure first: what no theorem covers is refused whatever the fields.
    for leaf in _noises_of_group(event.event):
        allowed = stock.GaussianDpEvent | stock.NoOpDpEvent | stock.NonPrivateDpEvent
        if not isinstance(leaf, allowed):
            raise UnsupportedError(
                leaf,
                "`GroupSubsampledEvent` takes `GaussianDpEvent`, Poisson samples of it "
                f"and compositions of those. Found {leaf}. "
                "dp_accounting_ext.PLDAccountant takes more.",
            )
    size = fields.group_size(event.group_size)
    runs = list(_runs_of_group(event.event, reader))
    replaced = reader.neighboring_relation is NeighborRel.REPLACE_ONE
    return curves.group(size, runs, replaced=replaced)


def _noises_of_group(event: stock.DpEvent) -> Iterator[stock.DpEvent]:
    for leaf, _ in event_trees.leaves(event):
        if isinstance(leaf, stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent):
            yield from (inner for inner, _ in event_trees.leaves(leaf.event))
        else:
            yield leaf


def _runs_of_group(
    event: stock.DpEvent, reader: Reader
) -> Iterator[tuple[float, Curve, int]]:
    for leaf, count in event_trees.leaves(event):
        if isinstance(leaf, stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent):
            rate = fields.sampling_probability(leaf.sampling_probability)
            yield rate, reader.curve(leaf.event), count
        else:
            yield 1.0, reader.curve(leaf), count
