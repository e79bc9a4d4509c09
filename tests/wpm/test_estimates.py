"""Linear draws against an exact channel; estimates against enumerated draws."""

from fractions import Fraction
import itertools

import matplotlib
import nights
import numpy as np
import pytest
from scipy import optimize
from scipy import spatial
import wpm_experiments as experiments
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import estimates
from dp_accounting_ext.wpm import integer_weights
from dp_accounting_ext.wpm.projections import linear_programs

PLACES = np.random.default_rng(2).random((6, 2))
LINEAR = wpm.from_points(PLACES, 2.0, linear=True)
EXACT = wpm.from_points(PLACES, 2.0)
CHANNEL = np.asarray(LINEAR.project(np.eye(6)))
USERS = np.random.default_rng(4).dirichlet(np.full(6, 0.4), size=5)


def distance(one, other, cost):
    """The largest difference of means of a function with slopes of at most one."""
    size = len(cost)
    rows = [(i, j) for i in range(size) for j in range(size) if i != j]
    table = np.zeros((len(rows), size))
    for row, (i, j) in zip(table, rows, strict=True):
        row[i], row[j] = 1.0, -1.0
    found = optimize.linprog(
        -(np.asarray(one) - other),
        A_ub=table,
        b_ub=[cost[i, j] for i, j in rows],
        bounds=[(0, None)] + [(None, None)] * (size - 1),
    )
    assert found.status == 0
    return -found.fun


def test_the_channel_is_the_one_of_rational_numbers():
    """Nearest outputs filled to the most, in fractions; mixtures of its rows."""
    low = [
        Fraction(int(w), LINEAR.integer_bounds.total)
        for w in LINEAR.integer_bounds.lower
    ]
    high = [
        Fraction(int(w), LINEAR.integer_bounds.total)
        for w in LINEAR.integer_bounds.upper
    ]
    exact = []
    for row in LINEAR.cost.matrix():
        law, left = list(low), 1 - sum(low)
        for place in sorted(range(6), key=lambda j: (row[j], j)):
            added = min(left, high[place] - low[place])
            law[place] += added
            left -= added
        exact.append(law)
    for user in [*np.eye(6), *USERS]:
        law = [
            sum(Fraction(float(mass)) * exact[x][j] for x, mass in enumerate(user))
            for j in range(6)
        ]
        np.testing.assert_allclose(
            LINEAR.project(user), [float(p) for p in law], rtol=1e-13
        )


def test_a_draw_is_of_an_own_place_and_then_of_its_law(monkeypatch):
    """All numbers that choose a place, and the weights that are then drawn from."""
    monkeypatch.setattr(linear_programs, "solve", None)  # No program is solved.
    drawn, chances = [], iter(range(16))
    draw = integer_weights.draw

    def watched(weights, bits, rng):
        drawn.append(weights)
        return draw(weights, bits, np.random.default_rng(0))

    monkeypatch.setattr(integer_weights, "draw", watched)
    monkeypatch.setattr(
        integer_weights, "uniform", lambda bits, rng: next(chances) << (bits - 4)
    )
    user = np.array([3, 0, 8, 1, 0, 4]) / 16
    private = wpm.from_points(PLACES, 2.0, linear=True)
    monkeypatch.setattr(integer_weights, "draw", lambda *_: drawn.append(_[0]) or [0])
    private.sample(np.tile(user, (16, 1)))
    points = np.asarray(private.integer_weights(np.eye(6)))
    counts = [(np.concatenate(drawn) == row).all(axis=1).sum() for row in points]
    np.testing.assert_array_equal(counts, [3, 0, 8, 1, 0, 4])
    wpm_oracles.assert_private(
        np.concatenate(drawn), 1 << private.integer_bounds.bits, 2
    )


def test_the_worst_case_is_that_of_projections():
    assert LINEAR.worst_case_cost == EXACT.worst_case_cost
    assert LINEAR.dp_event == EXACT.dp_event
    cost = LINEAR.cost.matrix()
    paid = [wpm_oracles.reaching_cost(u, cost, LINEAR.project(u)) for u in USERS]
    least = [wpm_oracles.reaching_cost(u, cost, EXACT.project(u)) for u in USERS]
    assert (np.array(paid) >= np.array(least) - 1e-9).all()
    assert max(paid) <= LINEAR.expected_cost().worst


def outcomes(mechanism, users):
    """All draws of a few users, and their probabilities."""
    laws = np.asarray(mechanism.project(users))
    for draws in itertools.product(range(6), repeat=len(users)):
        yield list(draws), float(np.prod(laws[np.arange(len(users)), draws]))


@pytest.mark.parametrize(
    ("way", "order", "count"),
    [
        ("average", 1, 2),
        ("debiased", 2, 2),
        *nights.at_night(*itertools.product(("average", "debiased"), (1, 2), [3])),
    ],
)
def test_errors_of_distributions_are_bounded(way, order, count):
    """All draws of a few users: the bias, and how often the error is larger."""
    private = wpm.from_points(PLACES, 2.0, order=order, linear=way == "debiased")
    apart = wpm.PointCost(PLACES).matrix()
    estimate = (
        estimates.debiased_average
        if way == "debiased"
        else (estimates.average_of_draws)
    )
    users = USERS[:count]
    mean, centre, misses, spread = users.mean(axis=0), np.zeros(6), 0.0, 0.0
    for draws, chance in outcomes(private, users):
        found = estimate(draws, private, 0.5)
        assert found.distribution.sum() == pytest.approx(1)
        centre += chance * found.distribution
        misses += chance * (
            distance(found.distribution, mean, apart) > found.error_bound
        )
    assert misses <= 0.5
    bias = distance(centre, mean, apart)
    assert bias <= found.bias_bound <= found.error_bound
    for draws, chance in outcomes(private, users):
        found = estimate(draws, private, 1e-12)
        spread += chance * distance(found.distribution, centre, apart)
    assert spread <= found.error_bound - found.bias_bound


def test_debiased_averages_have_less_bias():
    found = estimates.debiased_average([0, 1], LINEAR)
    assert found.bias_bound < 0.8 * estimates.average_of_draws([0, 1], EXACT).bias_bound


@pytest.mark.parametrize("kind", ["euclidean", "haversine", "chebyshev", "graph"])
def test_cells_of_outputs_are_nested_and_as_wide_as_they_say(kind):
    generator = np.random.default_rng(8)
    points = generator.random((37, 2))
    if kind == "graph":
        edges = np.column_stack([np.arange(37), np.roll(np.arange(37), -1)])
        cost = wpm.GraphCost.from_edges(edges, np.ones(37), order=2)
        apart = cost.matrix() ** 0.5
    else:
        cost = wpm.PointCost(points, metric=kind, order=2)
        apart = wpm.PointCost(points, metric=kind).matrix()
    cells = cost.output_cells()
    assert cells[0][1] == 1 and cells[-1] == (0.0, 37)
    order, before = np.arange(37), [(0, 37)]
    if kind != "graph":
        order = spatial.cKDTree(cost._outputs).indices
    for diameter, number in cells:
        cuts = [place * 37 // number for place in range(number + 1)]
        parts = list(itertools.pairwise(cuts))
        for begin, end in parts:
            held = order[begin:end]
            assert apart[np.ix_(held, held)].max(initial=0) <= diameter * (1 + 1e-12)
            assert any(a <= begin and end <= b for a, b in before)
        before = parts


def test_a_mean_has_the_least_bound_and_keeps_it():
    h = PLACES[:, 0]
    users, misses = USERS[:2], 0.0
    for draws, chance in outcomes(LINEAR, users):
        found = estimates.estimate_mean(draws, LINEAR, h, 0.5)
        assert found.value == pytest.approx(np.mean(found.weights[draws]))
        misses += chance * (
            abs(found.value - users.mean(axis=0) @ h) > found.error_bound
        )
    assert misses <= 0.5
    for count in (10, 10**4, 10**7):
        found = estimates.estimate_mean(np.zeros(count, dtype=int), LINEAR, h)
        rate = np.sqrt(np.log(2 / 0.05) / (2 * count))
        # The same bound of others: a number alone, the values, the debiased values.
        inverse = np.linalg.lstsq(CHANNEL, h, rcond=None)[0]
        for other in (np.full(6, h.mean()), h, 1.5 * h, inverse):
            bias = np.abs(CHANNEL @ other - h).max()
            assert (
                found.error_bound <= (bias + rate * np.ptp(other)) * (1 + 1e-6) + 1e-9
            )
        bias = np.abs(CHANNEL @ found.weights - h).max()
        assert found.error_bound >= bias + rate * np.ptp(found.weights)


def test_a_number_has_no_error():
    found = estimates.estimate_mean([1, 2], LINEAR, np.full(6, 7.0))
    assert found.value == pytest.approx(7) and found.error_bound < 1e-6


def test_the_likeliest_population_is_the_optimum(monkeypatch):
    """By a program of SciPy; and early, where the fit is as good as the truth's."""
    generator = np.random.default_rng(1)
    draws = generator.choice(6, 300, p=USERS.mean(axis=0) @ CHANNEL)
    shares = np.bincount(draws, minlength=6) / 300

    def surprise(w):
        return -float(shares @ np.log(np.maximum(w @ CHANNEL, 1e-300)))

    best = optimize.minimize(
        surprise,
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    found = estimates.likeliest_population(draws, LINEAR)
    floor = float(-shares @ np.log(np.maximum(shares, 1e-300)))
    assert found.sum() == pytest.approx(1) and (found >= 0).all()
    assert 300 * (surprise(found) - floor) <= 2.5
    monkeypatch.setattr(estimates, "_MOST_STEPS", 10**5)
    monkeypatch.setattr(np, "count_nonzero", lambda _: 1)  # Never enough.
    later = estimates.likeliest_population(draws, LINEAR)
    assert surprise(later) <= best.fun + 1e-7


@pytest.mark.nightly
def test_films(tmp_path):
    experiments.write_films(tmp_path, users=40, films=80)
    films = experiments.read_films(tmp_path)
    assert films.ratings.shape == (40, 80) and films.genres.shape == (80, 19)
    assert (np.unique(films.ratings) == np.arange(6)).all()
    task = experiments.make_task(films, 0, candidates=8, size=5)
    assert task.cost.shape == (64, 8) and task.genre_films.shape == (19, 8)
    low, high = (experiments.hit_rates(task, epsilon) for epsilon in (0.2, 8.0))
    assert set(low) == {"WPM", "WPM, Alg. 1", "KL by genre", "exponential"}
    for name in ("WPM", "WPM, Alg. 1"):
        assert high[name][0] > 1.1 * low[name][0]
        assert 0 < high[name][1] < 0.2
    assert high["WPM, Alg. 1"][0] == pytest.approx(high["WPM"][0], rel=0.1)


@pytest.mark.nightly
def test_ring(capsys):
    experiments.run_ring(5.0)
    rows = capsys.readouterr().out.splitlines()
    means = [float(row[14:].split()[0]) for row in rows[1:5]]
    assert means[0] < 0.6 * means[2] < 0.6 * means[3]


@pytest.mark.nightly
def test_made_up_data_go_through(tmp_path, capsys, monkeypatch):
    """Figures 2 to 4 in little, with progress and a limit for what is learned."""
    matplotlib.use("Agg")
    little = {"GRID_EPSILONS": (4.0,), "GRID": 6, "EPSILONS": (2.0,), "SCALES": 2}
    for name, value in little.items():
        monkeypatch.setattr(experiments, name, value)
    checkins, maps = tmp_path / "checkins.txt", tmp_path / "maps.png"
    experiments.write_checkins(checkins, users=12)
    experiments.run_gowalla(
        checkins, tmp_path / "errors.png", 0, 2, learn_rounds=2, heat_map=maps
    )
    experiments.write_films(tmp_path, users=30, films=60)
    experiments.run_movielens(tmp_path, tmp_path / "hits.png", 0)
    captured = capsys.readouterr()
    assert maps.stat().st_size > 1000
    assert "WPM, learned" in captured.out and "exponential" in captured.out
    assert "learning" in captured.err and "movielens: ε = 2" in captured.err


def test_a_population_is_found_from_linear_draws(capsys, monkeypatch):
    monkeypatch.setattr(experiments, "GRID", 6)
    experiments.run_population((5_000,), (4.0,))
    row = capsys.readouterr().out.splitlines()[-1].split()
    average, bound, bias, other, likeliest = map(float, row[2:])
    assert average <= bound and bias <= other
    assert likeliest < 0.7 * average
