"""Wasserstein projections: time beside accuracy, beside other software.

Exact projections of one user beside POT's network simplex on the same problem, with
split columns, and beside HiGHS on the whole linear program; entropic ones beside the
plain iteration of the paper's Algorithm 1 and POT's Sinkhorn, which solves an easier
problem (a fixed target, our result) at the same λ; base measures; batches; and long
stresses of accuracy and of the privacy of integer weights. POT is used where it is
installed. Every job of another software runs in a process of its own, with a limit.
Seconds are of CPU, all threads together, but for batches, where both are given: with
OMP_NUM_THREADS=1, as threads of linear algebra that wait for one another count too.

    python benchmarks/wpm.py [--short] [--peer-seconds 120]
"""

import argparse
from collections.abc import Callable
from fractions import Fraction
import functools
import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

import measured_with
import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import sparse
import timing

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.exact_draw import integer_weights
from dp_accounting_ext.wpm.exact_draw import rational_exponential
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.entropic import regularized_problem
from dp_accounting_ext.wpm.projections.exact import exact_projection

FloatArray = npt.NDArray[np.float64]
Problem = tuple[FloatArray, FloatArray, ldp_polytope.LdpPolytope]

# name, ε; with the share of the largest cost that λ is
EXACT = [
    ("ring of 30", 5.0),
    ("grid 20x20", 1.0),
    ("grid 20x20", 4.0),
    ("1700x250", 1.0),
    ("1700x250", 4.0),
    ("5000x5000", 2.0),
]
ENTROPIC = [
    (name, epsilon, share)
    for name, epsilon in (("ring of 30", 5.0), ("grid 20x20", 1.0), ("grid 20x20", 4.0))
    for share in (0.05, 0.01, 0.001, 0.0002)
] + [("1700x250", 1.0, 0.01), ("1700x250", 1.0, 0.002)]


def ring_cost(size: int = 30) -> FloatArray:
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.minimum(apart, size - apart).astype(float) ** 2


def problem(name: str, epsilon: float) -> Problem:
    """Returns masses, costs and the polytope of a named case, seeded."""
    generator = np.random.default_rng(1)
    if name == "ring of 30":
        cost, concentration = ring_cost(), 0.1
    elif name == "grid 20x20":
        places = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1)
        cost = wpm.cost_matrix(places.reshape(-1, 2), places.reshape(-1, 2), order=1)
        concentration = 0.1
    elif name == "1700x250":
        films = generator.normal(size=(1700, 64))
        cost = wpm.cost_matrix(films, films[:250], metric="cosine", order=1)
        concentration = 1.0
    else:
        left, right = generator.random((2, 5000, 2))
        cost, concentration = wpm.cost_matrix(left, right, order=1), 1.0
    masses = generator.dirichlet(np.full(cost.shape[0], concentration))
    # No measure is searched for here: it would take longer than a projection.
    measure = np.full(cost.shape[1], 1 / cost.shape[1])
    return masses, cost, ldp_polytope.from_base_measure(measure, epsilon)


def exact(case: Problem) -> solution.Solution:
    """Our exact projection."""
    return exact_job(case)()


def exact_job(case: Problem) -> Callable[[], solution.Solution]:
    """Returns our exact projection to be run; a mechanism makes its solver once."""
    masses, cost, polytope = case
    rows = np.flatnonzero(masses)
    solver = exact_projection.make_solver(dense_cost.DenseCost(cost), polytope)
    return lambda: solver.solve(rows, masses[rows])


def entropic(case: Problem, regularization: float) -> solution.Solution:
    """Our entropic projection, to a gap of 1e-6 of the cost."""
    masses, cost, polytope = case
    rows = masses > 0
    settings = entropic_projection.make_settings(regularization, 1e-6, 5000, "newton")
    return entropic_projection.solve(masses[rows], cost[rows], polytope, settings)


def clock(job: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Returns the least CPU seconds of a few runs, and what the last gave."""
    best = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        found = job()
        best = min(best, time.process_time() - begin)
    return best, found


def network_simplex(case: Problem) -> tuple[float, float]:
    """POT's network simplex: columns split into their least and the rest of it."""
    import ot

    masses, cost, polytope = case
    rows = masses > 0
    supply, small = masses[rows], cost[rows]
    size = cost.shape[1]
    spare = polytope.upper.sum() - 1
    whole = np.vstack(
        [
            np.hstack([small, small]),
            np.append(np.full(size, 4 * cost.max()), np.zeros(size)),
        ]
    )
    left = np.append(supply, spare)
    right = np.append(polytope.lower, polytope.upper - polytope.lower)
    right *= left.sum() / right.sum()
    repeats = 1 if size > 1000 else 5
    seconds, plan = clock(lambda: ot.emd(left, right, whole, 10**9), repeats)
    return seconds, float((plan * whole).sum())


def whole_program(case: Problem) -> tuple[float, float]:
    """HiGHS on all arcs at once."""
    masses, cost, polytope = case
    rows = masses > 0
    supply, small = masses[rows], cost[rows]
    k, size = small.shape
    arcs, held = np.arange(k * size), np.arange(size)
    inputs, outputs = np.divmod(arcs, size)
    matrix = sparse.csc_array(
        (
            np.concatenate([np.ones(2 * arcs.size), -np.ones(size)]),
            (
                np.concatenate([inputs, k + outputs, k + held]),
                np.concatenate([arcs, arcs, arcs.size + held]),
            ),
        )
    )
    bounds = np.zeros((arcs.size + size, 2))
    bounds[: arcs.size, 1] = np.inf
    bounds[arcs.size :] = 1e6 * np.column_stack([polytope.lower, polytope.upper])
    largest = float(cost.max()) or 1.0
    linprog: Any = optimize.linprog
    seconds, found = clock(
        lambda: linprog(
            np.append(small.ravel() / largest, np.zeros(size)),
            A_eq=matrix,
            b_eq=np.append(1e6 * supply, np.zeros(size)),
            bounds=bounds,
            method="highs-ds",
            options={
                "primal_feasibility_tolerance": 1e-10,
                "dual_feasibility_tolerance": 1e-10,
            },
        )
    )
    if found.status:
        raise SystemExit(f"HiGHS: {found.message}")
    return seconds, float(found.fun) * largest / 1e6


def pot_sinkhorn(case: Problem, regularization: float) -> tuple[float, float]:
    """POT's log-domain Sinkhorn to our own result as a fixed target."""
    import ot

    masses, cost, _ = case
    rows = masses > 0
    found = entropic(case, regularization)
    target = found.distributions[0] / found.distributions[0].sum()
    seconds, result = clock(
        lambda: ot.sinkhorn(
            masses[rows],
            target,
            cost[rows],
            regularization,
            method="sinkhorn_log",
            numItermax=100_000,
            stopThr=1e-7,
            log=True,
        )
    )
    return seconds, float(result[1]["niter"])


def plain_iteration(
    case: Problem, regularization: float, limit: float
) -> tuple[float, int, str]:
    """Algorithm 1 as printed, kernel and scalings; seconds to a relative gap of 1e-6.

    Returns seconds, passes, and why it did not get there, if so. The gap is certified
    every so many passes, outside the clock. At small λ the scalings leave the range
    of floats, and the iteration ends there.
    """
    masses, cost, polytope = case
    rows = masses > 0
    supply, scaled = masses[rows], cost[rows] / regularization
    kernel = np.exp(-scaled)
    scalings = np.ones(cost.shape[1])
    task = regularized_problem.Problem(supply, scaled, polytope)
    spent, passes = 0.0, 0
    while spent < limit:
        begin = time.process_time()
        with np.errstate(all="ignore"):
            for _ in range(50):
                sums = kernel.T @ (supply / (kernel @ scalings))
                law = ldp_polytope.kl_projection(np.log(sums)[np.newaxis], polytope)[0]
                scalings = law / sums
        passes += 50
        spent += time.process_time() - begin
        if not np.isfinite(scalings).all():
            return spent, passes, "left the floats"
        if passes % 500 == 0 or passes < 500:
            prices = regularized_problem.row_prices(task, np.log(scalings))
            weights = regularized_problem.weigh(task, prices)
            proof = regularized_problem.prove(task, weights)
            if proof.gap <= 1e-6 * proof.cost:
                return spent, passes, ""
    return spent, passes, "not there yet"


PEERS = {
    "simplex": lambda name, epsilon, _: network_simplex(problem(name, epsilon)),
    "program": lambda name, epsilon, _: whole_program(problem(name, epsilon)),
    "sinkhorn": lambda name, epsilon, strength: pot_sinkhorn(
        problem(name, epsilon), strength
    ),
}


def peer(
    job: str, name: str, epsilon: float, strength: float, limit: float
) -> tuple[float, float] | str:
    """Returns seconds and a number of another software's, or why there are none."""
    if job != "program" and not importlib.util.find_spec("ot"):
        return "POT is not installed"
    command = [sys.executable, __file__, "--job", job, name, repr(epsilon)]
    try:
        done = subprocess.run(
            [*command, repr(strength)], capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return f"none in {limit:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    seconds, number = json.loads(done.stdout)
    return seconds, number


def exact_table(limit: float) -> None:
    print("\nExact, one user. Gap: (value - lower bound) / value, proven.")
    print(f"{'case':<12}{'ε':>4}{'s':>9}{'rounds':>7}{'gap':>9}   others")
    for name, epsilon in EXACT:
        case = problem(name, epsilon)
        masses, cost, polytope = case
        repeats = 1 if cost.size > 10**6 else 20 if cost.size < 10**4 else 5
        mine = clock(exact_job(case), repeats)
        result = wpm.project(
            masses, cost, polytope.lower * np.exp(epsilon / 2), epsilon
        )
        line = f"{name:<12}{epsilon:>4g}{mine[0]:>9.5f}{result.iterations:>7}"
        line += f"{max(result.gap, 0) / result.value:>9.0e}"
        others = [("POT", "simplex"), ("whole LP", "program")]
        # A program of 25 million arcs does not fit a usual memory.
        for label, job in others if cost.size < 10**7 else others[:1]:
            other = peer(job, name, epsilon, 0.0, limit)
            if isinstance(other, str):
                line += f"   {label}: {other}"
            else:
                apart = abs(other[1] / result.value - 1)
                line += f"   {label} {other[0]:.5f} s = {other[0] / mine[0]:.2f}x"
                line += f" ({apart:.0e} apart)"
        print(line, flush=True)


def entropic_table(limit: float) -> None:
    print("\nEntropic, one user, to a certified regularised gap of 1e-6 of the cost.")
    print("Excess: cost above the exact projection's, and its bound λ log k_v.")
    head = f"{'case':<12}{'ε':>4}{'λ/max C':>9}{'s':>9}{'passes':>8}{'excess':>10}"
    print(f"{head}{'bound':>10}   others")
    for name, epsilon, share in ENTROPIC:
        case = problem(name, epsilon)
        cost = case[1]
        strength = share * float(cost.max())
        seconds, found = clock(
            lambda case=case, strength=strength: entropic(case, strength), 3
        )
        best = exact(case).values[0]
        bound = entropic_projection.error_bound(strength, cost.shape[1])
        line = f"{name:<12}{epsilon:>4g}{share:>9g}{seconds:>9.4f}"
        line += f"{found.iterations[0]:>8}{found.values[0] - best:>10.2e}{bound:>10.2e}"
        line += "" if found.converged[0] else " NOT CONVERGED"
        slow, passes, fault = plain_iteration(case, strength, limit)
        line += f"   Algorithm 1 {slow:.4f} s, {passes} passes"
        line += f", {fault}" if fault else f" = {slow / seconds:.1f}x"
        other = peer("sinkhorn", name, epsilon, strength, limit)
        if isinstance(other, str):
            line += f"   POT: {other}"
        else:
            line += f"   POT Sinkhorn {other[0]:.3f} s, {other[1]:.0f} passes"
        print(line, flush=True)


def measure_table() -> None:
    print("\nBase measures: worst-case cost. Gap: proven.")
    for name in ("ring of 30", "random 200", "grid 20x20"):
        for epsilon in (1.0, 4.0):
            if name == "random 200":
                places = np.random.default_rng(0).random((200, 2))
                cost = wpm.cost_matrix(places, places, order=1)
            else:
                cost = problem(name, epsilon)[1]
            slow, uniform = clock(
                lambda cost=cost, epsilon=epsilon: wpm.uniform_base_measure(
                    cost, epsilon
                )
            )
            seconds, best = clock(
                lambda cost=cost, epsilon=epsilon: wpm.minimax_base_measure(
                    cost, epsilon
                )
            )
            descent, reference = clock(
                lambda cost=cost, epsilon=epsilon: wpm.minimax_base_measure(
                    cost, epsilon, mirror_descent_steps=1000
                )
            )
            print(
                f"{name:<12} ε {epsilon:g}  minimax {best.value:.6g} ({seconds:.2f} s, "
                f"{best.iterations} rounds, gap {best.gap / best.value:.0e})  uniform "
                f"{uniform.value / best.value:.3f}x ({slow:.3f} s)  mirror descent, "
                f"1000 steps {reference.value / best.value:.3f}x ({descent:.2f} s)",
                flush=True,
            )


def film_users(count: int) -> tuple[FloatArray, FloatArray]:
    """Users with 80 of 1360 films each, and 250 candidates."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(20, 64))
    films = 0.7 * centres[generator.integers(0, 20, 1610)]
    films += generator.normal(size=films.shape)
    users = np.zeros((count, 1360))
    for user in users:
        seen = generator.choice(1360, 80, replace=False)
        user[seen] = generator.integers(1, 6, 80)
    cost = wpm.cost_matrix(films[:1360], films[1360:], metric="cosine", order=1)
    return users / users.sum(axis=1, keepdims=True), cost


def batch_table() -> None:
    count = 10_000
    users, cost = film_users(count)
    print(
        f"\n{count} users x 250 candidates, 80 of 1360 films each: project and sample."
    )
    for strength in (0.05, 0.01, None):
        for epsilon in (1.0, 4.0):
            mechanism = wpm.WassersteinProjectionMechanism(
                cost, epsilon, regularization=strength
            )
            part = users[:1000]
            begin = time.perf_counter()
            seconds, _ = clock(lambda m=mechanism, p=part: m.sample(p))
            share = count / len(part)
            waited = (time.perf_counter() - begin) * share
            label = f"λ = {strength}" if strength else "exact"
            note = "" if len(part) == count else f", from the first {len(part)}"
            print(
                f"ε {epsilon:g} {label:<9} {waited:7.1f} s, {seconds * share:.1f} s of "
                f"CPU{note}",
                flush=True,
            )


def random_case(generator: np.random.Generator) -> tuple[Problem, FloatArray, float]:
    k, size = generator.integers(1, 201, 2)
    left, right = generator.random((k, 2)), generator.random((size, 2))
    if generator.random() < 0.3:
        right = left[generator.integers(0, k, size)]
    cost = wpm.cost_matrix(left, right, order=float(generator.integers(1, 3)))
    masses = generator.dirichlet(np.full(k, generator.choice([0.1, 1.0])))
    masses = np.where(generator.random(k) < 0.2, 0.0, masses)
    if masses.sum() <= 0 or generator.random() < 0.2:
        masses = np.eye(k)[generator.integers(k)]
    epsilon = float(np.exp(generator.uniform(np.log(0.01), np.log(40.0))))
    measure = generator.dirichlet(np.full(size, generator.choice([0.5, 50.0])))
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2)
    polytope = ldp_polytope.from_base_measure(measure, epsilon)
    return (masses / masses.sum(), cost, polytope), measure, epsilon


# Name, what it is, and the goals: seconds to construct and for a user, and megabytes.
# The last is seconds in all over those of a yardstick, as measured when written:
# three times as many are a failure.
LARGE = {
    "plane 50,000": ("points", 50_000, (5.0, 1.0, 500.0), 150.0),
    "near ones of 50,000": ("near", 50_000, (5.0, 1.0, 500.0), 270.0),
    "plane 1,000,000": ("points", 1_000_000, (30.0, 30.0, 2000.0), 2000.0),
    "graph 10,000": ("graph", 10_000, (5.0, 1.0, 500.0), 150.0),
    "line 10,000": ("line", 10_000, (5.0, 1.0, 500.0), 30.0),
    "line 1,000,000": ("line", 1_000_000, (3.0, 2.0, 1000.0), 600.0),
}


def in_yardsticks(job: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the least yardstick around a job, and what the job returns."""
    units = [timing.yardstick() for _ in range(3)]
    result = job()
    units += [timing.yardstick() for _ in range(3)]
    return min(units), result


def large_of(kind: str, size: int) -> tuple[float, float, float, float]:
    """Returns seconds to construct and for a user, the gap, and the peak in MB."""
    import resource

    generator = np.random.default_rng(1)
    begin = time.process_time()
    if kind == "line":
        places = generator.random(size)
        make = wpm.WassersteinProjectionMechanism.on_line
        mechanism = make(places, places, 2.0)
    elif kind == "graph":
        side = round(size**0.5)
        lattice = sparse.diags([np.ones(side - 1)], [1], shape=(side, side))
        lengths = sparse.kronsum(lattice, lattice).tocsr()
        lengths.data *= generator.uniform(0.5, 1.5, lengths.nnz)
        make = wpm.WassersteinProjectionMechanism.on_graph
        mechanism = make(lengths, epsilon=2.0)
    else:
        points = generator.random((size, 2))
        mechanism = wpm.from_points(points, 2.0)
    constructed = time.process_time() - begin
    spent, gap = [], 0.0
    for _ in range(3):
        inputs = generator.choice(size, 50, replace=False)
        if kind == "near":
            distances = ((points - generator.random(2)) ** 2).sum(axis=1)
            inputs = np.argsort(distances)[generator.choice(400, 50, replace=False)]
        masses = generator.dirichlet(np.ones(50))
        user = sparse.csr_matrix((masses, ([0] * 50, inputs)), shape=(1, size))
        begin = time.process_time()
        mechanism.sample(user)
        spent.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if size < 10**6 or kind == "line":
        found = wpm.project(user, mechanism.cost, mechanism.base_measure, 2.0)
        gap = float(np.abs(found.gap[0]) / found.value[0])
    return constructed, float(np.median(spent)), gap, peak


def large_table() -> list[str]:
    """Prints large maps, a user with 50 places; returns what fails."""
    print("\nLarge maps, exact, 50 places a user, ε = 2; in yardsticks of timing.py")
    print(
        f"{'case':<22}{'construct':>10}{'a user':>9}{'gap':>9}{'MB':>7}"
        f"{'yardsticks':>12}   goals"
    )
    failed = []
    for name, (_, _, goals, usual) in LARGE.items():
        command = [sys.executable, __file__, "--job", "large", name, "0", "0"]
        run = functools.partial(subprocess.run, command, capture_output=True)
        unit, done = in_yardsticks(functools.partial(run, text=True, check=True))
        built, spent, gap, peak = json.loads(done.stdout)
        taken = (built + spent) / unit
        line = f"{name:<22}{built:>8.2f} s{spent:>7.2f} s{gap:>9.0e}{peak:>7.0f}"
        print(
            f"{line}{taken:>12.0f}   " + "{:g} s, {:g} s, {:g} MB".format(*goals),
            flush=True,
        )
        if not taken <= 3 * usual or peak > 3 * goals[2] or not gap <= 1e-9:
            failed.append(name)
    return failed


# Name, and CPU seconds over those of a yardstick, as measured when written.
SHORT = {
    "grid 20x20, exact": 16.0,
    "40 users, exact, ε = 1": 105.0,
    "40 users, exact, ε = 4": 110.0,
    "40 users, λ = 0.05": 38.0,
    "plane 20,000": 160.0,
    "line 10,000": 40.0,
}


def short_job(name: str) -> tuple[float, float]:
    """Returns CPU seconds and the widest relative gap of a case of the short form."""
    if name.startswith("grid"):
        case = problem("grid 20x20", 4.0)
        masses, cost, polytope = case
        seconds, _ = clock(lambda: exact(case), 3)
        found = wpm.project(masses, cost, polytope.lower * np.exp(2.0), 4.0)
        return seconds, abs(found.gap) / found.value
    if name.startswith("40 users"):
        users, costs = film_users(40)
        epsilon = 4.0 if name.endswith("4") else 1.0
        strength = 0.05 if "λ" in name else None
        mechanism = wpm.WassersteinProjectionMechanism(
            costs, epsilon, regularization=strength
        )
        seconds, _ = clock(lambda: mechanism.sample(users), 2)
        measure = mechanism.base_measure
        part = wpm.project(users[:5], costs, measure, epsilon, strength)
        gaps = np.abs(part.gap) / part.value
        return seconds, 0.0 if strength else float(gaps.max())
    kind = "line" if name.startswith("line") else "points"
    built, spent, gap, _ = large_of(kind, 10_000 if kind == "line" else 20_000)
    return built + spent, gap


def short_table() -> list[str]:
    """Prints a few cases of all kinds, in about ten seconds; returns what fails."""
    print("in yardsticks of timing.py; 2.5 times the usual is a failure")
    failed = []
    for name, usual in SHORT.items():
        unit, (seconds, gap) = in_yardsticks(functools.partial(short_job, name))
        line = f"{name:<24}{seconds:>8.3f} s = {seconds / unit:>5.0f} yardsticks, "
        print(line + f"usually {usual:g}; gap {gap:.0e}", flush=True)
        if not seconds <= 2.5 * usual * unit or not gap <= 1e-9:
            failed.append(name)
    return failed


def accuracy_stress(count: int) -> None:
    """Random cases beside the whole program, k and k_v to 200, ε from .01 to 40."""
    generator = np.random.default_rng(0)
    worst, absolute, widest = 0.0, 0.0, 0.0
    for _ in range(count):
        case, measure, epsilon = random_case(generator)
        found = wpm.project(case[0], case[1], measure, epsilon)
        _, truth = whole_program(case)
        apart = abs(found.value - truth)
        largest = float(case[1].max()) or 1.0
        absolute = max(absolute, apart / largest)
        if truth > 1e-6 * largest:
            worst = max(worst, apart / truth)
            widest = max(widest, found.gap / found.value)
    print(
        f"\n{count} random cases beside the whole program: costs above 1e-6 of the "
        f"largest {worst:.0e} apart, proven gap at most {widest:.0e}; all cases "
        f"{absolute:.0e} of the largest cost apart"
    )


def privacy_stress(count: int) -> None:
    """Integer weights of anything at all: ratios in rational arithmetic."""
    generator = np.random.default_rng(1)
    rows = checked = fallen = 0
    for _ in range(count):
        _, measure, epsilon = random_case(generator)
        measure = measure[:40] * (measure.sum() / measure[:40].sum())
        polytope = ldp_polytope.from_base_measure(measure, epsilon)
        bounds = integer_weights.make_bounds(polytope, epsilon)
        prices = generator.normal(size=(4, measure.size))
        proposed = np.concatenate(
            [
                [ldp_polytope.cheapest(row, polytope) for row in prices],
                generator.dirichlet(np.full(measure.size, 0.1), size=2),
                generator.normal(size=prices.shape),
                np.full((1, measure.size), np.nan),
            ]
        )
        weights = integer_weights.round_to_weights(proposed, bounds)
        fallen += int((weights == bounds.public_weights).all(axis=1).sum())
        low, _ = rational_exponential.bounds(Fraction(epsilon))
        for column in weights.T.tolist():
            if Fraction(max(column)) > low * min(column):
                raise SystemExit(f"not private at ε = {epsilon}")
        if any(sum(row) != bounds.total for row in weights.tolist()):
            raise SystemExit("weights do not sum to W")
        rows += len(weights)
        checked += len(weights) * (len(weights) - 1) * measure.size
    print(
        f"{rows} laws ({fallen} the public one), {checked} ratios in rational "
        "arithmetic: all at most e^ε"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Wasserstein projections beside other software."
    )
    parser.add_argument("--short", action="store_true", help="seconds, with limits")
    parser.add_argument("--peer-seconds", type=float, default=120.0)
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job, name, epsilon, strength = options.job
        if job == "large":
            print(json.dumps(large_of(*LARGE[name][:2])))
            return
        print(json.dumps(PEERS[job](name, float(epsilon), float(strength))))
        return
    print(measured_with.versions("POT"))
    if options.short:
        failed = short_table()
        privacy_stress(50)
    else:
        failed = large_table()
        exact_table(options.peer_seconds)
        entropic_table(min(options.peer_seconds, 60.0))
        measure_table()
        batch_table()
        accuracy_stress(200)
        privacy_stress(1000)
    if failed:
        sys.exit(f"slower or larger than usual, or a wide gap: {', '.join(failed)}")


if __name__ == "__main__":
    main()
