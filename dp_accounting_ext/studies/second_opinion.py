"""Verification of a training run's ε by a second, independent computation."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.verify import verification

__all__ = [
    "Opinion",
    "Opinions",
    "of_claims",
    "opinion",
    "sentence",
    "worst",
]
__dir__ = __all__.copy

_DIGITS = 4
Verdict = verification.Verdict


@dataclasses.dataclass(frozen=True)
class Opinion(displays.Displayed):
    """A verification, and the claim that it verifies.

    Attributes:
        sampling: How batches are drawn.
        adjacency: "add or remove", or "replace".
        group_size: Number of records that are protected together.
        verification: Both brackets.
    """

    sampling: str
    adjacency: str
    group_size: int
    verification: verification.Verification

    def _display(self) -> displays.Table:
        return Opinions([self])._display()

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields by their names, those of the verification among them."""
        of = {name: getattr(self, name) for name in ("sampling", "adjacency")}
        return {**of, "group_size": self.group_size, **self.verification.to_dict()}

    @property
    def name(self) -> str:
        """The run and the group that the opinion is about, in words."""
        group = f", groups of {self.group_size}" * (self.group_size > 1)
        return f"{self.sampling} ({self.adjacency}{group})"

    @property
    def in_words(self) -> str:
        """The verdict with the numbers of both computations, in a few sentences."""
        result = self.verification
        own = _bracket(result.lower, result.upper)
        claimed = _bracket(result.claimed_lower, result.claimed_upper)
        if result.verdict is Verdict.CONFIRMED:
            words = f"confirmed: ε is in {own}, computed apart; the accountant "
            words += f"says {claimed}"
            if result.possible_error:
                share = decimals.rounded_up(100 * result.possible_error, 2)
                words += f", and its upper bound is too small by {share} % at most"
            return f"{self.name} is {words}."
        if result.verdict is Verdict.DISAGREES:
            wrong = next(answer for answer in result.answers if answer.is_wrong)
            own = _bracket(wrong.lower, wrong.upper)
            claimed = _bracket(wrong.claimed_lower, wrong.claimed_upper)
            return (
                f"{self.name} disagrees: {_question(wrong)} is in {own}, "
                f"{_how(result)}; the accountant says {claimed}. One of them is wrong: "
                "please report it."
            )
        if result.verdict is Verdict.NOT_REFUTED:
            low = decimals.rounded_down(result.lower, _DIGITS)
            high = decimals.rounded_up(result.claimed_upper, _DIGITS)
            best = min(result.others, key=lambda a: a.visible_error, default=None)
            share = decimals.rounded_up(100 * result.visible_error, 2)
            words = f"ε is at least {low}, {_how(result)}; claimed {high}. A bound on "
            words += f"ε that is {share} % smaller would have been refuted"
            if best and best.visible_error < result.visible_error:
                share = decimals.rounded_up(100 * best.visible_error, 2)
                words += f", and one on {_question(best)} that is {share} % smaller"
            return f"{self.name} is not refuted: {words}."
        reason = result.reason or f"no bound better than {own}"
        return f"{self.name} is not confirmed: there is {reason}."


def _how(result: verification.Verification) -> str:
    """Returns how the verification's numbers were found."""
    if result.is_sampled:
        return "by draws from its definition, with probability 1 − 1e-6"
    return "computed apart"


def _question(answer: verification.Answer) -> str:
    """Returns what an answer is about."""
    if answer.kind == "ε":
        return "ε"
    if answer.kind == "δ":
        return f"δ at ε = {answer.at:.4g}"
    return f"the true positive rate at {answer.at:g}"


class Opinions(displays.Displayed, list[Opinion]):
    """A list of opinions that shows itself as a table."""

    def _display(self) -> displays.Table:
        rows = []
        for claim in self:
            result = claim.verification
            ends = (
                decimals.rounded_down(result.lower),
                decimals.rounded_up(result.upper),
            )
            claimed = decimals.rounded_up(result.claimed_upper)
            rows.append((claim.name, *ends, claimed, result.verdict.value))
        heads = "sampling", "ε lower", "ε upper", "claimed", "verdict"
        return displays.Table("second opinions", heads, rows)


def opinion(
    run: training_run.TrainingRun,
    neighboring_relation: training_run.NeighborRel | None = None,
) -> Opinion:
    """Returns the second opinion on a run whose way of drawing batches is given.

    Args:
        run: The run.
        neighboring_relation: Which datasets are adjacent; by default the run's own.

    Raises:
        ValueError: If noise, δ or sampling is not given, or no bound is known.
        ModuleNotFoundError: If python-flint is not installed.
    """
    relation = neighboring_relation or run.neighboring_relation
    delta = training_run.given("delta", run.delta)
    result = verification.verify_epsilon(run.accountant(relation), delta)
    scheme = training_run.given("sampling", run.sampling)
    return Opinion(scheme, comparison.ADJACENCIES[relation], run.group_size, result)


def of_claims(
    run: training_run.TrainingRun,
    rows: Sequence[comparison.Row],
    progress: progress_of.Progress | None = None,
) -> Opinions:
    """Returns second opinions on the rows of a statement that have bounds.

    Args:
        run: The run that the statement is about.
        rows: The rows that `statement.claims` returned for it.
        progress: Called after each row with the number of rows that are done, and of
            all.

    Raises:
        ModuleNotFoundError: If python-flint is not installed.
    """
    relations = {words: relation for relation, words in comparison.ADJACENCIES.items()}
    bounded = [row for row in rows if row.epsilon_upper is not None]
    return Opinions(
        opinion(
            dataclasses.replace(run, sampling=row.sampling, group_size=row.group_size),
            relations[row.adjacency],
        )
        for row in progress_of.counted(bounded, progress)
    )


def worst(opinions: Sequence[Opinion]) -> Verdict:
    """Returns the worst verdict. A disagreement is worse than any other verdict."""
    verdicts = {opinion.verification.verdict for opinion in opinions}
    for verdict in (Verdict.DISAGREES, Verdict.UNDECIDED, Verdict.NOT_REFUTED):
        if verdict in verdicts:
            return verdict
    return Verdict.CONFIRMED


def sentence(opinions: Sequence[Opinion]) -> str:
    """Returns the sentence of a statement about second opinions on its numbers."""
    of = {
        verdict: [claim for claim in opinions if claim.verification.verdict is verdict]
        for verdict in Verdict
    }
    if wrong := of[Verdict.DISAGREES]:
        return f"Do not rely on these numbers: {' '.join(e.in_words for e in wrong)}"
    parts = []
    if agreed := of[Verdict.CONFIRMED]:
        error = max(100 * claim.verification.possible_error for claim in agreed)
        words = "A second computation, in ball arithmetic, by code that shares nothing "
        words += f"with the first, confirms ε of {'; '.join(e.name for e in agreed)}; "
        words += f"no number is too small by more than {decimals.rounded_up(error, 2)} "
        parts.append(words + "%.")
    if drawn := of[Verdict.NOT_REFUTED]:
        error = max(100 * claim.verification.visible_error for claim in drawn)
        words = "Lower bounds that share no code with the accountant do not refute ε "
        words += f"of {'; '.join(e.name for e in drawn)}; they would have refuted a "
        words += f"number that is {decimals.rounded_up(error, 2)} % smaller."
        parts.append(words)
    if unknown := of[Verdict.UNDECIDED]:
        if not parts:
            return "No second computation was able to confirm these numbers."
        parts.append(f"Not looked at: {'; '.join(e.name for e in unknown)}.")
    return " ".join(parts)


def _bracket(lower: float, upper: float) -> str:
    ends = decimals.rounded_down(lower, _DIGITS), decimals.rounded_up(upper, _DIGITS)
    return f"[{ends[0]}, {ends[1]}]"
