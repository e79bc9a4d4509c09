"""A private place for each of 1000 phones of a made-up city, and the map of them.

    python docs/examples/private_places.py [--users 1000] [--picture city.png]

Each phone has a trace of latitudes and longitudes. It is binned to the nearest of 1500
public places, and one place is released under ε, for whoever changes a whole trace:
the Wasserstein projection mechanism with distances in kilometres. The map of the draws
shows where people are, and no trace leaves its phone.
"""

import argparse
import pathlib

import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

CENTRE = np.array([48.86, 2.35])
# Kilometres of a degree of latitude and of one of longitude, there.
SCALE = np.array([111.2, 73.2])


def make_city(generator, users, places=1500, fixes=40):
    """Returns (places, 2) public places, and a trace of (fixes, 2) for each user."""
    kilometres = 4 * generator.normal(size=(places, 2))
    city = CENTRE + kilometres / SCALE
    traces = []
    for _ in range(users):
        home, work = city[generator.integers(0, places, 2)]
        at_home = generator.random((fixes, 1)) < 0.6
        noise = 0.15 * generator.normal(size=(fixes, 2)) / SCALE
        traces.append(np.where(at_home, home, work) + noise)
    return city, traces


def main(arguments=None):
    """Makes the city, draws a place for each phone, and prints what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--seed", type=int, help="of draws: for tests alone")
    options = parser.parse_args(arguments)

    city, traces = make_city(np.random.default_rng(0), options.users)

    # The five lines.
    mechanism = wpm.from_points(city, options.epsilon, metric="haversine")
    counts = [wpm.counts_at(city, trace, metric="haversine") for trace in traces]
    places = mechanism.sample(np.array(counts), rng=options.seed)
    relation = ext.PLDAccountant().neighboring_relation.REPLACE_ONE
    accountant = ext.PLDAccountant(relation).compose(mechanism.dp_event)

    before = np.mean([count / count.sum() for count in counts], axis=0)
    after = np.bincount(places, minlength=len(city)) / options.users
    print(f"{options.users} places released, one each, of {len(city)}")
    print(f"a draw is {options.epsilon:g}-private; one more for the same phone costs")
    print(f"as much again: ε of one at δ = 1e-6: {accountant.get_epsilon(1e-6):.4f}")
    print(f"centre before: {before @ city}, after: {after @ city}")
    if options.picture:
        draw(city, before, after, options)


def draw(city, before, after, options):
    """Draws the map before and after."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 5), layout="constrained")
    titles = (
        "before: where the phones are",
        f"after: one draw each, ε = {options.epsilon:g}",
    )
    for shown, title, shares in zip(axes, titles, (before, after), strict=True):
        shown.scatter(*city.T[::-1], s=2, color="lightgrey")
        shown.scatter(*city.T[::-1], s=3e4 * shares / len(city) * 30, alpha=0.5)
        shown.set(title=title, xlabel="longitude", ylabel="latitude")
    figure.savefig(options.picture, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
