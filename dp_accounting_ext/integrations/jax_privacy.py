"""Events and certified bounds for jax_privacy's ways of drawing batches.

    from dp_accounting_ext.integrations import jax_privacy as certified

    event = certified.from_strategy(strategy, noise_multiplier)

    tracked = certified.StrategyAccountant(strategy, noise_multiplier)
    for batch in tracked.batch_iterator(num_examples, rng):  # The strategy's batches.
        …
    tracked.get_epsilon_bounds(delta)

    tracked = certified.from_plan(config)  # Of a BandMFExecutionPlanConfig.

The functions of jax_privacy that calibrate noise take `ext.PLDAccountant` itself as
their `accountant_fn`. Older versions take an object `ext.PLDAccountant(relation)` as
their `accountant`, and `accountant_config()` for their `DpsgdTrainingAccountant`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any
import warnings

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.integrations import jax_strategies
from dp_accounting_ext.integrations.jax_strategies import from_strategy as from_strategy
from dp_accounting_ext.validation import fields

__all__ = [
    "StrategyAccountant",
    "accountant_config",
    "from_plan",
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
            because no theorem covers correlated noise across iterators: such a run
            cannot be resumed.

    Raises:
        TypeError, ValueError, UnsupportedEventError: As `from_strategy` does.
    """

    def __init__(self, strategy: Any, noise_multiplier: float, **options: Any) -> None:
        from_strategy(strategy, noise_multiplier, **options)
        self.strategy, self.noise_multiplier = strategy, noise_multiplier
        number = options.get("num_examples")
        if number is not None:
            fields.positive_integer("num_examples", number)
        self._options = dict(options)
        self._draws: list[int] = []
        # Marks of the states in which generators began.
        self._began: set[str] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("strategy", "noise_multiplier") and name in vars(self):
            raise AttributeError(
                f"{name} must stay what the counted steps had. Found another: "
                f"make another StrategyAccountant for the steps that follow, and "
                f"compose the events of both."
            )
        super().__setattr__(name, value)

    @property
    def options(self) -> dict[str, Any]:
        """A copy of the options."""
        return dict(self._options)

    def _display(self) -> displays.Table:
        drawn = [(f"iterator {i}", str(n)) for i, n in enumerate(self._draws, start=1)]
        title = f"StrategyAccountant of a {type(self.strategy).__name__}, noise "
        title += f"multiplier {self.noise_multiplier!r}, {self._noise_in_words()}"
        return displays.Table(title, ("batches of", "handed out"), drawn)

    def _noise_in_words(self) -> str:
        matrix = self._options.get("matrix")
        if matrix is None:
            return "independent noise"
        if hasattr(matrix, "buf_decay"):
            return f"noise correlated by a {type(matrix).__name__}"
        column = np.asarray(matrix, np.float64)
        return f"noise correlated by the matrix {np.array2string(column, threshold=8)}"

    def batch_iterator(self, num_examples: Any, rng: Any = None) -> Iterator[Any]:
        """Returns the strategy's batches, and counts each as it is handed out.

        Args:
            num_examples: As in the strategy's own method. For a `UserSelectionStrategy`
                it is the user of each example.
            rng: As in the strategy's own method. Each iterator needs a generator in
                another state.

        Raises:
            TypeError, ValueError: If num_examples is no positive integer, or rng no
                seed or generator.
            RuntimeError: If there are more or fewer examples than were accounted for;
                if the generator's state is that of an earlier iterator, also of the
                run that is resumed, which had the same batches; or if noise is
                correlated and an earlier iterator ran.
        """
        self._refuse_second_run()
        if self.strategy is not jax_strategies.of_records(self.strategy):
            number = np.unique(num_examples).size  # These are users.
        else:
            number = fields.positive_integer("num_examples", num_examples)
        accounted = self._options.get("num_examples")
        if accounted is not None and number != accounted:
            raise RuntimeError(
                f"batch_iterator must draw from as many examples (or users) as are "
                f"accounted for. Found {number} for {accounted}: write "
                f"StrategyAccountant(…, num_examples={number})."
            )
        try:
            generator = np.random.default_rng(rng)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"rng must be a seed, or an np.random.Generator. Found {rng!r:.60}."
            ) from None
        self._refuse_repetition(generator)
        return self._counted(num_examples, generator)

    def _refuse_repetition(self, generator: np.random.Generator) -> str:
        """Returns a mark of a generator's state, which no earlier iterator began at."""
        mark = _mark(generator.bit_generator.state)
        if mark in self._began:
            raise RuntimeError(
                "rng must be another one for each iterator: this one draws the batches "
                "of an earlier one again. Pass one np.random.Generator to all, and one "
                "with another seed where a run is resumed."
            )
        return mark

    def _refuse_second_run(self) -> None:
        if any(self._draws) and self._options.get("matrix") is not None:
            raise RuntimeError(
                f"batch_iterator must run once with correlated noise, and cannot be "
                f"resumed: no theorem covers noise that is correlated across two "
                f"draws. Found an earlier run of {sum(self._draws)} steps: begin "
                f"again with another StrategyAccountant, whose ε adds to that of "
                f"this one."
            )

    def _counted(
        self, num_examples: Any, generator: np.random.Generator
    ) -> Iterator[Any]:
        # As another iterator may have run since, or the generator been set back.
        self._refuse_second_run()
        self._began.add(self._refuse_repetition(generator))
        number = len(self._draws)
        self._draws.append(0)
        for batch in self.strategy.batch_iterator(num_examples, generator):
            self._draws[number] += 1
            yield batch

    def event(self) -> stock.DpEvent:
        """Returns what ran, as an event.

        Raises:
            ValueError: If several iterators ran with correlated noise, or if the draw
                of a RandomAllocationSampling has not ended and no event says so.
        """
        draws = [steps for steps in self._draws if steps]
        if len(draws) > 1 and self._options.get("matrix") is not None:
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
            return from_strategy(cut, self.noise_multiplier, **self._options)
        if self._options.get("matrix") is not None:
            raise ValueError(
                f"batch_iterator must run to its end with correlated noise and a "
                f"planned number of steps for each record. Found {steps} of "
                f"{strategy.iterations} steps. The event of all, from_strategy(…), has "
                "an upper bound for fewer."
            )
        step = stock.GaussianDpEvent(self.noise_multiplier)
        return dp_event.ScheduledAllocationEvent(
            [step], [steps], strategy.iterations, planned
        )

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
        relation: NeighborRel = self._options.get(
            "neighboring_relation", NeighborRel.ADD_OR_REMOVE_ONE
        )
        return relation

    def check(self, plan: Any, delta: float = 1e-6) -> None:
        """Checks that an execution plan agrees with what this accountant counts.

        The plan's noise is looked at, too: its transform runs on zeros.

        Args:
            plan: A `DPExecutionPlan` of `jax_privacy.experimental.execution_plan`.
            delta: δ at which both are compared.

        Raises:
            TypeError: If `plan` is not an execution plan.
            RuntimeError: If the plan has another strategy; if the ε of its event is
                certainly less than that of all steps of the strategy; or if its noise
                has another standard deviation, or is correlated in another way. Where
                batches are samples of groups in turn, both ε are for an example whose
                group is known, as jax_privacy's events are.
        """
        needed = "batch_selection_strategy", "clipped_grad", "dp_event"
        for name in (*needed, "noise_addition_transform"):
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
            self.strategy, self.noise_multiplier, **self._options
        )
        promised, spent = (
            pld_accountant.PLDAccountant(self._relation)
            .compose(compared)
            .get_epsilon_bounds(delta)[side]
            for compared, side in ((plan.dp_event, 1), (event, 0))
        )
        if promised < spent * (1 - _PROMISE):
            raise RuntimeError(
                f"The plan's event must not promise less than its steps keep. Found "
                f"ε = {promised:g} for plan.dp_event, and at least {spent:g} for "
                f"{type(planned).__name__} with noise_multiplier "
                f"{self.noise_multiplier:g}: take the noise and matrix of the plan."
            )
        jax_strategies.refuse_other_noise(
            plan.noise_addition_transform,
            self._column(),
            self.noise_multiplier * _clip(plan),
            jax_strategies.of_records(planned).iterations,
        )

    def get_epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns certified bounds on ε at δ: lower ≤ the true ε ≤ upper, in nats."""
        return self.pld_accountant().get_epsilon_bounds(delta)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a checkpoint: steps of draws, and how they began."""
        return {
            "draws": list(self._draws),
            "began": sorted(self._began),
            "of": self._mark(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `state_dict`. Iterators that run from now on draw anew.

        A warning is issued if steps that ran are not in the state.

        Raises:
            TypeError, ValueError: If it is not such a state, or that of an accountant
                of another strategy, noise or option. Nothing is then changed.
        """
        if not isinstance(state, Mapping):
            raise TypeError(
                f"state must be what state_dict() returned. Found {state!r:.60}."
            )
        draws = [
            fields.non_negative_integer("draws", steps)
            for steps in fields.sequence("draws", state.get("draws"))
        ]
        began = fields.sequence("began", state.get("began"))
        if state.get("of") != self._mark():
            raise ValueError(
                f"state must be of an accountant with the same strategy, noise and "
                f"options, which its steps had. Found another: make the accountant "
                f"as before, and compose its event with that of other steps. Here is "
                f"a {self!r}"
            )
        forgotten = sum(self._draws)
        if forgotten and self._draws != draws:
            warnings.warn(
                f"load_state_dict forgets {forgotten} steps that ran: ε is that of the "
                f"checkpoint alone. Where these steps were looked at, add their ε.",
                stacklevel=2,
            )
        self._draws = draws
        self._began |= set(map(str, began))

    def _mark(self) -> str:
        """Returns a mark of what the steps are."""
        steps = repr(self.strategy), float(self.noise_multiplier), [*self._column()]
        identity = self._options.get("num_examples"), self._relation.name
        return _mark([*steps, *identity])

    def _column(self) -> Sequence[float]:
        """Returns the first column of the strategy matrix."""
        iterations = jax_strategies.of_records(self.strategy).iterations
        return jax_strategies.coefficients(self._options.get("matrix"), iterations)


def _mark(state: Any) -> str:
    """Returns a mark of numbers, such as the state of a bit generator."""
    text = json.dumps(state, sort_keys=True, default=lambda numbers: numbers.tolist())
    return hashlib.sha256(text.encode()).hexdigest()


def _clip(plan: Any) -> float:
    """Returns the largest norm of an example in the sum that noise is added to."""
    added = plan.clipped_grad(lambda: None).sensitivity(NeighborRel.ADD_OR_REMOVE_ONE)
    return float(added)


def from_plan(config: Any) -> StrategyAccountant:
    """Returns the accountant of the plan of a configuration.

    Strategy, matrix, noise and neighboring relation are those of the configuration. Its
    plan's noise is checked, as `StrategyAccountant.check` does.

    Args:
        config: A `BandMFExecutionPlanConfig` of jax_privacy, whose `plan` runs. (A plan
            itself does not tell its matrix.)

    Raises:
        TypeError: If it is not such a configuration.
        ValueError: If the columns of its matrix are normalized, so that it has no
            Toeplitz coefficients; or if its clip is zero.
        RuntimeError: If the plan's noise is not that of the configuration.
    """
    from jax_privacy.experimental import execution_plan

    if not isinstance(config, execution_plan.BandMFExecutionPlanConfig):
        raise TypeError(
            f"config must be a BandMFExecutionPlanConfig, as a plan does not tell its "
            f"matrix. Found {config!r:.60}: pass the configuration of the plan, or "
            f"write StrategyAccountant(…, matrix=…) and its check(plan)."
        )
    if config.column_normalize:
        raise ValueError(
            "column_normalize must be False: the last columns of a normalized matrix "
            "are no Toeplitz coefficients. Found True."
        )
    plan, relation = config.plan, config.accountant.neighboring_relation
    step = plan.dp_event
    while not hasattr(step, "noise_multiplier"):
        step = step.event
    clip = _clip(plan)
    if not clip:
        raise ValueError("l2_clip_norm must be positive. Found 0.")
    sensitivity = plan.clipped_grad(lambda: None).sensitivity(relation) / clip
    tracked = StrategyAccountant(
        plan.batch_selection_strategy,
        float(step.noise_multiplier * sensitivity * np.linalg.norm(config.strategy)),
        matrix=config.strategy,
        num_examples=config.num_examples,
        neighboring_relation=relation,
    )
    tracked.check(plan)
    return tracked


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
