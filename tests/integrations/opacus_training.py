"""What tests of Opacus share: data, training as its examples have it, and events."""

import math

import dp_accounting
import opacus
from opacus.utils import batch_memory_manager
import torch
from torch.utils import data

import dp_accounting_ext as ext
from dp_accounting_ext.integrations import opacus as certified

DELTA = 1e-5
GHOST = {"grad_sample_mode": "ghost"}
RECORDS, BATCH, STEPS = 640, 32, 20
STEP = dp_accounting.GaussianDpEvent(1.0)
# The probability that Opacus draws with is a multiple of 2**-24.
SAMPLED = dp_accounting.PoissonSampledDpEvent(-(-(2**24) // STEPS) / 2**24, STEP)
EPOCH = ext.RandomAllocationEvent(STEP, 1, STEPS)
REPLACED = dp_accounting.NeighboringRelation.REPLACE_ONE
DATASET = data.TensorDataset(
    torch.arange(3.0 * RECORDS).reshape(RECORDS, 3) % 7, torch.arange(RECORDS) % 2
)


def shuffled(**options):
    given = {"dataset": DATASET, "batch_size": BATCH, "shuffle": True} | options
    return data.DataLoader(**given)


def epsilon(event, count, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count).get_epsilon(DELTA)


def made_private(engine, module, optimizer, loader=None, *, clip=1.0, **options):
    return engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=shuffled() if loader is None else loader,
        **{"noise_multiplier": 1.0, "max_grad_norm": clip, **options},
    )


class Training:
    """Training as Opacus' own example has it."""

    def __init__(
        self, name, loader=None, *, wrap=False, engine=None, clip=1.0, **options
    ):
        self.engine = engine or opacus.PrivacyEngine(accountant=name)
        loader = shuffled() if loader is None else loader
        if wrap:
            loader = certified.balls_and_bins(loader, self.engine.accountant)
        self.original = torch.nn.Linear(3, 2)
        self.plain = torch.optim.SGD(self.original.parameters(), lr=0.1)
        self.loss = torch.nn.CrossEntropyLoss()
        made = made_private(
            self.engine, self.original, self.plain, loader, clip=clip, **options
        )
        self.model, self.optimizer, *criterion, self.loader = made
        self.loss = criterion[0] if criterion else self.loss

    def step(self, features, labels, optimizer=None):
        optimizer = optimizer or self.optimizer
        optimizer.zero_grad()
        self.loss(self.model(features), labels).backward()
        optimizer.step()

    def run(self, loader=None, steps=math.inf, **options):
        """Runs an epoch, or the first steps of one."""
        for number, (features, labels) in enumerate(loader or self.loader):
            if number >= steps:
                break
            self.step(features, labels, **options)
        return self

    def run_in_small_memory(self, size):
        with batch_memory_manager.BatchMemoryManager(
            data_loader=self.loader,
            max_physical_batch_size=size,
            optimizer=self.optimizer,
        ) as loader:
            return self.run(loader)

    def run_on_sums(self, number_of_batches):
        """Runs an epoch, with a step for each so many batches."""
        for number, (features, labels) in enumerate(self.loader, start=1):
            self.loss(self.model(features), labels).backward()
            if number % number_of_batches == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
        return self

    def epsilon(self):
        return self.engine.get_epsilon(DELTA)


def poisson(loader=None, **options):
    return Training("certified", loader, **options)


def balls_and_bins(**options):
    return Training("balls_and_bins", wrap=True, poisson_sampling=False, **options)


def of_shuffles(**options):
    return Training("shuffled", poisson_sampling=False, **options)
