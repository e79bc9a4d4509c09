"""What a training run promises, in words that can stand beside a model."""

from collections.abc import Sequence
import dataclasses
import decimal
import math
import textwrap

from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

_ADJACENCIES = {
    training_run.NeighborRel.ADD_OR_REMOVE_ONE: "add or remove",
    training_run.NeighborRel.REPLACE_ONE: "replace",
}
_THOUSANDTH = decimal.Decimal("0.001")
_LARGE = 1e6
_WIDTH = 80
_SCHEME_WIDTH, _NUMBER_WIDTH = 32, 18

_ASSUMPTIONS = {
    training_run.RANDOM_ALLOCATION: (
        "In each epoch each example joins {once} of t = {t}, drawn uniformly, in "
        "secret and independently of all other examples, so that batches differ in "
        "size. Fewer steps of an epoch than t break it, and so do more epochs, "
        "batches that are cut from a shuffled dataset, and one draw that all epochs "
        "share."
    ),
    training_run.POISSON_SAMPLING: (
        "Each of {steps} draws its batch anew, each example with probability "
        "q = {rate}, in secret and independently of all others, so that batches differ "
        "in size. More steps than that break it, and so do a larger q, shuffled "
        "batches, batches of a fixed size, and truncated or padded ones that leave out "
        "or repeat examples."
    ),
    training_run.NO_AMPLIFICATION: (
        "Each example is in {once} of each epoch, once in each; anybody may know in "
        "which. For batches that are cut from a shuffle this holds where an example is "
        "replaced, and not where one is added or removed, as others then move to other "
        "batches. Examples in more batches than that, or twice in one, break it, as do "
        "more epochs."
    ),
}
_ALWAYS = (
    "All rows hold for the release of every step's noisy gradient, so of all "
    "checkpoints and the final model. They ask that each example's gradient be clipped "
    "on its own (not a microbatch's mean), that fresh Gaussian noise of the multiplier "
    "times the clip be added to the sum in every step, also of an empty batch, and "
    "that dataset size, batch size, noise and number of epochs were not chosen by "
    "looking at this data. Runs that tuned them on it count as releases, too."
)


@dataclasses.dataclass(frozen=True)
class Claim:
    """One certified promise.

    Attributes:
        sampling: How batches are drawn, if the promise is to hold.
        adjacency: "add or remove", or "replace".
        group_size: How many examples are protected together: 1, or a user's.
        epsilon_lower: Lower bound on ε, in nats; None where no bound is known.
        epsilon_upper: Upper bound on ε, in nats; None with the lower one.
    """

    sampling: str
    adjacency: str
    group_size: int
    epsilon_lower: float | None
    epsilon_upper: float | None


def claims(setting: training_run.TrainingRun) -> list[Claim]:
    """Returns what a run promises to an example, and to a user with several.

    Args:
        setting: The run. Where its `sampling` is given, the claims are for that and
            for batches that are known; else for all schemes. A user has as many
            examples as its group has records.

    Raises:
        TypeError: If the setting is no `TrainingRun`.
        ValueError: If noise or δ is not given, or the group is too large.
    """
    if not isinstance(setting, training_run.TrainingRun):
        raise TypeError(f"setting must be a TrainingRun. Found {setting!r:.60}.")
    training_run.given("noise_multiplier", setting.noise_multiplier)
    chosen = setting.sampling, training_run.NO_AMPLIFICATION
    schemes = [
        scheme
        for scheme in training_run.SCHEMES
        if setting.sampling is None or scheme in chosen
    ]
    return [
        _claim(scheme, dataclasses.replace(setting, group_size=size), relation)
        for size in dict.fromkeys((1, setting.group_size))
        for scheme in schemes
        for relation in _ADJACENCIES
    ]


def _claim(
    scheme: str, setting: training_run.TrainingRun, relation: training_run.NeighborRel
) -> Claim:
    row = comparison.bracket(scheme, setting, neighboring_relation=relation)
    return Claim(
        scheme,
        _ADJACENCIES[relation],
        setting.group_size,
        row.epsilon_lower,
        row.epsilon_upper,
    )


def privacy_statement(setting: training_run.TrainingRun) -> str:
    """Returns the claims in words, on lines of at most 80 letters.

    Args:
        setting: As in `claims`.

    Raises:
        TypeError, ValueError: As `claims` does.

    Guarantees:
        Every ε is an upper bound, rounded up; "none known" stands where there is no
        theorem.
    """
    return words(setting, claims(setting))


def words(setting: training_run.TrainingRun, found: Sequence[Claim]) -> str:
    """Returns claims of a run in words, as `privacy_statement` does."""
    numbers = {
        scheme: number
        for number, scheme in enumerate(
            dict.fromkeys(claim.sampling for claim in found), start=1
        )
    }
    parts = [_wrapped(_of_run(setting)), *map(_wrapped, warnings(setting))]
    for size in dict.fromkeys(claim.group_size for claim in found):
        of_size = [claim for claim in found if claim.group_size == size]
        parts.append(_table(setting, size, of_size, numbers))
    if setting.group_size == 1:
        parts.append(
            _wrapped(
                "Nothing is promised to a user with several examples: that takes a "
                "bound on their number, the group size."
            )
        )
    parts += [
        _wrapped(f"({number}) {_assumptions(scheme, setting)}", "    ")
        for scheme, number in numbers.items()
    ]
    return "\n\n".join([*parts, _wrapped(_ALWAYS)])


def warnings(setting: training_run.TrainingRun) -> list[str]:
    """Returns what a reader must know before all numbers; mostly nothing."""
    delta, size = setting.delta, setting.dataset_size
    if delta is None or size is None or delta * size < 1:
        return []
    return [
        f"Warning: δ = {delta!r} is not below 1/{size}, one over the dataset size. "
        f"Publishing one example, drawn at random, would meet it, too: choose δ far "
        f"below that."
    ]


def _assumptions(scheme: str, setting: training_run.TrainingRun) -> str:
    """Returns what a scheme asks of the batches, and what breaks it."""
    k = setting.num_selected
    steps = setting.num_samples
    found = _ASSUMPTIONS[scheme].format(
        once="one batch" if k == 1 else f"{k} batches",
        t=setting.steps_of_epoch,
        rate=setting.rate_in_words,
        steps=f"{steps} step{'s' * (steps > 1)}",
    )
    _, part = setting.whole_and_part
    if part and scheme == training_run.RANDOM_ALLOCATION:
        found += f" The last epoch ended after {part} of its {setting.steps_of_epoch} "
        found += "steps; more of them break it, too."
    return found


def _of_run(setting: training_run.TrainingRun) -> str:
    """Returns what ran."""
    epochs = training_run.in_words(setting.epochs)
    noise = f"noise multiplier {setting.noise_multiplier!r}"
    if setting.dataset_size is None:
        batches = f"{epochs} of {setting.steps_of_epoch} steps, each example in "
        batches += f"{setting.num_selected} of an epoch"
    else:
        batches = f"{setting.dataset_size} examples in batches of "
        batches += f"{setting.batch_size} on average, {epochs}"
    return f"DP-SGD: {batches}, {noise}."


def _table(
    setting: training_run.TrainingRun,
    size: int,
    found: Sequence[Claim],
    numbers: dict[str, int],
) -> str:
    """Returns the claims of one level, a line a scheme, a column an adjacency."""
    level = "Example level" if size == 1 else f"User level, {size} examples a user"
    head = "".join(f"{name:>{_NUMBER_WIDTH}}" for name in _ADJACENCIES.values())
    lines = [
        f"{level}: ε at δ = {setting.delta!r} is at most",
        f"{'':<{_SCHEME_WIDTH}}{head}".rstrip(),
    ]
    for scheme, number in numbers.items():
        line = f"  {f'{scheme} ({number})':<{_SCHEME_WIDTH - 2}}"
        for claim in found:
            if claim.sampling == scheme:
                line += f"{_rounded_up(claim.epsilon_upper):>{_NUMBER_WIDTH}}"
        lines.append(line)
    return "\n".join(lines)


def _rounded_up(value: float | None) -> str:
    """Returns three decimals, or of a large value seven digits; not below the value."""
    if value is None:
        return "none known"
    if math.isinf(value):
        return "inf"
    if value < _LARGE:
        exact = decimal.Decimal(value)
        return str(exact.quantize(_THOUSANDTH, rounding=decimal.ROUND_CEILING))
    context = decimal.Context(prec=7, rounding=decimal.ROUND_CEILING)
    return f"{context.create_decimal_from_float(value):e}"


def _wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(paragraph, _WIDTH, subsequent_indent=indent)
