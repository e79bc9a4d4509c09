"""Two laws on the same outputs: what a mechanism is to an accountant."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import whole_laws

DominatingPair = dominating_pair.DominatingPair
Profile = profile.Profile


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two finite measures, by the loss ln(p / q) of every output.

    Attributes:
        losses: (n,) losses, in nats, in any order.
        p: (n,) masses with the record.
        q: (n,) masses without it. Where losses are large they may be less than any
            float; nothing that is asked of P's side needs them.
        over: P's mass of an infinite loss.
        under: Q's mass of one where P and Q are exchanged.
        bound: Which side the pair certifies.
        error: Both masses are those of a bound within a factor of e^±error,
        shift: and losses within so many nats.
        ledger: What the masses must sum to.
        closeness: How close both laws are to those of the bound.

    Raises:
        MassError: If they do not, within the error.
    """

    losses: FloatArray
    p: FloatArray
    q: FloatArray
    over: float
    under: float
    bound: Bound
    error: float
    shift: float
    ledger: conservation.Ledger
    closeness: whole_laws.Closeness = whole_laws.NONE

    def __post_init__(self) -> None:
        is_upper = self.bound is Bound.UPPER
        sinks = (self.over, self.under) if is_upper else None
        if is_upper:
            conservation.check_sinks(self.over, self.under, self.ledger)
        conservation.check_law(
            self.losses, (self.p, self.q), sinks, self.ledger, self.error
        )

    def profile(self, direction: Direction) -> Profile:
        """Returns the privacy profile in one direction."""
        each = self if direction is Direction.REMOVE else self.swapped()
        sink = each.over
        kept = each.p > 0
        if self.bound is Bound.UPPER and not kept.all():
            sink += each.p.size * floats.RARE
        return Profile.of(
            each.losses[kept],
            each.p[kept],
            sink,
            self.bound,
            self.error,
            self.shift,
            profile.Laws(each.q[kept], self.closeness),
        )

    def swapped(self) -> "Pair":
        """Returns the pair with P and Q exchanged."""
        return dataclasses.replace(
            self,
            losses=-self.losses,
            p=self.q,
            q=self.p,
            over=self.under,
            under=self.over,
            ledger=self.ledger.swapped(),
        )

    def distance(self) -> float:
        """Returns how far Q's middle loss is from P's, over the width of P's."""
        if not self.losses.size:
            return 0.0
        order = np.argsort(self.losses, kind="stable")
        losses = self.losses[order]
        low, middle, high = sums.quantiles(losses, self.p[order])
        _, other, _ = sums.quantiles(losses, self.q[order])
        apart, width = abs(middle - other), (high - low) / 2
        return apart / width if width else math.inf if apart else 0.0

    def dominating_pair(self) -> DominatingPair:
        """Returns the pair by its ratios, those that fit a float."""
        order = np.argsort(self.losses, kind="stable")
        losses, p, q = self.losses[order], self.p[order], self.q[order]
        kept = (np.abs(losses) <= floats.LARGEST_LOSS) & (p >= floats.RARE)
        kept &= q >= floats.RARE
        over, under = self.over, self.under
        if not kept.any():
            return dominating_pair.trivial_pair(self.bound)
        if self.bound is Bound.UPPER:
            over += float((p[~kept] + floats.RARE).sum()) * (1 + 1e-9)
            under += float((q[~kept] + floats.RARE).sum()) * (1 + 1e-9)
        found = DominatingPair(
            np.exp(losses[kept]),
            q[kept],
            min(over, 1.0),
            min(under, 1.0),
            self.bound,
            self.error,
            self.shift + 4 * floats.UNIT_ROUNDOFF,
        )
        claimed = self.closeness.rounded(
            8 * floats.UNIT_ROUNDOFF * (1 + float(np.abs(losses[kept]).max()))
        )
        if self.bound is Bound.LOWER:
            claimed = claimed.without(float(np.maximum(p, q)[~kept].sum()))
        return found.as_close_as(claimed)
