"""Correlated noise: matrix mechanisms under six ways of drawing batches.

Nothing outside of this folder knows how it accounts for them. Its events are registered
as those of any other package are, when one of its modules is first imported.

    events               what ran, in six classes
    readings             from an event to its strategy, noise and schedule
    strategies           checks of strategy matrices
    schedules            who may take part when, and what follows
    runs, bins           mechanisms
    chains               their dominating pairs, by Gaussian Markov chains
    sampling             brackets that hold with probability 1 − α
"""

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.correlated import readings

for _event in readings.READINGS:
    pld_accountant.PLDAccountant.register(_event, readings.read)
