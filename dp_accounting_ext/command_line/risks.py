"""The subcommand risk: what an attacker can do, of a run or a published guarantee."""

import argparse
import math
import textwrap
from typing import Any

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

_EPILOG = """\
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
_PUBLISHED = {
    "epsilon": "ε that was published, with --delta",
    "rho": "ρ of zero-concentrated privacy that was published",
    "mu": "μ of Gaussian privacy that was published",
}


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "what an attacker can do, of a run or of a published guarantee"
    command = parser.add_command(commands, "risk", _risk, words, _EPILOG, "")
    given = command.add_mutually_exclusive_group()
    for name, meaning in _PUBLISHED.items():
        parser.add(given, name, float, meaning)
    words = "share of members among those tested"
    parser.add(command, "prior", float, words, default=0.5)
    parser.add_run(command)


def _risk(options: argparse.Namespace) -> parser.Printed:
    known = {name: getattr(options, name) for name in _PUBLISHED}
    known = {name: value for name, value in known.items() if value is not None}
    if not known:
        run = parser.training_run(options)
        training_run.warn(run)
        runs = training_run.schemes_of(run)
        names = [
            f"{each.sampling} ({comparison.ADJACENCIES[each.neighboring_relation]})"
            for each in runs
        ]
        risks = (
            _of(each.accountant(), options.prior, with_gaussian=True) for each in runs
        )
        counted = text.counted(risks, len(runs), "ways of drawing batches")
        found = dict(zip(names, counted, strict=True))
        printed = _printed(f"Risks of noise multiplier {run.noise_multiplier}, ", run)
        return {"setting": run.to_dict(), "results": found}, printed + _all(found)
    for name, field in training_run.TrainingRun.__dataclass_fields__.items():
        value = getattr(options, name)
        if name != "delta" and value != field.default:
            raise ValueError(
                f"{name} must be left out with --{next(iter(known))}. Found {value}."
            )
    ((name, value),) = known.items()
    delta = options.delta
    is_epsilon = name == "epsilon"
    if delta is not None:
        known["delta"] = delta
        if not is_epsilon and not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1). Found {delta:g}.")
    accountant = risk.published(**(known if is_epsilon else {name: value}))
    of = ", ".join(f"{each} = {number:g}" for each, number in known.items())
    about = _of(accountant, options.prior, with_gaussian=False)
    if delta is not None and not is_epsilon:
        about["epsilon"] = accountant.get_epsilon_bounds(delta)
        about["words"] += "\n" + _converted(about, delta)
    elif delta and delta < 1 and 0 < value <= risk.LARGEST_EPSILON:
        about["largest_rho"] = risk.largest_rho(value, delta)
        about["largest_mu"] = risk.largest_mu(value, delta)
        about["words"] += "\n" + _converted(about, delta)
    return {"setting": known, "results": {of: about}}, _all({of: about})


def _of(
    accountant: pld_accountant.PLDAccountant, prior: float, *, with_gaussian: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "advantage": risk.advantage(accountant),
        "membership_success": risk.membership_success(accountant, prior),
        "words": risk.in_words(accountant, prior=prior),
    }
    if with_gaussian:
        mu = accountant.get_gdp_parameter_bounds()
        found["mu"] = mu
        found["regret"] = risk.gaussian_regret(accountant, mu[1])
    return found


def _converted(found: dict[str, Any], delta: float) -> str:
    """Returns a sentence on the bounds of the other parameters."""
    if "epsilon" not in found:
        rho, mu = found["largest_rho"], found["largest_mu"]
        enough, short = zip(rho, mu, strict=True)
        rho_enough, mu_enough = map(decimals.rounded_down, enough)
        rho_short, mu_short = map(decimals.rounded_up, short)
        sentence = f"So private is every mechanism with ρ ≤ {rho_enough}, and with "
        sentence += f"μ ≤ {mu_enough}; not every one with ρ = {rho_short}, or with "
        sentence += f"μ = {mu_short}."
    else:
        least, most = found["epsilon"]
        sentence = f"ε at δ = {delta:g} is at most {decimals.rounded_up(most)}; of "
        sentence += f"some such mechanism, at least {decimals.rounded_down(least)}."
    return textwrap.fill(f"- {sentence}", text.WIDTH, subsequent_indent="  ")


def _printed(begin: str, run: training_run.TrainingRun) -> str:
    return textwrap.fill(begin + run.in_words, text.WIDTH) + "\n\n"


def _all(found: dict[str, dict[str, Any]]) -> str:
    return "\n\n".join(f"With {of}: {_in_words(each)}" for of, each in found.items())


def _in_words(found: dict[str, Any]) -> str:
    lines = [found["words"]]
    if "mu" in found:
        low, high = found["mu"]
        sentence = "As of Gaussian noise: no finite μ is known, for a loss is infinite."
        if not math.isinf(high):
            sentence = (
                f"As of Gaussian noise: μ is from {decimals.rounded_down(low)} to "
            )
            sentence += f"{decimals.rounded_up(high)}. The latter reveals at most "
            sentence += f"{decimals.rounded_up(found['regret'][1])} more: the regret."
        lines.append(textwrap.fill(sentence, text.WIDTH, subsequent_indent="  "))
    return "\n".join(lines)
