"""A second opinion: ε of what an accountant composed, by computations of its own.

    accountant = dp_accounting_ext.PLDAccountant().compose(event)
    verify.verify_epsilon(accountant, 1e-6).verdict  # "confirmed"

The ledger of the accountant is read anew, and its privacy loss is computed in ball
arithmetic: every number is an interval that certainly contains the true value. The
result is a bracket on ε that is independent of the accountant's. Where there is no
theorem for it, outputs are drawn from the definitions of the events, and give a lower
bound that holds with probability 1 − 1e-6.

*Shared* with the rest of the package are the classes of events, and nothing else: no
reader, no implementation of a theorem, no lattice, and no decision by floats. Of the
accountant only its events, its neighboring relation and its bounds are used. *Assumed*
is that Arb, through python-flint, computes balls that contain the true values, that the
events describe what ran, and, of draws, that NumPy's generator is random.

It needs the extra `verify`, which is python-flint.
"""

from dp_accounting_ext.verify.verification import Verdict
from dp_accounting_ext.verify.verification import Verification
from dp_accounting_ext.verify.verification import verify_epsilon

__all__ = ["Verdict", "Verification", "verify_epsilon"]
__dir__ = __all__.copy
