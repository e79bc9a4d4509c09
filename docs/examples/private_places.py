"""A private place for each of 200 phones of a made-up city, and the map of them.

    python docs/examples/private_places.py [--users 200] [--linear] [--picture city.png]

Each phone has a trace of latitudes and longitudes. It is binned to the nearest of 1500
public places, and one place is released under ε, for whoever changes a whole trace:
the Wasserstein projection mechanism with distances in kilometres. The map of the draws
shows where people are, and no trace leaves its phone. With --linear a phone draws one
of its own places first, and the map is the likeliest population.
"""

import argparse
import pathlib
import sys

import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

CENTRE = np.array([48.86, 2.35])
# Kilometres of a degree of latitude and of one of longitude, there.
SCALE = np.array([111.2, 73.2])
# Kilometres north and east of the centre of where people live and work.
DISTRICTS = np.array([[4.0, -4.0], [-3.0, 5.0], [-4.0, -3.0]])


def make_city(generator, users, places=1500, fixes=40):
    """Returns (places, 2) public places, and a trace of (fixes, 2) for each user."""
    kilometres = 4 * generator.normal(size=(places, 2))
    city = CENTRE + kilometres / SCALE
    away = np.linalg.norm(kilometres[:, np.newaxis] - DISTRICTS, axis=2).min(axis=1)
    crowds = np.exp(-(away**2) / 2)
    traces = []
    for _ in range(users):
        home, work = city[generator.choice(places, 2, p=crowds / crowds.sum())]
        at_home = generator.random((fixes, 1)) < 0.6
        noise = 0.15 * generator.normal(size=(fixes, 2)) / SCALE
        traces.append(np.where(at_home, home, work) + noise)
    return city, traces


def parsed(arguments):
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--seed", type=int, help="of draws: for tests alone")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Makes the city, draws a place for each phone, and prints what is left."""
    options = parsed(arguments)
    city, traces = make_city(np.random.default_rng(0), options.users)

    mechanism = wpm.from_points(
        city, options.epsilon, metric="haversine", linear=options.linear
    )
    before, after = released(city, traces, mechanism, options.seed)
    relation = ext.PLDAccountant().neighboring_relation.REPLACE_ONE
    accountant = ext.PLDAccountant(relation).compose(mechanism.dp_event)

    expected = mechanism.expected_cost()
    print(f"{options.users} places released, one each, of {len(city)}")
    print(f"a draw is {options.epsilon:g}-private; one more for the same phone costs")
    print(f"as much again: ε of one at δ = 1e-6: {accountant.get_epsilon(1e-6):.4f}")
    print(f"a draw for a phone that stays in one place is {expected.average:.2f} km")
    print(f"away, the mean of all places, and {expected.worst:.2f} km at the worst;")
    print(f"no place is drawn with a probability above {expected.most_likely:.4f}")
    print(f"centre before: {before @ city}, after: {after @ city}")
    if options.picture:
        draw(city, before, after, options)


def released(city, traces, mechanism, seed):
    """Returns shares of the phones at each place before, and by their draws."""
    counts = [wpm.counts_at(city, trace, metric="haversine") for trace in traces]
    places = draw_all(mechanism, np.array(counts), seed)
    before = np.mean([count / count.sum() for count in counts], axis=0)
    if mechanism.is_linear:
        return before, wpm.likeliest_population(places, mechanism)
    return before, wpm.average_of_draws(places, mechanism).distribution


def draw_all(mechanism, counts, seed):
    """Draws for a hundred phones at a time, and says on standard error how far."""
    places = []
    for begin in range(0, len(counts), 100):
        part = counts[begin : begin + 100]
        # The same seed for each part would be the same randomness.
        places.append(
            mechanism.sample(part, rng=None if seed is None else seed + begin)
        )
        print(f"\rdrawn: {begin + len(part)} of {len(counts)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return np.concatenate(places)


def draw(city, before, after, options):
    """Draws the maps before and after side by side, with one legend."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, 2, figsize=(10, 5), layout="constrained", sharex=True, sharey=True
    )
    titles = (
        "before: where the phones are",
        f"after: one draw each, ε = {options.epsilon:g}",
    )
    latitudes, longitudes = city.T
    for shown, title, shares in zip(axes, titles, (before, after), strict=True):
        cells = shown.hexbin(
            longitudes,
            latitudes,
            C=100 * shares,
            reduce_C_function=np.sum,
            gridsize=16,
            cmap="YlGnBu",
            vmin=0,
            vmax=6,
        )
        shown.plot(
            longitudes, latitudes, ".", ms=2, color="grey", label="a public place"
        )
        shown.set(title=title, xlabel="longitude", ylabel="latitude")
        shown.set_aspect(SCALE[0] / SCALE[1])
    figure.colorbar(cells, ax=axes, label="% of the phones in a cell", extend="max")
    figure.legend(*shown.get_legend_handles_labels(), loc="outside lower center")
    figure.savefig(options.picture, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
