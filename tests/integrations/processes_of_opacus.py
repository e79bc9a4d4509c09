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


def poisson(process):
    torch.manual_seed(process)
    training = Training()
    sentence = certified.check(training.engine, training.loader)
    bracket = training.run().run().engine.accountant.get_epsilon_bounds(DELTA)
    return training.found() | {"sentence": sentence, "bracket": bracket}


def poisson_of_equal_seeds(process):
    del process
    torch.manual_seed(7)
    return Training().run().found()


def poisson_of_workers(process):
    torch.manual_seed(process)
    return Training(workers=1).run().found()


def poisson_in_small_memory(process):
    torch.manual_seed(process)
    training = Training()
    with batch_memory_manager.BatchMemoryManager(
        data_loader=training.loader,
        max_physical_batch_size=3,
        optimizer=training.optimizer,
    ) as loader:
        return training.run(loader, None).found()


def small_shares(process):
    """Of most batches one process has no record."""
    torch.manual_seed(process)
    return Training(batch=1).run(steps=100).found()


def bins(process):
    torch.manual_seed(process)
    training = Training("balls_and_bins")
    training.run().run(steps=5).run()
    bracket = training.engine.accountant.get_epsilon_bounds(DELTA)
    return training.found() | {"bracket": bracket}


def without_make_private(process):
    torch.manual_seed(process)
    training = Training()
    engine = opacus.PrivacyEngine(accountant="certified")
    plain = data.DataLoader(DATASET, batch_size=BATCH)
    training.loader = opacus_loaders.DPDataLoader.from_data_loader(
        plain, distributed=True
    )
    engine.accountant.watch(training.loader)
    hook = engine.accountant.get_optimizer_hook_fn(1 / STEPS)
    training.optimizer.attach_step_hook(hook)
    training.engine = engine
    return training.run().found()


def other_noise(process):
    return Training(noise_multiplier=1.0 + process).run().found()


def other_clip(process):
    return Training(max_grad_norm=1.0 + process).run().found()


def other_divisor(process):
    training = Training()
    training.optimizer.expected_batch_size += process
    return training.run().found()


def other_length(process):
    return Training(dataset=data.Subset(DATASET, range(640 + process))).found()


def other_batches(process):
    return Training("balls_and_bins", batch=BATCH + process).found()


def other_order(process):
    places = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(process))
    return Training(dataset=data.Subset(DATASET, places.tolist())).found()


def alone(process):
    del process
    return Training(wrap=lambda module: module).found()


def of_pytorch(process):
    del process
    return Training(wrap=torch.nn.parallel.DistributedDataParallel).found()


def ghosts(process):
    del process
    return Training(grad_sample_mode="ghost").found()


def layers(process):
    del process
    return Training(clipping="per_layer", max_grad_norm=[1.0, 1.0]).found()


def secure(process):
    del process
    return Training(secure=True).found()


def shuffled(process):
    del process
    return Training("shuffled").found()


def sampler_of_pytorch(process):
    del process
    return Training(sampler=data.DistributedSampler(DATASET)).found()


def own_draws(process):
    """A loader of which each process draws all records."""
    del process
    loader = opacus_loaders.DPDataLoader(DATASET, sample_rate=0.1)
    opacus.PrivacyEngine(accountant="certified").accountant.watch(loader)


def own_optimizer(process):
    """An optimizer that adds up nothing."""
    del process
    training = Training()
    training.optimizer = opacus.optimizers.DPOptimizer(
        training.optimizer.original_optimizer,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    hook = training.engine.accountant.get_optimizer_hook_fn(1 / STEPS)
    training.optimizer.attach_step_hook(hook)
    return training.run().found()


def own_number(process):
    """No process adds noise."""
    training = Training()
    training.optimizer.rank = 1 + process
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
    training = Training().run()
    state = training.engine.accountant.state_dict()
    other = Training()
    if process == 0:
        other.engine.accountant.load_state_dict(state)
    return other.run().found()


def seeded_again(process):
    """From the same seed the loader that is made again draws the same."""
    del process
    engine = None
    for _ in range(2):
        torch.manual_seed(11)
        training = Training()
        if engine is not None:
            state = engine.accountant.state_dict()
            training.engine.accountant.load_state_dict(state)
        engine = training.run().engine
    return training.found()


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


CASES = [poisson, poisson_of_equal_seeds, poisson_of_workers, poisson_in_small_memory]
CASES += [small_shares, bins, without_make_private, other_noise, other_clip]
CASES += [other_divisor, other_length, other_batches, other_order, alone, of_pytorch]
CASES += [ghosts, layers, secure, shuffled, sampler_of_pytorch, own_draws]
CASES += [own_optimizer, own_number, left_out, evaluated_in_one, resumed_in_one]
CASES += [seeded_again, not_clipped]


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
    for case in CASES:
        try:
            found[case.__name__] = case(process)
        except (RuntimeError, TypeError, ValueError) as error:
            found[case.__name__] = {"error": f"{type(error).__name__}: {error}"}
        distributed.barrier()
    path = folder / f"{process}.json"
    path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
