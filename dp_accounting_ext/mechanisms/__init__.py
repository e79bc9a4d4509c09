"""What can be composed: parameters in, dominating pairs out when they are asked for.

The names here are those from which `PLDAccountant.register` builds.
"""

from dp_accounting_ext.mechanisms.additive_noise import Gaussian
from dp_accounting_ext.mechanisms.additive_noise import GaussianMixture
from dp_accounting_ext.mechanisms.additive_noise import LaplaceMixture
from dp_accounting_ext.mechanisms.batch_mechanisms import Answer
from dp_accounting_ext.mechanisms.batch_mechanisms import NeighboringBatches
from dp_accounting_ext.mechanisms.batch_mechanisms import Noise
from dp_accounting_ext.mechanisms.batch_mechanisms import WithoutNoise
from dp_accounting_ext.mechanisms.batches import Coupled
from dp_accounting_ext.mechanisms.batches import on_batch_laws
from dp_accounting_ext.mechanisms.batches import on_batches
from dp_accounting_ext.mechanisms.chained import ChainedSplit
from dp_accounting_ext.mechanisms.compositions import NO_OP
from dp_accounting_ext.mechanisms.compositions import compose
from dp_accounting_ext.mechanisms.discrete_outputs import PrivacyParameters
from dp_accounting_ext.mechanisms.interface import Mechanism
from dp_accounting_ext.mechanisms.interface import OnePairMechanism
from dp_accounting_ext.mechanisms.known_bounds import KnownPairs
from dp_accounting_ext.mechanisms.known_bounds import NonPrivate
from dp_accounting_ext.mechanisms.renyi_bounded import RenyiBounded
from dp_accounting_ext.mechanisms.sampling import FixedSize
from dp_accounting_ext.mechanisms.sampling import Poisson
from dp_accounting_ext.mechanisms.sampling import Scheme
from dp_accounting_ext.mechanisms.subsampled import substituted_sample

__all__ = [
    "NO_OP",
    "Answer",
    "ChainedSplit",
    "Coupled",
    "FixedSize",
    "Gaussian",
    "GaussianMixture",
    "KnownPairs",
    "LaplaceMixture",
    "Mechanism",
    "NeighboringBatches",
    "Noise",
    "NonPrivate",
    "OnePairMechanism",
    "Poisson",
    "PrivacyParameters",
    "RenyiBounded",
    "Scheme",
    "WithoutNoise",
    "compose",
    "on_batch_laws",
    "on_batches",
    "substituted_sample",
]
__dir__ = __all__.copy
