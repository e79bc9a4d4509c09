"""Events and certified bounds for jax_privacy's ways of drawing batches.

    from dp_accounting_ext.integrations import jax_privacy as certified

    event = certified.from_strategy(strategy, noise_multiplier)

    tracked = certified.StrategyAccountant(strategy, noise_multiplier)
    for batch in tracked.batch_iterator(num_examples, rng):  # The strategy's batches.
        …
    tracked.get_epsilon_bounds(delta)

The functions of jax_privacy that calibrate noise take `ext.PLDAccountant` itself as
their `accountant_fn`. Older versions take an object `ext.PLDAccountant(relation)` as
their `accountant`, and `accountant_config()` for their `DpsgdTrainingAccountant`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
import warnings

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.correlated import jax_strategies
from dp_accounting_ext.correlated.jax_strategies import from_strategy as from_strategy
from dp_accounting_ext.validation import fields

__all__ = [
    "StrategyAccountant",
    "accountant_config",
    "from_strategy",
]
__dir__ = __all__.copy

NeighborRel = privacy_accountant.NeighboringRelation

# Tuning: the relative amount by which a plan's ε may be smaller, because its matrix may
# be in single precision.
_PROMISE = 1e-6


class StrategyAccountant(displays.Displayed):
    """Counts the batches that a strategy's iterators yield, and bounds their ε.

    Every iterator draws its batches anew, also after a checkpoint is loaded. The steps
    that earlier iterators ran are counted, too.

    Args:
        strategy: As in `from_strategy`.
        noise_multiplier: As in `from_strategy`.
        **options: Options of `from_strategy`. With a matrix, only one iterator may run,
            because no theorem covers correlated noise across iterators.

    Raises:
        TypeError, ValueError, UnsupportedEventError: As `from_strategy` does.
    """

    def __init__(self, strategy: Any, noise_multiplier: float, **options: Any) -> None:
        from_strategy(strategy, noise_multiplier, **options)
        self.strategy, self.noise_multiplier = strategy, noise_multiplier
        self.options = options
        self._draws: list[int] = []
        self._began: list[Any] = []

    def _display(self) -> displays.Table:
        drawn = [(f"iterator {i}", str(n)) for i, n in enumerate(self._draws, start=1)]
        title = f"StrategyAccountant of a {type(self.strategy).__name__}, noise "
        title += f"multiplier {self.noise_multiplier!r}"
        return displays.Table(title, ("batches of", "handed out"), drawn)

    def batch_iterator(self, num_examples: Any, rng: Any = None) -> Iterator[Any]:
        """Returns the strategy's batches, and counts each as it is handed out.

        Args:
            num_examples: As in the strategy's own method. For a `UserSelectionStrategy`
                it is the user of each example.
            rng: As in the strategy's own method. Each iterator needs a generator in
                another state.

        Raises:
            RuntimeError: If there are more or fewer examples than were accounted for,
                or the generator's state is that of an earlier iterator, which had the
                same batches.
        """
        is_of_users = self.strategy is not jax_strategies.of_records(self.strategy)
        found = np.unique(num_examples).size if is_of_users else num_examples
        known = self.options.get("num_examples")
        if known is not None and found != known:
            raise RuntimeError(
                f"batch_iterator must draw from as many examples (or users) as are "
                f"accounted for. Found {found} for {known}: write "
                f"StrategyAccountant(…, num_examples={found})."
            )
        generator = np.random.default_rng(rng)
        state = generator.bit_generator.state
        if any(_is_same(state, other) for other in self._began):
            raise RuntimeError(
                "rng must be another one for each iterator: this one draws the batches "
                "of an earlier one again. Pass one np.random.Generator to all."
            )
        self._began.append(state)
        return self._counted(self.strategy.batch_iterator(num_examples, generator))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        number = len(self._draws)
        self._draws.append(0)
        for batch in batches:
            self._draws[number] += 1
            yield batch

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event.

        Raises:
            ValueError: If several iterators ran with correlated noise, or if the draw
                of a RandomAllocationSampling has not ended and no event says so.
        """
        draws = [steps for steps in self._draws if steps]
        if len(draws) > 1 and self.options.get("matrix") is not None:
            raise ValueError(
                f"batch_iterator must run once with correlated noise. Found "
                f"{len(draws)} that ran."
            )
        return stock.ComposedDpEvent([self._of_draw(steps) for steps in draws])

    def _of_draw(self, steps: int) -> stock.DpEvent:
        strategy = jax_strategies.of_records(self.strategy)
        planned = getattr(strategy, "total_participations", None)
        if planned is None or steps == strategy.iterations:
            # Here a shorter run is the beginning of a longer one.
            cut = dataclasses.replace(strategy, iterations=steps)
            return from_strategy(cut, self.noise_multiplier, **self.options)
        if planned != 1:
            raise ValueError(
                f"total_participations must be 1 where a draw has not ended. Found "
                f"{planned}, and {steps} of {strategy.iterations} steps. The event of "
                "all, from_strategy(…), has an upper bound for fewer."
            )
        if self.options.get("matrix") is not None:
            raise ValueError(
                f"batch_iterator must run to its end with correlated noise and a "
                f"planned number of steps for each record. Found {steps} of "
                f"{strategy.iterations} steps. The event of all, from_strategy(…), has "
                "an upper bound for fewer."
            )
        step = stock.GaussianDpEvent(self.noise_multiplier)
        return dp_event.ScheduledAllocationEvent([step], [steps], strategy.iterations)

    def pld_accountant(self) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed what ran, for risks and curves.

        A warning is issued if no batch was handed out by `batch_iterator`, as the
        batches of other iterators are not counted.
        """
        if not any(self._draws):
            warnings.warn(
                "No batch was handed out: ε is 0. Train on "
                "tracked.batch_iterator(num_examples, rng), not on the strategy's own.",
                stacklevel=2,
            )
        return pld_accountant.PLDAccountant(self._relation).compose(self.event())

    @property
    def _relation(self) -> NeighborRel:
        relation: NeighborRel = self.options.get(
            "neighboring_relation", NeighborRel.ADD_OR_REMOVE_ONE
        )
        return relation

    def check(self, plan: Any, delta: float) -> None:
        """Checks that an execution plan agrees with what this accountant counts.

        Args:
            plan: A `DPExecutionPlan` of `jax_privacy.experimental.execution_plan`.
            delta: δ at which both are compared.

        Raises:
            TypeError: If `plan` is not an execution plan.
            RuntimeError: If the plan has another strategy, or if the ε of its event is
                certainly less than that of all steps of the strategy. Where batches are
                samples of groups in turn, both are for an example whose group is known,
                as jax_privacy's events are.
        """
        for name in ("batch_selection_strategy", "dp_event"):
            if not hasattr(plan, name):
                raise TypeError(f"plan must have a {name}. Found {plan!r:.60}.")
        planned = plan.batch_selection_strategy
        if type(planned) is not type(self.strategy) or planned != self.strategy:
            raise RuntimeError(
                f"The plan's strategy must be the one that runs. Found {planned!r} in "
                f"the plan, and {self.strategy!r}: write "
                f"StrategyAccountant(plan.batch_selection_strategy, …)."
            )
        event = jax_strategies.of_known_group(
            self.strategy, self.noise_multiplier, **self.options
        )
        promised, least = (
            pld_accountant.PLDAccountant(self._relation)
            .compose(each)
            .get_epsilon_bounds(delta)[side]
            for each, side in ((plan.dp_event, 1), (event, 0))
        )
        if promised < least * (1 - _PROMISE):
            raise RuntimeError(
                f"The plan's event must not promise less than its steps keep. Found "
                f"ε = {promised:g} for plan.dp_event, and at least {least:g} for "
                f"{type(planned).__name__} with noise_multiplier "
                f"{self.noise_multiplier:g}: take the noise and matrix of the plan."
            )

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats."""
        return self.pld_accountant().get_epsilon_bounds(delta)

    def state_dict(self) -> dict[str, Sequence[int]]:
        """Returns the state for a checkpoint: the number of steps of each draw."""
        return {"draws": list(self._draws)}

    def load_state_dict(self, state: Mapping[str, Sequence[int]]) -> None:
        """Restores a state of `state_dict`. Iterators that run from now on draw anew.

        Raises:
            TypeError, ValueError: If it is not such a state. Nothing is then changed.
        """
        self._draws = [
            fields.non_negative_integer("draws", steps)
            for steps in fields.sequence("draws", state.get("draws"))
        ]


def _is_same(state: Any, other: Any) -> bool:
    """Whether two states of bit generators, which may hold arrays, are equal."""
    if isinstance(state, Mapping) and isinstance(other, Mapping):
        return state.keys() == other.keys() and all(
            _is_same(state[name], other[name]) for name in state
        )
    return bool(np.array_equal(state, other))


def accountant_config() -> Any:
    """Returns the configuration of a certified accountant, for versions up to 2.0.

    `jax_privacy.accounting.DpsgdTrainingAccountant` takes it, and so do the functions
    that calibrate noise for it.
    """
    from jax_privacy import accounting

    class CertifiedAccountantConfig(accounting.PldAccountantConfig):  # type: ignore[misc]
        def create_accountant(self) -> pld_accountant.PLDAccountant:
            return pld_accountant.PLDAccountant()

    return CertifiedAccountantConfig()
