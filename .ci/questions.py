"""Asks random settings of every kind every question that an accountant answers.

    python .ci/questions.py [--settings 1000] [--seed 1] [--kinds "k of t,bins"]

An error is a fault, unless it refuses an event by name. So are answers that are not
numbers, bounds that are not in order, and questions that take more than 60 seconds of
CPU time or 2 GB. The script prints each of them and ends with status 3 if there is any.
The settings are those of `beside.py`.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import math
import resource
import signal
import sys
import time
from typing import Any
import warnings

import beside
import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting.privacy_accountant import UnsupportedEventError
import numpy as np

import dp_accounting_ext as ext

SECONDS = 60
MOST_KILOBYTES = 2_000_000
EPSILONS = [-0.5, 0.0, 0.3, 2.0]
RATES = [1e-6, 1e-3, 0.1, 0.5]
ORDERS = [1.5, 8.0, 256.0]


def questions(setting: beside.Setting) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the name of each question, and a function that returns its answers.

    Answers are pairs of lower and upper bounds, or single bounds.
    """
    relation = dp_accounting.NeighboringRelation[setting.relation]
    # Settings are expressions of the modules `stock` and `ext`.
    event = eval(setting.event, {"stock": stock, "ext": ext})
    accountant = ext.PLDAccountant(relation).compose(event)
    epsilon = accountant.get_epsilon_bounds
    yield "epsilon", lambda: epsilon(setting.delta)
    yield "delta", lambda: accountant.get_delta_bounds(EPSILONS)
    yield (
        "true positive rates",
        lambda: accountant.get_true_positive_rate_bounds(RATES),
    )
    yield (
        "mu",
        lambda: accountant.get_gdp_parameter_bounds(least_false_positive_rate=0.01),
    )
    yield (
        "Rényi",
        lambda: ext.pld.renyi_divergence_bounds(
            event, ORDERS, neighboring_relation=relation
        ),
    )
    yield "in words", lambda: [len(ext.risk.in_words(accountant))]
    yield "explain", lambda: [len(str(accountant.explain(setting.delta)))]


def late(*_: object) -> None:
    """Interrupts a question."""
    raise TimeoutError(f"it takes more than {SECONDS} s")


def kilobytes() -> int:
    """Returns the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fault(answer: Callable[[], Any]) -> str:
    """Returns what is wrong with an answer, or an empty text."""
    began, before = time.process_time(), kilobytes()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        bounds = np.asarray(answer(), dtype=np.float64)
    except UnsupportedEventError:
        return ""
    except Exception as error:
        seconds = time.process_time() - began
        return f"{type(error).__name__} after {seconds:.1f} s: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if np.isnan(bounds).any():
        return f"NaN: {bounds}"
    if len(bounds) == 2 and (bounds[0] > bounds[1]).any():
        return f"not in order: {bounds}"
    # The most that was ever taken, so that only a question that takes more is told.
    took = kilobytes()
    return f"it took {took / 1e6:.1f} GB" if took > max(before, MOST_KILOBYTES) else ""


def main() -> int:
    """Asks all questions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(beside.KINDS))
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, late)
    warnings.simplefilter("ignore")
    kinds = [kind.strip() for kind in arguments.kinds.split(",")]
    asked, faults, longest = 0, 0, (-math.inf, "")
    for setting in beside.settings(arguments.settings, arguments.seed, kinds):
        for name, answer in questions(setting):
            began = time.process_time()
            wrong = fault(answer)
            longest = max(longest, (time.process_time() - began, f"{name}, {setting}"))
            asked, faults = asked + 1, faults + bool(wrong)
            if wrong:
                print(f"{name}: {wrong}\n    {setting}", flush=True)
    print(
        f"{asked} questions, {faults} faults; longest: {longest[0]:.1f} s, {longest[1]}"
    )
    return 3 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
