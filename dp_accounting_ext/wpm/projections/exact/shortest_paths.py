"""The exact projection of small problems, by successive shortest paths.

All mass begins at its nearest outputs: no plan is cheaper, but bounds of the outputs
are broken. Then outputs that hold too much pass mass on, and after that outputs that
hold too little are given some, each along the cheapest chain of outputs that ends at
one with room, or with mass to spare. Cheapest chains leave a plan the cheapest of all
that break the bounds as it does; so the last one is the cheapest of all, and the
lengths of chains are its prices.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

# All tuning: each solution is proven by its prices, whatever these are.
# Less mass is not moved, and chains that are shorter by less, as a share of the
# largest cost, are not looked for: sums of costs that are equal but for rounding would
# make rings of chains. (Of grids of 16 to 100 places in degrees, 1e-14 makes some.)
_CRUMB, _SHORTER = 1e-15, 1e-13
_RELATIVE_GAP, _ROUNDING = 1e-11, 1e-14


class _Plan:
    """Represents what goes where, in Python's numbers: quicker than arrays, if few.

    Attributes:
        cost: (s, n) costs.
        served: For each output, what it holds of which inputs.
        held: (n,) what it holds in sum.
    """

    def __init__(self, masses: FloatArray, cost: FloatArray) -> None:
        self.cost: list[list[float]] = cost.tolist()
        self.served: list[dict[int, float]] = [{} for _ in range(cost.shape[1])]
        self.held = [0.0] * cost.shape[1]
        nearest = cost.argmin(axis=1).tolist()
        for place, (mass, output) in enumerate(
            zip(masses.tolist(), nearest, strict=True)
        ):
            self.served[output][place] = mass
            self.held[output] += mass

    def arcs(self) -> tuple[list[int], list[int]]:
        """Returns the outputs, rising, and the inputs that they serve."""
        outputs: list[int] = []
        inputs: list[int] = []
        for output, served in enumerate(self.served):
            for place, mass in served.items():
                if mass > _CRUMB:
                    outputs.append(output)
                    inputs.append(place)
        return outputs, inputs

    def server(self, source: int, target: int, most: float) -> tuple[float, int]:
        """Returns the most that an input can move at a cost, and which input that is.

        Zero where none can.
        """
        best = 0.0, 0
        for place, mass in self.served[source].items():
            if mass > best[0]:
                row = self.cost[place]
                if row[target] - row[source] <= most:
                    best = mass, place
        return best

    def move(self, place: int, source: int, target: int, mass: float) -> None:
        """Moves mass of an input from one output to another."""
        self.served[source][place] -= mass
        served = self.served[target]
        served[place] = served.get(place, 0.0) + mass
        self.held[source] -= mass
        self.held[target] += mass

    def value(self) -> float:
        """Returns what the plan costs."""
        return math.fsum(
            mass * self.cost[place][output]
            for output, served in enumerate(self.served)
            for place, mass in served.items()
        )


@dataclasses.dataclass(frozen=True)
class _Chains:
    """Cheapest chains of outputs to the nearest that can end one.

    Attributes:
        lengths: (n,) what a unit costs along the chain.
        following: (n,) the next output of the chain; −1 at its end.
        slack: By so much they may be longer than the cheapest.
    """

    lengths: FloatArray
    following: list[int]
    slack: float


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    most_rounds: int,
) -> solution.Solution:
    """Returns the exact projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.
        most_rounds: After so many searches for chains it gives up.

    Returns:
        A solution of one row; converged if its prices prove it.

    Raises:
        SolverError: If the rounds do not suffice, or a chain has no end.

    Source:
        R. Ahuja, T. Magnanti, J. Orlin, Network Flows (1993), section 9.7.
    """
    plan, largest = _Plan(masses, cost), float(cost.max())
    prices, rounds = np.zeros(cost.shape[1]), 0
    for giving in (False, True):
        while True:
            held = np.array(plan.held)
            above, below = held - polytope.lower, polytope.upper - held
            spare, lacking = (above, -above) if giving else (below, -below)
            needy = np.flatnonzero(lacking > _CRUMB)
            if not needy.size:
                break
            if rounds == most_rounds:
                raise linear_program.SolverError("Chains of outputs are too many.")
            rounds += 1
            moves = _moves(plan, cost)
            if not giving:
                moves = moves.T
            chains = _cheapest(moves, spare > _CRUMB, _SHORTER * largest)
            _pass_on(plan, chains, needy, lacking, spare, giving)
            prices = chains.lengths if giving else -chains.lengths
    value = plan.value()
    bound = duality.lower_bound(masses, prices, cost, polytope)
    proven = value - bound <= _RELATIVE_GAP * value + _ROUNDING * largest
    law = ldp_polytope.nearest(held, polytope)
    return solution.one_user(law, prices, value, rounds, proven)


def _moves(plan: _Plan, cost: FloatArray) -> FloatArray:
    """Returns the (n, n) least costs of moving a unit from one output to another.

    Of whatever input the first serves: infinite where it serves none.
    """
    outputs, inputs = map(np.array, plan.arcs())
    changes = cost[inputs] - cost[inputs, outputs][:, np.newaxis]
    starts = np.append(True, outputs[1:] != outputs[:-1]).nonzero()[0]
    moves = np.full((cost.shape[1], cost.shape[1]), np.inf)
    moves[outputs[starts]] = np.minimum.reduceat(changes, starts)
    return moves


def _cheapest(moves: FloatArray, ends: BoolArray, slack: float) -> _Chains:
    """Returns the cheapest chains, longer by an output at a time (Bellman and Ford).

    Args:
        moves: (n, n) costs of steps, from the output that is nearer to the end.
        ends: (n,) which outputs can end a chain.
        slack: What counts as nothing.
    """
    lengths = np.where(ends, 0.0, np.inf)
    following = np.full(lengths.size, -1)
    columns = np.arange(lengths.size)
    for _ in range(lengths.size):
        through = lengths[:, np.newaxis] + moves
        nearest = through.argmin(axis=0)
        found = through[nearest, columns]
        shorter = found < lengths - slack
        if not shorter.any():
            break
        lengths = np.where(shorter, found, lengths)
        following = np.where(shorter, nearest, following)
    if not float(lengths.max()) < np.inf:
        raise linear_program.SolverError("No chain of outputs ends.")
    return _Chains(lengths, following.tolist(), slack)


def _pass_on(
    plan: _Plan,
    chains: _Chains,
    needy: IndexArray,
    lacking: FloatArray,
    spare: FloatArray,
    giving: bool,
) -> None:
    """Moves along chains what outputs lack, or have too much.

    As much as there still is on all of a chain.
    """
    lengths, following = chains.lengths.tolist(), chains.following
    left = spare.tolist()
    for output, amount in zip(needy.tolist(), lacking[needy].tolist(), strict=True):
        steps: list[tuple[int, int, int]] = []
        place, next_one = output, following[output]
        while amount > _CRUMB and next_one >= 0:
            if len(steps) == len(following):
                raise linear_program.SolverError("A chain of outputs is a ring.")
            source, target = (next_one, place) if giving else (place, next_one)
            most = lengths[place] - lengths[next_one] + chains.slack
            # What it served may all have been moved along another chain.
            mass, server = plan.server(source, target, most)
            steps.append((server, source, target))
            amount = min(amount, mass)
            place, next_one = next_one, following[next_one]
        amount = min(amount, left[place])
        if amount > _CRUMB:
            left[place] -= amount
            for server, source, target in steps:
                plan.move(server, source, target, amount)
