"""Events that dp_accounting does not have."""

import attr
from dp_accounting import dp_event


@attr.s(frozen=True, slots=True, auto_attribs=True)
class RandomAllocationEvent(dp_event.DpEvent):
    """Represents steps in a few of which, chosen at random, each record takes part.

    For every record, independently of all others, a set of `num_selected` of the
    `num_steps` steps is drawn uniformly at random. Each step runs `event` on the
    records that drew it, and may depend on the outputs of the steps before. With
    `num_selected` = 1 these are balls-and-bins batches. The draws are secret, and
    all outputs are released.

    A run without the record has the outputs' law Q^t, a run with it the mixture,
    over the sets, of the laws with P at the steps of the set and Q elsewhere,
    (P, Q) the dominating pair of `event`. One epoch is one event; compose it once
    for each epoch.

    Source: https://arxiv.org/abs/2602.17284, section 2.

    Attributes:
        event: What each step runs.
        num_selected: In how many steps each record takes part, k ≥ 1.
        num_steps: The number of steps, t ≥ k.
    """

    event: dp_event.DpEvent
    num_selected: int
    num_steps: int
