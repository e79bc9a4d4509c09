"""The cases of private draws: projections, crowds and maps, on public functions.

A case's bounds are those on the cost of the projection; its work is the time of the
whole job, a mechanism's construction among it where the job is a map.
"""

from collections.abc import Callable
from collections.abc import Iterator
import functools
from typing import Any

import numpy as np
from scipy import sparse

from dp_accounting_ext import wpm

Bounds = tuple[float, float]
Job = Callable[[], Bounds]

ENOUGH = 1e-6  # What is proven of every projection, unless asked for otherwise.
# Name, ε, work, whether short.
PROJECTIONS = (
    ("ring of 30", 5.0, 0.2, False),
    ("20 × 20 grid", 1.0, 20.0, False),
    ("20 × 20 grid", 4.0, 16.0, True),
    ("1700 × 250 points", 1.0, 16.0, False),
    ("1700 × 250 points", 4.0, 16.0, False),
)
# ε, work: of 40 users with 80 of 1360 films each, and 250 candidates.
CROWDS = ((1.0, 80.0), (4.0, 70.0))
# Users, places of each, places in all, options, work, whether short.
LARGE_CROWDS: tuple[tuple[int, int, int, dict[str, Any], float, bool], ...] = (
    (200, 50, 2000, {"regularization": 0.01}, 600.0, False),
    (10_000, 20, 500, {"regularization": 0.01}, 3000.0, False),
    (200, 50, 2000, {"linear": True}, 30.0, True),
    (10_000, 20, 500, {"linear": True}, 300.0, False),
)
# Kind, number of places, work, megabytes, whether short: a user with 50 of them.
MAPS = (
    ("plane", 20_000, 160.0, 500.0, True),
    ("plane", 50_000, 300.0, 1000.0, False),
    ("graph", 10_000, 150.0, 1000.0, False),
    ("line", 10_000, 40.0, 500.0, True),
    ("line", 1_000_000, 1500.0, 2000.0, False),
)


def projection(name: str, epsilon: float) -> Job:
    """Returns the exact projection of one private distribution, seeded."""
    generator = np.random.default_rng(1)
    concentration = 0.1
    if name == "ring of 30":
        apart = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
        cost = np.minimum(apart, 30 - apart).astype(float) ** 2
    elif name == "20 × 20 grid":
        places = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1)
        cost = wpm.PointCost(places.reshape(-1, 2)).matrix()
    else:
        films = generator.normal(size=(1700, 64))
        cost = wpm.PointCost(films, films[:250], metric="cosine").matrix()
        concentration = 1.0
    masses = generator.dirichlet(np.full(cost.shape[0], concentration))
    measure = np.full(cost.shape[1], 1 / cost.shape[1])
    # The first projection of a process imports the solver, which is not measured.
    _bounds(masses[:2] / masses[:2].sum(), cost[:2, :2], np.full(2, 0.5), epsilon)
    return functools.partial(_bounds, masses, cost, measure, epsilon)


def _bounds(*arguments: Any, **options: Any) -> Bounds:
    """Returns bounds on the cost; they enclose it up to rounding, as promised."""
    found = wpm.project(*arguments, **options)
    lower, upper = float(np.min(found.lower_bound)), float(np.min(found.value))
    return lower, max(upper, min(lower, upper * (1 + 1e-9)))


def crowd(epsilon: float) -> Job:
    """Returns draws for 40 users, each with 80 of 1360 films."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(20, 64))
    films = 0.7 * centres[generator.integers(0, 20, 1610)]
    films += generator.normal(size=films.shape)
    users = np.zeros((40, 1360))
    for user in users:
        user[generator.choice(1360, 80, replace=False)] = generator.integers(1, 6, 80)
    cost = wpm.PointCost(films[:1360], films[1360:], metric="cosine")
    users /= users.sum(axis=1, keepdims=True)
    mechanism = wpm.WassersteinProjectionMechanism(cost, epsilon)

    def job() -> Bounds:
        mechanism.sample(users)
        return 1.0, 1.0  # A draw has no bounds.

    return job


def large_crowd(users: int, each: int, size: int, options: dict[str, Any]) -> Job:
    """Returns draws of many users in a square, and what is certified of the first."""
    generator = np.random.default_rng(0)
    places = generator.random((size, 2))
    chosen = [generator.choice(size, each, replace=False) for _ in range(users)]
    masses = generator.dirichlet(np.ones(each), size=users)
    table = sparse.csr_matrix(
        (masses.ravel(), np.ravel(chosen), each * np.arange(users + 1)),
        shape=(users, size),
    )
    mechanism = wpm.from_points(places, 2.0, **options)

    def job() -> Bounds:
        mechanism.sample(table)
        if mechanism.is_linear:
            return 1.0, 1.0
        measure = mechanism.base_measure
        return _bounds(table[:1], mechanism.cost, measure, 2.0, **options)

    return job


def large_map(kind: str, size: int) -> Job:
    """Returns the construction of a map without a matrix, and one user's draw."""
    generator = np.random.default_rng(1)
    user = sparse.csr_matrix(
        (
            generator.dirichlet(np.ones(50)),
            ([0] * 50, generator.choice(size, 50, replace=False)),
        ),
        shape=(1, size),
    )

    def job() -> Bounds:
        places = generator.random((size, 1 if kind == "line" else 2))
        if kind == "graph":
            side = round(size**0.5)
            lattice = sparse.diags([np.ones(side - 1)], [1], shape=(side, side))
            lengths = sparse.kronsum(lattice, lattice).tocsr()
            lengths.data *= generator.uniform(0.5, 1.5, lengths.nnz)
            cost = wpm.GraphCost(lengths)
            mechanism = wpm.WassersteinProjectionMechanism(cost, 2.0)
        else:
            mechanism = wpm.from_points(places, 2.0)
        mechanism.sample(user)
        return _bounds(user, mechanism.cost, mechanism.base_measure, 2.0)

    return job


def rows() -> Iterator[tuple[str, Callable[[], Job], float, float, bool]]:
    """Yields names, what prepares each job, its work and megabytes, and if short."""
    for name, epsilon, work, short in PROJECTIONS:
        prepare = functools.partial(projection, name, epsilon)
        yield f"{name}, ε = {epsilon:g}", prepare, work, 600.0, short
    for epsilon, work in CROWDS:
        prepare = functools.partial(crowd, epsilon)
        yield f"40 users, ε = {epsilon:g}", prepare, work, 600.0, True
    for users, each, size, options, work, short in LARGE_CROWDS:
        prepare = functools.partial(large_crowd, users, each, size, options)
        way = "linear" if "linear" in options else "Algorithm 1"
        name = f"{users:,} users, {each} of {size:,} places, {way}"
        yield name, prepare, work, 600.0, short
    for kind, size, work, most, short in MAPS:
        prepare = functools.partial(large_map, kind, size)
        yield f"{kind} of {size:,} places", prepare, work, most, short
