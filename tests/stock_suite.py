"""Runs the stock library's own tests with these accountants, and sorts what fails.

A failing test is run to its end, and each of its comparisons sorted:

- close: ours is within a millionth of the number expected;
- tighter: ours is below it;
- more: ours takes what the test expects to be refused;
- worded: the same exception, in other words;
- excused: named in `EXCUSED`, with the reason;
- wrong: all else.

A test is wrong if any of its comparisons is, or if an ε or δ that ours answered in it
(of the first hundred) is below the certified lower bound of what was composed.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import importlib.util
import io
import pathlib
import re
import sys
from types import ModuleType
from typing import Any
import unittest
from unittest import mock

import dp_accounting
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np

import dp_accounting_ext as ext

# Tests of what is not a bound, or of how the stock computes.
EXCUSED = {
    "test_log_a_frac_early_termination": (
        "expects a warning that the stock's series did not converge"
    ),
    "test_poisson_sampled_zcdp_matches_gaussian": (
        "between integer orders a sampled zCDP mechanism can exceed the Gaussian"
    ),
    "test_poisson_sampled_discrete_gaussian_matches_gaussian": (
        "between integer orders nothing is proven of any dimension"
    ),
    "test_mixture_of_gaussians_basic": (
        "asks for a millionth of δ: ours is certified to 1e-4 of it, 2e-6 of ε"
    ),
    "test_truncated_subsampled_gaussian_basic": (
        "asks for a millionth of δ: ours is certified to 1e-4 of it"
    ),
    "test_poisson_subsampled_laplace": (
        "asks for δ within 1e-3 of the largest loss: 1.8e-6 there"
    ),
}
# Where divergences are compared with lower bounds.
CHECKED = (1e-2, 1e-6)
MOST_CHECKS = 100
CLOSE = 1e-6
KINDS = ("close", "tighter", "more", "worded", "excused", "wrong")
Accountant = privacy_accountant.PrivacyAccountant


@dataclasses.dataclass(frozen=True)
class Finding:
    """A comparison that failed.

    Attributes:
        kind: One of `KINDS`.
        text: What it was.
    """

    kind: str
    text: str


@dataclasses.dataclass
class Record:
    """What accountants answered in a test, and which comparisons failed.

    Attributes:
        checks: How many answers are still compared with certified lower bounds.
        answers: All numbers that an accountant gave.
        supported: What an accountant was last asked of its support, and said.
        findings: The comparisons that failed.
        queries: How often an ε or δ was asked for.
    """

    checks: int = 0
    answers: set[float] = dataclasses.field(default_factory=set)
    supported: tuple[Any, Any, bool] | None = None
    findings: list[Finding] = dataclasses.field(default_factory=list)
    queries: int = 0

    def add(self, kind: str, text: str) -> None:
        """Adds what failed."""
        self.findings.append(Finding(kind, text))

    def compare(self, first: Any, second: Any) -> None:
        """Sorts two numbers, or arrays, that should be about equal."""
        try:
            pair = np.broadcast_arrays(
                np.asarray(first, float), np.asarray(second, float)
            )
        except (TypeError, ValueError):
            self.add("wrong", f"{first!r} is not {second!r}")
            return
        ours, expected = pair
        known = [self.answers.issuperset(each.ravel().tolist()) for each in pair]
        if known == [False, True]:
            ours, expected = expected, ours
        apart = ~np.isclose(ours, expected, rtol=CLOSE, atol=0)
        kind = "tighter" if np.all(ours[apart] < expected[apart]) else "wrong"
        if not apart.any():
            kind, apart = "close", ours != expected
        text = f"{ours[apart][:3].tolist()}, expected {expected[apart][:3].tolist()}"
        self.add(kind, text)

    def answer(
        self, accountant: Accountant, query: str, target: float, got: float
    ) -> None:
        """Notes an answer, and checks it."""
        self.queries += 1
        self.keep([got])
        self.check(accountant, query, target, got)

    def keep(self, numbers: Sequence[float]) -> None:
        """Notes numbers that tell whose answer they are."""
        self.answers |= {float(each) for each in numbers} - {0.0, 1.0, np.inf}

    def check(
        self, accountant: Accountant, query: str, target: float, got: float
    ) -> None:
        """Compares an answer with the lower bound of the same ledger."""
        if not self.checks or not 0 <= target < np.inf:
            return
        self.checks -= 1
        lower = lower_bound(
            accountant.ledger, accountant.neighboring_relation, query, target
        )
        if not got >= lower:
            self.add("wrong", f"{query}({target}) = {got} is below {lower}")


def lower_bound(ledger: Any, relation: Any, query: str, target: float) -> float:
    """Returns the certified lower bound of what was composed, 0 if there is none."""
    twin = ext.PLDAccountant(relation)
    if not twin.supports(ledger):
        return 0.0
    bounds: tuple[float, float] = getattr(twin.compose(ledger), f"{query}_bounds")(
        target
    )
    return bounds[0]


def recorded(accountant: type[Any], record: Record) -> type[Any]:
    """Returns an accountant's class whose answers are recorded."""

    def get_epsilon(self: Any, target_delta: float) -> float:
        got: float = accountant.get_epsilon(self, target_delta)
        record.answer(self, "get_epsilon", target_delta, got)
        return got

    def get_delta(self: Any, target_epsilon: float) -> float:
        got: float = accountant.get_delta(self, target_epsilon)
        record.answer(self, "get_delta", target_epsilon, got)
        return got

    def supports(self: Any, event: Any) -> bool:
        found: bool = accountant.supports(self, event)
        record.supported = self, event, found
        return found

    def rdp(self: Any) -> Any:
        values = vars(accountant)["rdp"].fget(self)
        record.keep(values.tolist())
        for delta in CHECKED if record.checks else ():
            got = accountant.get_epsilon(self, delta)
            record.check(self, "get_epsilon", delta, got)
        return values

    members: dict[str, Any] = {
        "get_epsilon": get_epsilon,
        "get_delta": get_delta,
        "supports": supports,
    }
    if "rdp" in vars(accountant):
        members |= {"rdp": property(rdp), "_rdp": property(rdp)}
    return type(accountant.__name__, (accountant,), members)


class Raises(contextlib.AbstractContextManager["Raises"]):
    """`assertRaisesRegex` that sorts what does not match."""

    def __init__(self, record: Record, expected: Any, pattern: Any) -> None:
        self.record, self.expected, self.pattern = record, expected, pattern
        self.exception: BaseException | None = None

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        if kind is None:
            is_refusal = self.expected is privacy_accountant.UnsupportedEventError
            text = f"no {self.expected.__name__} {self.pattern!r}"
            self.record.add("more" if is_refusal else "wrong", text)
            return True
        if not issubclass(kind, self.expected):
            return False
        self.exception = value
        if not re.search(self.pattern, str(value)):
            self.record.add("worded", f"{str(value)[:60]!r}, not {self.pattern!r}")
        return True


@contextlib.contextmanager
def softened(record: Record) -> Iterator[None]:
    """Lets comparisons that fail go on, and records them."""

    def soft(original: Callable[..., Any]) -> Callable[..., Any]:
        def compare(*arguments: Any, **options: Any) -> Any:
            try:
                return original(*arguments, **options)
            except AssertionError:
                first, second = arguments[-2:] if len(arguments) < 4 else arguments[1:3]
                record.compare(first, second)

        return compare

    def is_false(case: unittest.TestCase, value: Any, text: Any = None) -> None:
        if value:
            is_more = record.supported is not None and record.supported[2]
            record.add("more" if is_more else "wrong", f"supported: {record.supported}")

    def is_close(first: Any, second: Any, *arguments: Any, **options: Any) -> bool:
        if not all_close(first, second, *arguments, **options):
            record.compare(first, second)
        return True

    def raises(case: unittest.TestCase, expected: Any, pattern: Any, *call: Any) -> Any:
        if call:
            with Raises(record, expected, pattern):
                return call[0](*call[1:])
        return Raises(record, expected, pattern)

    all_close, case = np.allclose, unittest.TestCase
    names = "assertAlmostEqual", "assertEqual"
    with contextlib.ExitStack() as stack:
        for name in names:
            original = getattr(case, name)
            stack.enter_context(mock.patch.object(case, name, _method(soft, original)))
        for name in (
            "assert_allclose",
            "assert_array_almost_equal",
            "assert_array_equal",
        ):
            original = getattr(np.testing, name)
            stack.enter_context(mock.patch.object(np.testing, name, soft(original)))
        stack.enter_context(mock.patch.object(case, "assertFalse", is_false))
        stack.enter_context(mock.patch.object(case, "assertRaisesRegex", raises))
        stack.enter_context(mock.patch.object(np, "allclose", is_close))
        yield


def _method(
    soft: Callable[..., Callable[..., Any]], original: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a method of test cases that compares softly."""

    def compare(case: Any, first: Any, second: Any, *rest: Any, **options: Any) -> Any:
        def bound(one: Any, other: Any) -> Any:
            return original(case, one, other, *rest, **options)

        return soft(bound)(first, second)

    return compare


@contextlib.contextmanager
def in_place_of_the_stock(record: Record) -> Iterator[None]:
    """Makes the library's accountants ours."""
    pld = recorded(ext.PLDAccountant, record)
    rdp = recorded(ext.RdpAccountant, record)
    with (
        mock.patch.object(pld_privacy_accountant, "PLDAccountant", pld),
        mock.patch.object(dp_accounting.pld, "PLDAccountant", pld),
        mock.patch.object(rdp_privacy_accountant, "RdpAccountant", rdp),
        mock.patch.object(dp_accounting.rdp, "RdpAccountant", rdp),
    ):
        yield


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a test module.

    Attributes:
        module: Its name.
        run: How many tests were run, the skipped ones not among them.
        failed: From the ids of tests that failed to the worst of `KINDS`, and why.
        queries: How often an accountant was asked for an ε or a δ.
    """

    module: str
    run: int
    failed: dict[str, Finding]
    queries: int


def cases(suite: Any) -> Iterator[unittest.TestCase]:
    """Yields the tests of a suite of suites."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part)
        else:
            yield part


def failed_in(case: unittest.TestCase) -> tuple[bool, str | None]:
    """Runs a test; tells whether it ran at all, and how it failed if it did."""
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()):
        case.run(result)
    bad = [text for _, text in result.failures + result.errors]
    bad += ["unexpected success" for _ in result.unexpectedSuccesses]
    return not result.skipped, (bad[0] if bad else None)


def sorted_failure(case: unittest.TestCase, record: Record, traceback: str) -> Finding:
    """Runs a failed test to its end, and returns the worst that is found."""
    record.checks, record.findings = MOST_CHECKS, []
    with softened(record):
        _, rest = failed_in(case)
    findings, record.checks = record.findings, 0
    unsound = [each for each in findings if " is below " in each.text]
    excuses = [why for name, why in EXCUSED.items() if name in case.id()]
    if unsound:
        return unsound[0]
    if excuses:
        return Finding("excused", excuses[0])
    if rest is not None or not findings:
        return Finding("wrong", (rest or traceback).strip().splitlines()[-1])
    return max(findings, key=lambda each: KINDS.index(each.kind))


def outcomes_of(loads: Mapping[str, Callable[[], ModuleType]]) -> list[Outcome]:
    """Runs the tests of modules that are loaded with ours in the stock's place.

    One record serves all: what they import keeps the classes that it found first.
    """
    record = Record()
    with in_place_of_the_stock(record):
        return [_outcome_of(name, load(), record) for name, load in loads.items()]


def _outcome_of(name: str, module: ModuleType, record: Record) -> Outcome:
    run, failures, before = 0, [], record.queries
    for case in cases(unittest.defaultTestLoader.loadTestsFromModule(module)):
        was_run, traceback = failed_in(case)
        run += was_run
        if traceback is not None:
            failures.append((case, traceback))
    queries = record.queries - before
    failed = {case.id(): sorted_failure(case, record, text) for case, text in failures}
    return Outcome(name, run, failed, queries)


def from_file(path: pathlib.Path) -> ModuleType:
    """Returns a module loaded from a file; `tests` is no package to import from."""
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def violations(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns what is wrong, a line each."""
    wrong = [
        f"{outcome.module}: {test}: {finding.text}"
        for outcome in outcomes
        for test, finding in outcome.failed.items()
        if finding.kind == "wrong"
    ]
    wrong += [f"{each.module}: no test was run" for each in outcomes if not each.run]
    if not sum(outcome.queries for outcome in outcomes):
        wrong.append("no test asked an accountant for an ε or a δ")
    return wrong
