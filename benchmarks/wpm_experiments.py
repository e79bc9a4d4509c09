"""The experiments of the Wasserstein projection's paper, as tables and pictures.

    python benchmarks/wpm_experiments.py ring
    python benchmarks/wpm_experiments.py population
    python benchmarks/wpm_experiments.py movielens ml-100k/ [--picture hits.png]
    python benchmarks/wpm_experiments.py gowalla loc-gowalla_totalCheckins.txt.gz \
        [--picture errors.png] [--heat-map maps.png] [--learn-rounds 40]

Without a path, movielens and gowalla make small data of the same shape themselves.

The data are not shipped, as their licences forbid it. MovieLens-100K is at
https://grouplens.org/datasets/movielens/100k/ (give the directory that holds `u.data`
and `u.item`), Gowalla at https://snap.stanford.edu/data/loc-Gowalla.html. Pictures
need matplotlib.

Source: https://arxiv.org/abs/2605.10015, sections 5.1 and 5.2, Appendices M and N.
"""

import argparse
import dataclasses
import datetime
import functools
import gzip
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from papers import picture as drawing
from papers import ring as projection

from dp_accounting_ext import wpm
from dp_accounting_ext.common_types import FloatArray

EPSILONS = (0.2, 0.5, 1.0, 2.0, 3.0, 4.0)
SCALES = 7

GRID = 20
GRID_EPSILONS = (0.5, 1.0, 2.0, 4.0)
# Austin, Texas: south, north, west, east. The paper does not say where it cut.
AUSTIN = (30.15, 30.45, -97.9, -97.6)
FEWEST_CHECKINS = 10
NUM_USERS = 500
# λ of Algorithm 1, in cosine distances and in sides of the map.
REGULARIZATION = 0.01

LOOKS = (
    drawing.ALLOCATION,
    drawing.POISSON,
    drawing.RENYI,
    drawing.PLAIN,
    {"color": drawing.PURPLE, "ls": "-"},
    {"color": drawing.ORANGE, "ls": "--"},
)


BEGIN = time.process_time()


def progress(what: str) -> None:
    """Tells on standard error what is done, and after how much CPU time."""
    print(f"[{time.process_time() - BEGIN:6.1f} s] {what}", file=sys.stderr, flush=True)


# The ring.


def run_ring(epsilon: float) -> None:
    cost = projection.ring_cost()
    print(f"Ring of 30, ε = {epsilon:g}, p = 2: W_2 from the input, mean of 50 inputs")
    users = np.random.default_rng(0).dirichlet(
        np.full(projection.SIZE, projection.CONCENTRATION), size=50
    )
    mechanisms = {
        "WPM, uniform": wpm.WassersteinProjectionMechanism(cost, epsilon),
        "WPM, minimax": wpm.WassersteinProjectionMechanism(cost, epsilon, "minimax"),
        "KL projection": wpm.KLProjectionMechanism(cost, epsilon),
        "exponential": wpm.ExponentialMechanism(cost, epsilon),
    }
    for name, mechanism in mechanisms.items():
        reached = [
            projection.reaching_cost(user, cost, law) ** 0.5
            for user, law in zip(users, mechanism.project(users), strict=True)
        ]
        worst = mechanism.worst_case_cost**0.5
        print(f"{name:<14}{np.mean(reached):>8.3f}   of the worst point {worst:.3f}")


# MovieLens.


@dataclasses.dataclass(frozen=True)
class Films:
    """Ratings, a row a user and a column a film, zero for none; genres of films."""

    ratings: FloatArray
    genres: FloatArray


def read_films(directory: pathlib.Path) -> Films:
    """Reads `u.data` and `u.item` of MovieLens-100K."""
    table = np.loadtxt(directory / "u.data", dtype=np.int64, usecols=(0, 1, 2))
    lines = (directory / "u.item").read_text(encoding="latin-1").splitlines()
    genres = np.array([line.split("|")[5:] for line in lines], dtype=np.float64)
    ratings = np.zeros((table[:, 0].max(), len(genres)))
    ratings[table[:, 0] - 1, table[:, 1] - 1] = table[:, 2]
    return Films(ratings, genres)


@dataclasses.dataclass(frozen=True)
class Task:
    """A split of the films, and inputs of the users with any mass.

    Attributes:
        cost: (train films, candidates) cosine distances of embeddings.
        inputs: Validation and test users' distributions of train films.
        genre_inputs: The same of genres.
        hits: Whether they rate a candidate at four or more.
        genre_films: (genres, candidates) probabilities of films given a genre.
    """

    cost: FloatArray
    inputs: tuple[FloatArray, FloatArray]
    genre_inputs: tuple[FloatArray, FloatArray]
    hits: tuple[FloatArray, FloatArray]
    genre_films: FloatArray


def make_task(films: Films, seed: int, candidates: int = 250, size: int = 64) -> Task:
    """Returns the split of the paper's Appendix N."""
    generator = np.random.default_rng(seed)
    users, count = films.ratings.shape
    order = generator.permutation(count)
    train, test = order[: int(0.8 * count)], order[int(0.8 * count) :]
    people = generator.permutation(users)
    groups = people[: int(0.8 * users)], people[int(0.8 * users) :]
    public = films.ratings[groups[0]]
    popular = np.argsort(-(public[:, test] > 0).sum(axis=0), kind="stable")
    chosen = test[popular[:candidates]]
    _, strengths, axes = np.linalg.svd(public, full_matrices=False)
    # Films that no public user rated have no embedding; a common one stands in.
    vectors = (strengths[:size, np.newaxis] * axes[:size]).T
    vectors[np.abs(vectors).sum(axis=1) < 1e-9] = vectors.mean(axis=0)
    cost = wpm.PointCost(vectors[train], vectors[chosen], metric="cosine").matrix()
    kept = [group[films.ratings[group][:, train].sum(axis=1) > 0] for group in groups]
    inputs, genre_inputs, hits = [], [], []
    for group in kept:
        inputs.append(normalised(films.ratings[group][:, train]))
        shares = films.genres[train] / np.maximum(
            films.genres[train].sum(axis=1, keepdims=True), 1
        )
        genre_inputs.append(normalised(inputs[-1] @ shares))
        hits.append((films.ratings[group][:, chosen] >= 4).astype(float))
    members = films.genres[chosen].T
    members[members.sum(axis=1) == 0] = 1.0
    return Task(
        cost,
        (inputs[0], inputs[1]),
        (genre_inputs[0], genre_inputs[1]),
        (hits[0], hits[1]),
        normalised(members),
    )


def normalised(rows: FloatArray) -> FloatArray:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def hit_rates(
    task: Task, epsilon: float, regularization: float = REGULARIZATION
) -> dict[str, tuple[float, float]]:
    """Returns hit rates of test users, scales chosen on validation users.

    A rate is the mean probability of a hit, from laws and not from draws; beside it is
    its standard error over the test users.
    """
    candidates, genres = task.cost.shape[1], task.genre_films.shape[0]

    def projected(scale: float, part: int, strength: float | None = None) -> FloatArray:
        measure = np.full(candidates, scale / candidates)
        mechanism = wpm.WassersteinProjectionMechanism(
            task.cost, epsilon, measure, regularization=strength
        )
        return mechanism.project(task.inputs[part])

    def by_genre(scale: float, part: int) -> FloatArray:
        measure = np.full(genres, scale / genres)
        mechanism = wpm.KLProjectionMechanism(
            np.ones((genres, genres)), epsilon, measure
        )
        return mechanism.project(task.genre_inputs[part]) @ task.genre_films

    scales = np.exp(np.linspace(-0.98, 0.98, SCALES) * epsilon / 2)
    laws = {}
    quick = functools.partial(projected, strength=regularization)
    ways = ("WPM", projected), ("WPM, Alg. 1", quick), ("KL by genre", by_genre)
    for name, make in ways:
        tuned = [float((make(s, 0) * task.hits[0]).sum(axis=1).mean()) for s in scales]
        laws[name] = make(float(scales[int(np.argmax(tuned))]), 1)
    exponential = wpm.ExponentialMechanism(task.cost, epsilon)
    laws["exponential"] = exponential.project(task.inputs[1])
    rates = {}
    for name, law in laws.items():
        each = (np.asarray(law) * task.hits[1]).sum(axis=1)
        rates[name] = float(each.mean()), float(each.std() / np.sqrt(each.size))
    return rates


def run_movielens(
    path: pathlib.Path,
    picture: pathlib.Path | None,
    seed: int,
    regularization: float = REGULARIZATION,
) -> None:
    task = make_task(read_films(path), seed)
    popular = int(np.argmax(task.hits[0].mean(axis=0)))
    print(f"MovieLens-100K, seed {seed}: hit rate of one draw, and standard error")
    print(
        f"the film most public users like, always, at ε = 0: {mean_hit(task, popular)}"
    )
    print("so a hit rate tells how far mechanisms keep tastes, not how good they are")
    names: list[str] = []
    table = []
    for epsilon in EPSILONS:
        rates = hit_rates(task, epsilon, regularization)
        if not names:
            names = list(rates)
            print(f"{'ε':>5}" + "".join(f"{name:>16}" for name in names))
        table.append([rates[name] for name in names])
        progress(f"movielens: ε = {epsilon:g}")
        print(f"{epsilon:>5g}" + shown(table[-1]), flush=True)
    if picture:
        draw_lines(names, EPSILONS, np.array(table), "hit rate of one draw", picture)


def mean_hit(task: Task, candidate: int) -> str:
    return f"{task.hits[1][:, candidate].mean():.3f}"


def shown(values: list[tuple[float, float]]) -> str:
    return "".join(f"{mean:>9.4f} ±{error:.4f}" for mean, error in values)


# Gowalla.


def read_checkins(path: pathlib.Path) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Returns users and cells of check-ins in Austin, places in [0, 1)²."""
    south, north, west, east = AUSTIN
    users, places = [], []
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as lines:
        for line in lines:
            user, when, latitude, longitude, _ = line.split("\t")
            datetime.datetime.fromisoformat(when.rstrip("Z"))
            y = (float(latitude) - south) / (north - south)
            x = (float(longitude) - west) / (east - west)
            if 0 <= x < 1 and 0 <= y < 1:
                users.append(int(user))
                places.append((x, y))
    return np.array(users), np.array(places).reshape(-1, 2)


def make_visitors(
    users: npt.NDArray[np.int64], places: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Returns distributions over cells of protected users, and of public ones."""
    cells = (places * GRID).astype(np.int64)
    flat = cells[:, 1] * GRID + cells[:, 0]
    names, rows = np.unique(users, return_inverse=True)
    counts = np.zeros((names.size, GRID * GRID))
    np.add.at(counts, (rows, flat), 1)
    regular = counts[counts.sum(axis=1) >= FEWEST_CHECKINS]
    order = np.random.default_rng(seed).permutation(len(regular))
    split = min(NUM_USERS, len(regular) // 2)
    laws = normalised(regular[order])
    return laws[:split], laws[split : 2 * split]


def run_gowalla(
    path: pathlib.Path,
    picture: pathlib.Path | None,
    seed: int,
    runs: int = 5,
    learn_rounds: int = 40,
    heat_map: pathlib.Path | None = None,
    regularization: float = REGULARIZATION,
) -> None:
    users, public = make_visitors(*read_checkins(path), seed)
    side = (np.arange(GRID) + 0.5) / GRID
    cells = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    cost = wpm.PointCost(cells)
    truth, matrix = users.mean(axis=0), cost.matrix()
    print(f"Gowalla, Austin, {len(users)} users, one draw each: W_1 of the estimate")
    print("from the users' mean, in sides of the map; mean and deviation of runs")
    table: list[list[tuple[float, float]]] = []
    for epsilon in GRID_EPSILONS:
        mechanisms = grid_mechanisms(
            cost, epsilon, public, learn_rounds, regularization
        )
        if not table:
            print(f"{'ε':>5}" + "".join(f"{name:>16}" for name in mechanisms))
        found = []
        for name, mechanism in mechanisms.items():
            errors = estimate_errors(mechanism, users, truth, matrix, seed, runs)
            found.append((float(np.mean(errors)), float(np.std(errors))))
            progress(f"gowalla: ε = {epsilon:g}, {name}")
        table.append(found)
        print(f"{epsilon:>5g}" + shown(found), flush=True)
        if heat_map and epsilon == GRID_EPSILONS[-1]:
            draw_maps(mechanisms, users, seed, heat_map)
    if picture:
        names = list(mechanisms)
        draw_lines(names, GRID_EPSILONS, np.array(table), "W₁ of the estimate", picture)


def grid_mechanisms(
    cost: wpm.TransportCost,
    epsilon: float,
    public: FloatArray,
    learn_rounds: int,
    regularization: float,
) -> dict[str, Any]:
    """Returns the mechanisms that are compared; a learned one if it has rounds."""
    quick = wpm.WassersteinProjectionMechanism(
        cost, epsilon, regularization=regularization
    )
    found: dict[str, Any] = {
        "WPM, uniform": wpm.WassersteinProjectionMechanism(cost, epsilon),
        "WPM, Alg. 1": quick,
        "linear": wpm.WassersteinProjectionMechanism(cost, epsilon, linear=True),
        "WPM, minimax": wpm.WassersteinProjectionMechanism(cost, epsilon, "minimax"),
    }
    progress(f"gowalla: ε = {epsilon:g}, minimax measure")
    if learn_rounds > 0:
        progress("learning")
        learned = wpm.learn_base_measure(
            cost,
            epsilon,
            public[:100],
            relative_gap=0.05,
            max_rounds=learn_rounds,
        )
        measure = learned.base_measure
        found["WPM, learned"] = wpm.WassersteinProjectionMechanism(
            cost, epsilon, measure
        )
    found["KL projection"] = wpm.KLProjectionMechanism(cost, epsilon)
    return found


def estimate_errors(
    mechanism: Any,
    users: FloatArray,
    truth: FloatArray,
    cost: FloatArray,
    seed: int,
    runs: int,
) -> list[float]:
    """Returns W_1 of estimates from draws, the laws computed once for all runs.

    The estimate is the average of the draws, and of linear ones the likeliest mean.
    """
    linear = getattr(mechanism, "is_linear", False)
    laws = np.asarray(mechanism.project(users))
    errors = []
    for run in range(runs):
        places = np.random.default_rng(seed + run).random((len(users), 1))
        draws = (np.cumsum(laws, axis=1) < places).sum(axis=1)
        draws = np.minimum(draws, truth.size - 1)
        if linear:
            estimate = wpm.likeliest_population(draws, mechanism)
        else:
            estimate = np.bincount(draws, minlength=truth.size) / len(users)
        errors.append(projection.reaching_cost(truth, cost, estimate / estimate.sum()))
    return errors


def draw_maps(
    mechanisms: dict[str, Any], users: FloatArray, seed: int, path: pathlib.Path
) -> None:
    """Draws the paper's Figure 4: mean and estimates; below, one user's laws."""
    from matplotlib import pyplot

    pictures = {"users' mean": users.mean(axis=0), "one user": users[0]}
    for name, mechanism in mechanisms.items():
        draws = mechanism.sample(users, rng=seed)
        pictures[f"estimate: {name}"] = np.bincount(draws, minlength=users.shape[1])
        pictures[f"one user: {name}"] = np.asarray(mechanism.project(users[0]))
    columns = len(mechanisms) + 1
    figure, axes = pyplot.subplots(
        2, columns, figsize=(3 * columns, 6.4), layout="constrained"
    )
    for place, (name, values) in enumerate(pictures.items()):
        shown = axes[place % 2, place // 2]
        shown.imshow(values.reshape(GRID, GRID), origin="lower", cmap="viridis")
        shown.set_title(name, fontsize=9)
        shown.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"wrote {path}")


# What a server may conclude.


def make_towns(seed: int, kinds: int = 60) -> FloatArray:
    """Returns (kinds, cells) distributions of kinds of people in a made-up city."""
    generator = np.random.default_rng(seed)
    side = (np.arange(GRID) + 0.5) / GRID
    cells = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    centres = generator.random((4, 2))
    homes = centres[generator.integers(0, 4, kinds)]
    homes = homes + 0.1 * generator.normal(size=(kinds, 2))
    works = centres[generator.integers(0, 4, kinds)]
    found = np.zeros((kinds, len(cells)))
    for row, home, work in zip(found, homes, works, strict=True):
        for place, share in ((home, 0.7), (work, 0.3)):
            row += (
                share
                * normalised(
                    np.exp(-((cells - place) ** 2).sum(axis=1)[np.newaxis] / 0.002)
                )[0]
            )
    return found


def run_population(
    counts: tuple[int, ...] = (500, 5_000, 50_000),
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0),
    seed: int = 0,
) -> None:
    side = (np.arange(GRID) + 0.5) / GRID
    cells = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    kinds = make_towns(seed)
    cost, generator = wpm.PointCost(cells), np.random.default_rng(seed)
    matrix, truth = cost.matrix(), kinds.mean(axis=0)
    print(f"A made-up city of {len(cells)} cells, seed {seed}: W_1 of estimates from")
    print("the mean user, in sides of the map, and what is certified with 95 %")
    heads = "average", "bound", "debiased: bias", "bound", "likeliest"
    print(f"{'ε':>5}{'users':>8}" + "".join(f"{head:>18}" for head in heads))
    for epsilon in epsilons:
        projected = wpm.WassersteinProjectionMechanism(cost, epsilon)
        linear = wpm.WassersteinProjectionMechanism(cost, epsilon, linear=True)
        laws = [np.asarray(each.project(kinds)) for each in (projected, linear)]
        for count in counts:
            means = [law.mean(axis=0) / law.mean(axis=0).sum() for law in laws]
            draws = [generator.choice(len(cells), count, p=mean) for mean in means]
            average = wpm.average_of_draws(draws[0], projected)
            debiased = wpm.debiased_average(draws[1], linear)
            likeliest = wpm.likeliest_population(draws[1], linear)
            found = [
                projection.reaching_cost(truth, matrix, average.distribution),
                average.error_bound,
                debiased.bias_bound,
                debiased.error_bound,
                projection.reaching_cost(truth, matrix, likeliest),
            ]
            values = "".join(f"{value:>18.3f}" for value in found)
            print(f"{epsilon:>5g}{count:>8}{values}", flush=True)


# Data of the real files' shape, for who has none.


def write_films(directory: pathlib.Path, users: int = 200, films: int = 400) -> None:
    """Writes ratings of users with two tastes, in the files of MovieLens-100K."""
    generator = np.random.default_rng(0)
    lines = []
    for user in range(users):
        for film in generator.choice(films, 60, replace=False):
            likes = (user + film) % 2 == 0
            rating = generator.choice([4, 5] if likes else [1, 2, 3])
            lines.append(f"{user + 1}\t{film + 1}\t{rating}\t881250949")
    (directory / "u.data").write_text("\n".join(lines))
    items = []
    for film in range(films):
        genres = "|".join(str(int(genre == film % 4)) for genre in range(19))
        items.append(f"{film + 1}|Film {film}|01-Jan-1995||http://a|{genres}")
    (directory / "u.item").write_text("\n".join(items), encoding="latin-1")


def write_checkins(path: pathlib.Path, users: int = 120, visits: int = 30) -> None:
    """Writes check-ins around homes and three centres of a town."""
    generator = np.random.default_rng(0)
    south, north, west, east = AUSTIN
    centres = np.array([[0.5, 0.5], [0.3, 0.7], [0.7, 0.4]])
    lines = []
    for user in range(users):
        anchors = np.vstack([centres, generator.random((2, 2))])
        chosen = generator.choice(5, visits, p=[0.2, 0.1, 0.1, 0.4, 0.2])
        places = anchors[chosen] + 0.03 * generator.normal(size=(visits, 2))
        for y, x in np.clip(places, 0, 0.999):
            place = f"{south + y * (north - south)}\t{west + x * (east - west)}\t7"
            lines.append(f"{user}\t2010-10-19T23:55:27Z\t{place}\n")
    path.write_text("".join(lines))


# Pictures.


def draw_lines(
    names: list[str],
    epsilons: tuple[float, ...],
    table: FloatArray,
    label: str,
    picture: pathlib.Path,
) -> None:
    curves = [
        drawing.Curve(name, epsilons, mean + error, mean - error, look)
        for name, (mean, error), look in zip(
            names, table.transpose(1, 2, 0), LOOKS, strict=False
        )
    ]
    panel = drawing.Panel("", "ε (nats)", label, curves, "", (0.0, None))
    save(drawing.Picture(label, [panel]), picture)


def save(picture: drawing.Picture, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.draw(picture, path)
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    jobs = parser.add_subparsers(dest="job", required=True)
    for name in ("ring", "population", "movielens", "gowalla"):
        job = jobs.add_parser(name)
        if name == "ring":
            job.add_argument("--epsilon", type=float, default=5.0)
        elif name == "population":
            job.add_argument("--seed", type=int, default=0)
        else:
            job.add_argument("--picture", type=pathlib.Path)
            job.add_argument("path", type=pathlib.Path, nargs="?")
            job.add_argument("--seed", type=int, default=0)
            job.add_argument("--regularization", type=float, default=REGULARIZATION)
        if name == "gowalla":
            job.add_argument("--heat-map", type=pathlib.Path)
            job.add_argument("--learn-rounds", type=int, default=40)
    options = parser.parse_args()
    if options.job == "ring":
        run_ring(options.epsilon)
        return
    if options.job == "population":
        run_population(seed=options.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.path or made_up(options.job, pathlib.Path(folder))
        if options.job == "movielens":
            run_movielens(path, options.picture, options.seed, options.regularization)
        else:
            run_gowalla(
                path,
                options.picture,
                options.seed,
                learn_rounds=options.learn_rounds,
                heat_map=options.heat_map,
                regularization=options.regularization,
            )


def made_up(job: str, folder: pathlib.Path) -> pathlib.Path:
    """Returns the path of made-up data."""
    print("made-up data: numbers below say nothing of the real ones")
    if job == "movielens":
        write_films(folder)
        return folder
    write_checkins(folder / "checkins.txt")
    return folder / "checkins.txt"


if __name__ == "__main__":
    main()
