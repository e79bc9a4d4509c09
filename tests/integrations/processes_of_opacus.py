"""One of two processes that train with Opacus together; `test_opacus_processes.py`.

    python processes_of_opacus.py PROCESS FOLDER

Each case is run in both, in one process group. FOLDER/PROCESS.json then has what it
returned, or the error that it raised.
"""

import datetime
import json
import pathlib
import sys
import warnings

import opacus
from opacus import data_loader as opacus_loaders
from opacus import distributed as opacus_distributed
from opacus.utils import batch_memory_manager
import torch
from torch import distributed
from torch.utils import data

from dp_accounting_ext.integrations import opacus as certified

RECORDS, BATCH, STEPS, DELTA = 643, 32, 21, 1e-5
TOGETHER = opacus_distributed.DifferentiallyPrivateDistributedDataParallel
NUMBERS = torch.arange(float(RECORDS))
DATASET = data.TensorDataset(
    NUMBERS, torch.stack([NUMBERS % 7, NUMBERS % 3], 1), torch.arange(RECORDS) % 2
)


class Training:
    """Training as Opacus' own example of several processes has it."""

    def __init__(
        self,
        name="certified",
        *,
        dataset=DATASET,
        wrap=TOGETHER,
        sampler=None,
        workers=0,
        batch=BATCH,
        secure=False,
        **options,
    ):
        self.engine = opacus.PrivacyEngine(accountant=name)
        self.engine.secure_mode = secure
        loader = data.DataLoader(
            dataset, batch_size=batch, sampler=sampler, num_workers=workers
        )
        if name == "balls_and_bins":
            loader = certified.balls_and_bins(loader, self.engine.accountant)
        module = wrap(torch.nn.Linear(2, 2))
        made = self.engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=loader,
            poisson_sampling=name == "certified",
            **{"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options},
        )
        self.model, self.optimizer, *_, self.loader = made
        self.batches = []

    def step(self, batch):
        numbers, features, labels = batch
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(features), labels).backward()
        self.optimizer.step()
        self.batches.append(numbers.int().tolist())

    def run(self, loader=None, steps=STEPS):
        for number, batch in enumerate(loader or self.loader):
            if number == steps:
                break
            self.step(batch)
        return self

    def found(self):
        weights = torch.nn.utils.parameters_to_vector(self.model.parameters())
        return {
            "history": self.engine.accountant.history,
            "batches": self.batches,
            "weights": weights.tolist(),
        }


def poisson():
    training = Training()
    sentence = certified.check(training.engine, training.loader)
    bracket = training.run().run().engine.accountant.get_epsilon_bounds(DELTA)
    return training.found() | {"sentence": sentence, "bracket": bracket}


def poisson_in_small_memory():
    training = Training()
    with batch_memory_manager.BatchMemoryManager(
        data_loader=training.loader,
        max_physical_batch_size=3,
        optimizer=training.optimizer,
    ) as loader:
        return training.run(loader, None).found()


def bins():
    training = Training("balls_and_bins")
    training.run().run(steps=5).run()
    bracket = training.engine.accountant.get_epsilon_bounds(DELTA)
    return training.found() | {"bracket": bracket}


def with_hook(training, engine):
    """Trains a run whose steps an engine counts by a hook."""
    hook = engine.accountant.get_optimizer_hook_fn(1 / STEPS)
    training.optimizer.attach_step_hook(hook)
    training.engine = engine
    return training.run().found()


def without_make_private():
    training, engine = Training(), opacus.PrivacyEngine(accountant="certified")
    plain = data.DataLoader(DATASET, batch_size=BATCH)
    training.loader = opacus_loaders.DPDataLoader.from_data_loader(
        plain, distributed=True
    )
    engine.accountant.watch(training.loader)
    return with_hook(training, engine)


def own_draws():
    """A loader of which each process draws all records."""
    loader = opacus_loaders.DPDataLoader(DATASET, sample_rate=0.1)
    opacus.PrivacyEngine(accountant="certified").accountant.watch(loader)


def own_optimizer():
    """An optimizer that adds up nothing."""
    training = Training()
    training.optimizer = opacus.optimizers.DPOptimizer(
        training.optimizer.original_optimizer,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    return with_hook(training, training.engine)


def changed(**fields):
    """Trains with fields of the optimizer that were changed."""
    training = Training()
    for name, value in fields.items():
        setattr(training.optimizer, name, value)
    return training.run().found()


def left_out(process):
    training = Training()
    for number, batch in enumerate(training.loader):
        if (number, process) != (3, 1):
            training.step(batch)
    return training.found()


def evaluated_in_one(process):
    training = Training()
    if process == 0:
        list(training.loader)
    return training.run().found()


def resumed_in_one(process):
    training, other = Training().run(), Training()
    if process == 0:
        state = training.engine.accountant.state_dict()
        other.engine.accountant.load_state_dict(state)
    return other.run().found()


def seeded_again():
    """From the same seed the loader that is made again draws the same."""
    torch.manual_seed(11)
    state = Training().run().engine.accountant.state_dict()
    torch.manual_seed(11)
    training = Training()
    training.engine.accountant.load_state_dict(state)
    return training.run().found()


def not_clipped(process):
    """Process 1, whose sum Opacus divides in place, has one that is too large."""
    training = Training()
    summed = training.optimizer.clip_and_accumulate

    def more():
        summed()
        if process == 1:
            parameter = next(training.model.parameters())
            parameter.summed_grad.add_(20.0 * BATCH)

    training.optimizer.clip_and_accumulate = more
    return training.run().found()


def in_order(seed):
    places = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(seed))
    return data.Subset(DATASET, places.tolist())


def cases(process):
    """The cases of a process, which has another seed than the other, by their names."""
    return {
        "poisson": poisson,
        "poisson_of_equal_seeds": lambda: torch.manual_seed(7) and Training().run(),
        "poisson_of_workers": lambda: Training(workers=1).run(),
        "poisson_in_small_memory": poisson_in_small_memory,
        # Of most batches one process has no record.
        "small_shares": lambda: Training(batch=1).run(steps=100),
        "bins": bins,
        "without_make_private": without_make_private,
        "other_noise": lambda: Training(noise_multiplier=1.0 + process).run(),
        "other_clip": lambda: Training(max_grad_norm=1.0 + process).run(),
        "other_divisor": lambda: changed(expected_batch_size=15 + process),
        "other_length": lambda: Training(
            dataset=data.Subset(DATASET, range(640 + process))
        ),
        "other_batches": lambda: Training("balls_and_bins", batch=BATCH + process),
        "other_order": lambda: Training(dataset=in_order(process)),
        "alone": lambda: Training(wrap=lambda module: module),
        "of_pytorch": lambda: Training(wrap=torch.nn.parallel.DistributedDataParallel),
        "ghosts": lambda: Training(grad_sample_mode="ghost"),
        "layers": lambda: Training(clipping="per_layer", max_grad_norm=[1.0, 1.0]),
        "secure": lambda: Training(secure=True),
        "shuffled": lambda: Training("shuffled"),
        "sampler_of_pytorch": lambda: Training(
            sampler=data.DistributedSampler(DATASET)
        ),
        "own_draws": own_draws,
        "own_optimizer": own_optimizer,
        "own_number": lambda: changed(rank=1 + process),  # No process adds noise.
        "left_out": lambda: left_out(process),
        "evaluated_in_one": lambda: evaluated_in_one(process),
        "resumed_in_one": lambda: resumed_in_one(process),
        "seeded_again": seeded_again,
        "not_clipped": lambda: not_clipped(process),
    }


def main(process, folder):
    """Runs all cases."""
    warnings.simplefilter("ignore")
    distributed.init_process_group(
        "gloo",
        init_method=(folder / "store").as_uri(),
        rank=process,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    found = {}
    for name, case in cases(process).items():
        torch.manual_seed(process)
        try:
            made = case()
            found[name] = made.found() if isinstance(made, Training) else made
        except (RuntimeError, TypeError, ValueError) as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        distributed.barrier()
    path = folder / f"{process}.json"
    path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
