"""The subcommands risk, canaries and verify: what attackers can do, second looks."""

import argparse
import math
import pathlib
import textwrap
from typing import Any

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import tables
from dp_accounting_ext.command_line import text
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import second_opinion
from dp_accounting_ext.studies import training_run

_RISK = """\
example:
  python -m dp_accounting_ext risk --epsilon 1 --delta 1e-5
  python -m dp_accounting_ext risk --rho 2.56 --delta 1e-10
  python -m dp_accounting_ext risk --dataset-size 60000 --batch-size 256 \\
      --epochs 10 --noise-multiplier 1.1 --sampling poisson-sampling

What the best attack achieves, in words. The guarantee is a published one, as
--epsilon with --delta, as --rho or as --mu, or that of a training run, for each
way of drawing batches. Upper bounds are certified.

With --delta, ρ and μ are converted to ε, and (ε, δ) to the largest ρ and the
largest μ that are enough for it; both ends are certified.

For a run it also states μ: at every false positive rate from 1e-12 to 1/2, the
best test finds at most as many members as for a Gaussian mechanism with μ. The
regret bounds how much the rates of tests differ between that mechanism and the
run. If it is small, μ describes the run almost completely.
"""
_CANARIES = """\
example:
  printf 'score,member\\n2.1,1\\n-0.3,0\\n0.4,1\\n-1.2,0\\n' > scores.csv
  python -m dp_accounting_ext canaries --scores scores.csv --guesses 2 \\
      --noise-multiplier 1 --dataset-size 60000 --batch-size 600 --epochs 10

Before the run a fair coin decides of each canary, a record of your own, whether
it takes part (with --sampling shuffled: which of two records does). The file
has a row for each canary: a score, from all that the run released, which is
larger if the canary seems to have taken part; and 1 if it did, otherwise 0. Of
the highest scores it is guessed that they took part. Choose the number of
guesses before you look at scores, as canaries.plan does in Python.

If more guesses are right than a row of the table allows, the run was not as the
row says, or the audit was not: noise, batches, coins. A true row is refuted
with a probability of at most --significance. Not refuted does not mean private:
no attack finds every fault.
"""
_VERIFY = """\
example:
  python -m dp_accounting_ext verify --noise-multiplier 1 --delta 1e-6 \\
      --dataset-size 60000 --batch-size 600 --sampling poisson-sampling

A run is computed again, by code that shares nothing with the accountant but
the classes of events: in ball arithmetic where a theorem gives both bounds,
else by draws from the definition of the run, which can refute a number and
say what they could have seen. It takes about a minute for each way of drawing
batches. It needs python-flint: pip install '.[verify]'.

Exit status: 0 where every bound is confirmed; 1 where one is certainly wrong;
4 where none is refuted but not all are confirmed; 3 where there is no bound
to compare with; 2 for bad input.
"""
_PUBLISHED = {
    "epsilon": "ε that was published, with --delta",
    "rho": "ρ of zero-concentrated privacy that was published",
    "mu": "μ of Gaussian privacy that was published",
}


def add_to(commands: Any) -> None:
    """Adds the subcommands."""
    words = "what an attacker can do, of a run or of a published guarantee"
    command = parser.add_command(commands, "risk", _risk, words, _RISK, "")
    published = command.add_mutually_exclusive_group()
    for name, meaning in _PUBLISHED.items():
        parser.add(published, name, float, meaning)
    words = "share of members among those tested"
    parser.add(command, "prior", float, words, default=0.5)
    parser.add_run(command)

    words = "an audit of what was trained, by canaries and guesses of membership"
    usage = "--scores FILE --guesses N"
    command = parser.add_command(commands, "canaries", _audit, words, _CANARIES, usage)
    parser.add(command, "scores", pathlib.Path, "CSV file: columns score, member")
    parser.add(command, "guesses", int, "guesses, chosen before looking at scores")
    words = '"in", or "both": half of the guesses say that canaries were out'
    parser.add(command, "guess", str, words, default="in")
    words = "largest probability with which a true claim is refuted"
    parser.add(command, "significance", float, words, default=0.05)
    parser.add_run(command, "delta")

    words = "a second opinion on the bounds, by arithmetic of its own"
    usage = "--noise-multiplier X --delta X"
    command = parser.add_command(commands, "verify", _verify, words, _VERIFY, usage)
    parser.add_run(command)


def _risk(options: argparse.Namespace) -> parser.Printed:
    """Prints the risks of a published guarantee, or of a training run without one."""
    for name in _PUBLISHED:
        value = getattr(options, name)
        if value is not None:  # The parser allows only one of them.
            return _risk_of_published(options, name, value)
    if not _fields_of_run(options):
        raise ValueError(
            "--epsilon, --rho or --mu must be given, or a run, as by --noise-multiplier"
            " and --steps-per-epoch. Found none of them."
        )
    run = parser.training_run(options)
    training_run.warn(run)
    risks = {
        name: _risks_of(way.accountant(), options.prior, with_gaussian=True)
        for name, way in text.counted_ways(run)
    }
    title = textwrap.fill(text.title("Risks", run), text.WIDTH)
    printed = f"{title}\n\n{_all(risks)}"
    return {"setting": run.to_dict(), "results": risks}, printed


def _fields_of_run(options: argparse.Namespace) -> list[str]:
    """Returns the fields of a training run that are given."""
    fields = training_run.TrainingRun.__dataclass_fields__.items()
    return [name for name, field in fields if getattr(options, name) != field.default]


def _risk_of_published(
    options: argparse.Namespace, published: str, value: float
) -> parser.Printed:
    """Prints the risks of the guarantee whose parameter `published` has this value."""
    others = [name for name in _fields_of_run(options) if name != "delta"]
    parser.refuse(options, f"with --{published}", *others)
    setting: dict[str, Any] = {published: value}
    delta = options.delta
    is_epsilon = published == "epsilon"
    if delta is not None:
        setting["delta"] = delta
        if not is_epsilon and not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1). Found {delta:g}.")
    accountant = risk.published(**(setting if is_epsilon else {published: value}))
    head = ", ".join(f"{name} = {number:g}" for name, number in setting.items())
    risks = _risks_of(accountant, options.prior, with_gaussian=False)
    if delta is not None and not is_epsilon:
        risks["epsilon"] = accountant.get_epsilon_bounds(delta)
        risks["words"] += "\n" + _converted(risks, delta)
    elif delta and delta < 1 and 0 < value <= risk.LARGEST_EPSILON:
        risks["largest_rho"] = risk.largest_rho(value, delta)
        risks["largest_mu"] = risk.largest_mu(value, delta)
        risks["words"] += "\n" + _converted(risks, delta)
    return {"setting": setting, "results": {head: risks}}, _all({head: risks})


def _risks_of(
    accountant: pld_accountant.PLDAccountant, prior: float, *, with_gaussian: bool
) -> dict[str, Any]:
    """Returns the risks of what an accountant composed, and sentences on them.

    The comparison with a Gaussian mechanism, μ and the regret, is optional.
    """
    risks: dict[str, Any] = {
        "advantage": risk.advantage(accountant),
        "membership_success": risk.membership_success(accountant, prior),
        "words": risk.in_words(accountant, prior=prior),
    }
    if with_gaussian:
        mu = accountant.get_gdp_parameter_bounds()
        risks["mu"] = mu
        risks["regret"] = risk.gaussian_regret(accountant, mu[1])
    return risks


def _converted(risks: dict[str, Any], delta: float) -> str:
    """Returns a sentence on the parameters that a published one is converted to."""
    if "epsilon" not in risks:
        rho, mu = (
            (decimals.rounded_down(enough), decimals.rounded_up(short))
            for enough, short in (risks["largest_rho"], risks["largest_mu"])
        )
        sentence = (
            f"Every mechanism with ρ ≤ {rho[0]}, or with μ ≤ {mu[0]}, keeps this "
        )
        sentence += f"promise; not every one with ρ = {rho[1]}, or with μ = {mu[1]}."
    else:
        low, high = risks["epsilon"]
        sentence = f"ε at δ = {delta:g} is at most {decimals.rounded_up(high)}; "
        sentence += f"for some such mechanism, at least {decimals.rounded_down(low)}."
    return textwrap.fill(f"- {sentence}", text.WIDTH, subsequent_indent="  ")


def _all(risks: dict[str, dict[str, Any]]) -> str:
    return "\n\n".join(
        text.headed(head, _in_words(of_one)) for head, of_one in risks.items()
    )


def _in_words(risks: dict[str, Any]) -> str:
    lines = [risks["words"]]
    if "mu" in risks:
        low, high = risks["mu"]
        sentence = "As of Gaussian noise: no finite μ is known, for a loss is infinite."
        if not math.isinf(high):
            ends = decimals.rounded_down(low), decimals.rounded_up(high)
            sentence = f"As of Gaussian noise: μ is from {ends[0]} to {ends[1]}. The "
            more = decimals.rounded_up(risks["regret"][1])
            sentence += f"latter reveals at most {more} more: the regret."
        lines.append(textwrap.fill(sentence, text.WIDTH, subsequent_indent="  "))
    return "\n".join(lines)


def _audit(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    scores, members = _columns(training_run.given("scores", options.scores))
    asked = "guesses, chosen before scores are seen, as canaries.plan does,"
    guesses = training_run.given(asked, options.guesses)
    settings = {name: getattr(options, name) for name in ("guess", "significance")}
    audits = {
        way.scheme: canaries.audit(
            way.accountant(), scores, members, guesses=guesses, **settings
        )
        for _, way in text.counted_ways(run)
    }
    title = text.title(f"{scores.size} canaries, {guesses} guesses", run)
    table = canaries.table(f"{textwrap.fill(title, text.WIDTH)}\n", audits)
    results = [
        {"sampling": name, **vars(audit), "refuted": audit.refuted}
        for name, audit in audits.items()
    ]
    return {"setting": run.to_dict(), "results": results}, table.text()


def _columns(path: pathlib.Path) -> tuple[FloatArray, FloatArray]:
    table = tables.read("scores", path)
    names = [name.casefold() for name in table.header]
    if not {"score", "member"} <= set(names):
        raise ValueError(
            f"scores must be a file with columns named score and member. Found "
            f"{', '.join(map(repr, filter(None, names))) or 'no names'} in {path}."
        )
    places = [names.index("score"), names.index("member")]
    # pandas writes whether canaries took part as True or False.
    kind = str(table.header[places[1]])
    words = table.frame[kind].replace({"True": "1", "False": "0"})
    table = table._replace(frame=table.frame.assign(**{kind: words}))
    scores, members = table.rows(places)[1].T
    return scores, members


def _verify(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    opinions = [
        second_opinion.opinion(opinion) for _, opinion in text.counted_ways(run)
    ]
    verdict = second_opinion.worst(opinions).value
    title = text.title(f"ε at δ = {run.delta:g}", run)
    lines = [title, *(opinion.in_words for opinion in opinions)]
    printed = "\n\n".join(textwrap.fill(line, text.WIDTH) for line in lines)
    return {"setting": run.to_dict(), "verdict": verdict, "results": opinions}, printed
