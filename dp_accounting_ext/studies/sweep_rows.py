"""Rows of a table of settings: their columns, and the results computed for each."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import re
import time
from typing import Any

from dp_accounting_ext.accountants import budget
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

Cells = Mapping[str, Any]
# The results that can be requested, and the columns of each.
RESULTS: Mapping[str, tuple[str, ...]] = {
    "epsilon": ("epsilon_lower", "epsilon_upper"),
    "noise": ("noise_multiplier",),
    "risks": ("advantage_lower", "advantage_upper", "tpr_lower", "tpr_upper"),
}
_ALWAYS = ("seconds", "note")
_RUN = tuple(field.name for field in dataclasses.fields(training_run.TrainingRun))
COLUMNS = (*_RUN, "strategy", "epsilon", "fpr")
# Words that the user's own columns must not contain. For example, `num_groups` is
# probably a misspelt parameter, which would otherwise keep its default and give a
# smaller ε.
_TAKEN = {
    "batches": "batches_per_record",
    "epoch": "epochs",
    "epochs": "epochs",
    "group": "group_size",
    "groups": "group_size",
    "iterations": "num_steps",
    "sampler": "sampling",
    "sampling": "sampling",
    "scheme": "sampling",
    "steps": "num_steps",
    "strategies": "strategy",
    "strategy": "strategy",
}
_ALIKE = 0.75


@dataclasses.dataclass(frozen=True)
class Setting:
    """The setting that a row describes.

    Attributes:
        run: The run. Its noise is None if the noise is to be calibrated.
        strategy: The strategy of correlated noise, as in
            `strategy_comparison.event_of`; None for independent noise.
        epsilon: The ε that calibrated noise must meet, in nats; None if no noise is
            calibrated.
        fpr: The false positive rate of the membership test whose true positive rate is
            among the risks.
    """

    run: training_run.TrainingRun
    strategy: str | None = None
    epsilon: float | None = None
    fpr: float = 0.001

    def accountant(self) -> pld_accountant.PLDAccountant:
        """Returns an accountant that has composed the run.

        Raises:
            ValueError: If noise is not given, or there is no theorem for the run.
        """
        if self.strategy is None:
            return self.run.accountant()
        event = strategy_comparison.event_of(self.strategy, self.run)
        return pld_accountant.PLDAccountant().compose(event)

    def with_noise(self) -> "Setting":
        """Returns the setting with the least noise that meets its ε.

        Raises:
            ValueError: If ε or δ is not given, noise is, or none is enough.
        """
        target = calibration.positive_target(
            "epsilon", training_run.given("epsilon", self.epsilon)
        )
        delta = training_run.given("delta", self.run.delta)
        noise = budget.least_noise(
            lambda noise: self._noisy(noise).accountant().get_epsilon(delta),
            target,
            name="epsilon",
        )
        return self._noisy(noise)

    def _noisy(self, noise: float) -> "Setting":
        run = dataclasses.replace(self.run, noise_multiplier=noise)
        return dataclasses.replace(self, run=run)

    def bracket(self) -> comparison.Row:
        """Returns the bounds on ε.

        Raises:
            ValueError: If noise or δ is not given, or there is no theorem for the run.
        """
        if self.strategy is None:
            return comparison.bracket(self.run)
        delta = training_run.given("delta", self.run.delta)
        noise = training_run.given("noise_multiplier", self.run.noise_multiplier)
        of = (strategy_comparison.BALLS_IN_BINS, "add or remove", 1, noise, delta)
        return comparison.timed(of, lambda: self.accountant().get_epsilon_bounds(delta))


def bound_row(row: Cells, results: Sequence[str] = ("epsilon",)) -> dict[str, Any]:
    """Returns the results of one row.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    begin = time.process_time()
    check_columns(row, results)
    setting = setting_of(row)
    found: dict[str, Any] = dict.fromkeys(columns_of(results))
    notes = []
    if "noise" in results:
        setting = setting.with_noise()
        noise = training_run.given("noise_multiplier", setting.run.noise_multiplier)
        found["noise_multiplier"] = noise
        if noise < budget.LEAST_NOISE:
            notes.append("less noise is enough, too")
    if "epsilon" in results:
        bounds = setting.bracket()
        notes.append(bounds.note)
        found["epsilon_lower"] = bounds.epsilon_lower
        found["epsilon_upper"] = bounds.epsilon_upper
    elif setting.run.sampling == training_run.SHUFFLED:
        notes.append(comparison.REPLACED)
    if "risks" in results:
        accountant = setting.accountant()
        for name, ends in (
            ("advantage", risk.advantage(accountant)),
            ("tpr", accountant.get_true_positive_rate_bounds(setting.fpr)),
        ):
            found[f"{name}_lower"], found[f"{name}_upper"] = map(float, ends)
    found["seconds"] = time.process_time() - begin
    found["note"] = "; ".join(filter(None, notes))
    return found


def columns_of(results: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of the results, in the order of `RESULTS`.

    Raises:
        ValueError: If there are none, or one is unknown.
    """
    unknown = [repr(name) for name in results if name not in RESULTS]
    if unknown or not results or isinstance(results, str):
        raise ValueError(
            f"results must be of {', '.join(RESULTS)}, one at least. "
            f"Found {', '.join(unknown) or repr(results)}."
        )
    found = [name for kind in RESULTS if kind in results for name in RESULTS[kind]]
    return (*found, *_ALWAYS)


def setting_of(row: Cells) -> Setting:
    """Returns the setting of a row, from columns to values or to their text.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    known: dict[str, Any] = {}
    for name, value in row.items():
        if name in COLUMNS and not _is_empty(value):
            known[name] = _text(value) if name == "strategy" else _number(value)
    beside = {name: known.pop(name) for name in [*known] if name not in _RUN}
    _require_sampling(known.keys() | beside.keys())
    for name in ("epsilon", "fpr"):
        if name in beside:
            beside[name] = fields.real_number(name, beside[name])
    rate = beside.get("fpr", 0.0)
    if not 0 <= rate <= 1:
        raise ValueError(f"fpr must be in [0, 1]. Found {rate}.")
    return Setting(training_run.TrainingRun(**known), **beside)


def check_columns(names: Iterable[str], results: Sequence[str] = ("epsilon",)) -> None:
    """Checks the columns of a grid.

    Raises:
        ValueError: If one is misspelt, is there twice, or has the name of a result; or
            if one belongs to results that are not requested; or if neither `sampling`
            nor `strategy` is there.
    """
    header = list(names)
    for number, name in enumerate(header):
        if name in header[:number]:
            raise ValueError(f"columns must have different names. Found two {name!r}.")
        if name in columns_of(results):
            reason = "is found" if name == "noise_multiplier" else "is of the results"
            raise ValueError(
                f"columns must have other names than results. Found {name!r}, which "
                f"{reason}; leave it out, or rename it."
            )
        for column, kind in (("epsilon", "noise"), ("fpr", "risks")):
            if name == column and kind not in results:
                raise ValueError(
                    f"columns must be such as results need: {column} goes with "
                    f"{kind}. Found {column!r} without it; ask for {kind}, or rename "
                    "the column."
                )
        meant = _meant(name)
        if meant:
            raise ValueError(
                f"columns must have the names of a run's fields, or names that are not "
                f"like these. Found {name!r:.60}; write {meant} if that is meant."
            )
    _require_sampling(header)


def _require_sampling(given: Iterable[str]) -> None:
    """Raises ValueError unless it is said how batches are drawn: ε depends on it."""
    if not {"sampling", "strategy"} & set(given):
        raise ValueError(
            f"sampling must be one of {', '.join(training_run.OPTIONS)}; or strategy "
            f"be given, for correlated noise. Found neither."
        )


def _meant(name: str) -> str:
    """Returns the column that a misspelt name may mean; usually there is none."""
    if name in COLUMNS:
        return ""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    plain = "_".join(words)
    near = difflib.get_close_matches(plain, COLUMNS, 1, _ALIKE)
    taken = [_TAKEN[word] for word in words if word in _TAKEN]
    return (near or taken or [""])[0]


def _is_empty(value: Any) -> bool:
    """Returns whether a cell is empty: empty text, None, or NaN."""
    return not _text(value)


def _text(value: Any) -> str:
    """Returns a cell as it stands in a file: NaN and None are empty."""
    value = value.tolist() if hasattr(value, "tolist") else value  # Of NumPy.
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return "" if value is None or value != value else str(value)


def _number(value: Any) -> Any:
    """Returns the number that a text means, as an integer if it is whole."""
    value = value.tolist() if hasattr(value, "tolist") else value  # Of NumPy.
    with contextlib.suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
