"""Several processes, as of several GPUs, that train one model on one sample of records.

All processes make the same draw, of batches of all records, from generators that they
seed alike. Each takes the records of its own share. So the batches have the law that is
accounted for, however each process was seeded. Opacus adds up the clipped gradients of
all processes, and the first process adds the noise.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
from typing import Any

from opacus import optimizers
import torch
from torch import distributed

# The number of records that are compared, evenly spaced in the dataset.
_COMPARED = 16
_SEED = "_seed"
_PARALLEL = "opacus.distributed.DifferentiallyPrivateDistributedDataParallel"


def count() -> int:
    """Returns the number of processes of the default group; 1 without a group."""
    is_grouped = distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if is_grouped else 1


@dataclasses.dataclass
class Share:
    """The records of one process.

    Attributes:
        process: The number of the process, from 0.
        processes: The number of processes.
        seed: A number that all of them know.
        draws: The number of draws that were made.
    """

    process: int = 0
    processes: int = 1
    seed: int = 0
    draws: int = 0

    def of(self, batch: Sequence[int]) -> Sequence[int]:
        """Returns the process's records of a batch."""
        if self.processes == 1:
            return batch
        return [record for record in batch if record % self.processes == self.process]

    def generator(self) -> torch.Generator:
        """Returns the generator of the next draw, the same in all processes."""
        words = f"{self.seed} {self.draws}".encode()
        self.draws += 1
        seed = int.from_bytes(hashlib.sha256(words).digest()[:8], "big")
        return torch.Generator().manual_seed(seed)


def agreed(loader: Any, generator: Any, facts: Mapping[str, Any]) -> Share:
    """Returns the share of this process, after a comparison of all processes' loaders.

    The facts, by their names, must be the same in all processes. If they are not, the
    error is raised in each.
    """
    number = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    of_records = {"records in the same order": _fingerprint(loader.dataset)}
    of_processes = _gathered({**facts, **of_records, _SEED: number})
    seeds = [facts_of_one.pop(_SEED) for facts_of_one in of_processes]
    _refuse_differences(
        of_processes, "data_loader of", "give each the same dataset and loader"
    )
    seed = int.from_bytes(hashlib.sha256(repr(seeds).encode()).digest(), "big")
    return Share(distributed.get_rank(), count(), seed)


def together(
    optimizer: Any, processes: int, check: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Returns what the check of a step found, which must be the same in all processes.

    If a process refuses the step, or findings differ, an error is raised in each, so
    that none waits for another.
    """
    if count() == processes == 1:
        return check()
    facts: Mapping[str, Any] = {}
    error = None
    try:
        _refuse_optimizer(optimizer, processes)
        facts = check()
    except (RuntimeError, TypeError, ValueError) as caught:
        error = caught
    told = _gathered((facts, error and str(error)))
    if error is not None:
        raise error
    for process, (_, words) in enumerate(told):
        if words is not None:
            raise RuntimeError(f"Process {process} refuses the step: {words}")
    _refuse_differences(
        [facts_of_one for facts_of_one, _ in told],
        "step with",
        "set it in each, load a checkpoint in each, and iterate over the loader in all "
        "or in none",
    )
    return facts


def refuse_module(module: Any, clipping: str, grad_sample_mode: str) -> None:
    """Refuses a module, or a way of clipping, that processes cannot share."""
    kind = type(module)
    names = {base.__name__ for base in kind.__mro__}
    is_parallel = _PARALLEL.rpartition(".")[2] in names
    if not is_parallel and (count() > 1 or names & _OTHERS):
        raise RuntimeError(
            f"Several processes must train one module. Found {kind.__name__} in each "
            f"of {count()}: write make_private(module={_PARALLEL}(module), …), or "
            f"train in one process, without torch.distributed."
        )
    if is_parallel and (clipping, grad_sample_mode) != ("flat", "hooks"):
        raise RuntimeError(
            f"Several processes must clip whole gradients. Found "
            f"clipping={clipping!r} and grad_sample_mode={grad_sample_mode!r}: write "
            f"clipping='flat' and grad_sample_mode='hooks'."
        )


_OTHERS = {"DistributedDataParallel", "FSDPModule"}


def _refuse_optimizer(optimizer: Any, processes: int) -> None:
    """Refuses an optimizer that is not of the processes which share the batches."""
    if not isinstance(optimizer, optimizers.DistributedDPOptimizer):
        raise RuntimeError(
            f"Several processes must add up their gradients. Found "
            f"{type(optimizer).__name__}: write make_private(module="
            f"{_PARALLEL}(module), …), and train with the optimizer that it returns."
        )
    numbers = optimizer.rank, optimizer.world_size, processes
    if numbers != (distributed.get_rank(), count(), count()):
        raise RuntimeError(
            f"optimizer.rank, optimizer.world_size and the number of processes that "
            f"share the loader must be those of torch.distributed. Found {numbers} for "
            f"process {distributed.get_rank()} of {count()}: call make_private after "
            f"init_process_group, in each process."
        )


def _refuse_differences(
    of_processes: Sequence[Mapping[str, Any]], what: str, do: str
) -> None:
    for name, first in of_processes[0].items():
        for process, facts in enumerate(of_processes):
            if facts[name] != first:
                raise RuntimeError(
                    f"All processes must have a {what} the same {name}. Found {first} "
                    f"in process 0, and {facts[name]} in process {process}: {do}."
                )


def _gathered(mine: Any) -> list[Any]:
    gathered: list[Any] = [None] * count()
    distributed.all_gather_object(gathered, mine)
    return gathered


def _fingerprint(dataset: Any) -> str | None:
    """Returns a hash of some records; None if they differ each time they are read.

    It tells a dataset from one that has the same records in another order.
    """
    length = len(dataset)
    places = sorted({length * at // _COMPARED for at in range(_COMPARED)})
    first, second = (
        hashlib.sha256(repr([_words(dataset[at]) for at in places]).encode())
        for _ in range(2)
    )
    is_steady = first.digest() == second.digest()
    return first.hexdigest()[:16] if is_steady else None


def _words(record: Any) -> Any:
    """Returns what can be compared between processes of a record."""
    if isinstance(record, torch.Tensor):
        flat = record.detach().cpu().contiguous().reshape(-1)
        return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()
    if isinstance(record, Mapping):
        return [(str(key), _words(value)) for key, value in record.items()]
    if isinstance(record, (list, tuple)):
        return list(map(_words, record))
    if hasattr(record, "tobytes"):  # An array, or a picture.
        return hashlib.sha256(record.tobytes()).hexdigest()
    is_plain = isinstance(record, (int, float, str, bytes))
    return repr(record) if is_plain else type(record).__name__
