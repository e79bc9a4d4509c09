"""Correlated noise: matrix mechanisms under six ways of drawing batches.

Nothing outside of this folder knows how it accounts for them. Its events are registered
as those of any other package are, when one of its modules is first imported.

    events               what ran, in six classes
    readings             from an event to a mechanism
    strategies           checks of strategy matrices
    runs                 a mechanism for each way of drawing batches
    chains               their dominating pairs, by Gaussian Markov chains
    sampling             brackets that hold with probability 1 − α
"""

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import readings

for _event, _reading in (
    (events.CyclicPoissonEvent, readings.cyclic_poisson),
    (events.MatrixAllocationEvent, readings.matrix_allocation),
    (events.MinSepSamplingEvent, readings.min_sep_sampling),
    (events.PoissonMatrixEvent, readings.poisson_matrix),
    (events.SelectedStepsMatrixEvent, readings.selected_steps_matrix),
    (events.WindowedAllocationEvent, readings.windowed_allocation),
):
    pld_accountant.PLDAccountant.register(_event, _reading)
