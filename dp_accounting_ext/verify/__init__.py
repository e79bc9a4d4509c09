"""A second opinion: ε of what an accountant composed, by arithmetic of its own.

    accountant = dp_accounting_ext.PLDAccountant().compose(event)
    verify.verify_epsilon(accountant, 1e-6).verdict  # "confirmed"

The ledger of the accountant is read anew, and what it reveals is computed in ball
arithmetic: every number is an interval that is certain to hold it. The result is a
bracket on ε that owes nothing to the accountant's.

*Shared* with the rest of the package are the classes of events, and nothing else: no
reader, no theorem in code, no lattice, no float that decides. The accountant is asked
for its events, its neighboring relation and its bounds. *Assumed* is that Arb, as
python-flint hands it out, computes balls that hold the truth; and what the events say.

It needs the extra `verify`, which is python-flint.
"""

from dp_accounting_ext.verify.verification import Verdict
from dp_accounting_ext.verify.verification import Verification
from dp_accounting_ext.verify.verification import verify_epsilon

__all__ = ["Verdict", "Verification", "verify_epsilon"]
__dir__ = __all__.copy
