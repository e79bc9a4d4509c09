"""Two processes that train one model with Opacus: one certified run, or an error."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from opacus import accountants
import processes_of_opacus as cases
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext.integrations import opacus as certified

RATE = 1 / cases.STEPS
REFUSED = {
    "other_noise": "the same noise multiplier. Found 1.0 in process 0, and 2.0",
    "other_clip": "the same clip. Found 1.0 in process 0, and 2.0 in process 1",
    "other_divisor": "the same divisor. Found 15.0 in process 0, and 16.0",
    "other_length": "the same number of records. Found 640 in process 0, and 641",
    "other_batches": "the same number of batches. Found 21 in process 0, and 20",
    "other_order": "the same records in the same order",
    "alone": "Found Linear in each of 2: write make_private(module=opacus.distri",
    "of_pytorch": "Found DistributedDataParallel in each of 2",
    "ghosts": "grad_sample_mode='ghost': write clipping='flat'",
    "layers": "clipping='per_layer' and grad_sample_mode='hooks': write",
    "secure": "secure_mode=True must be of one process",
    "shuffled": "write accountant='certified', or 'balls_and_bins'",
    "sampler_of_pytorch": "DistributedSampler repeats records",
    "own_draws": "each of which would draw from all records",
    "own_optimizer": "must add up their gradients. Found DPOptimizer",
    "own_number": "must be those of torch.distributed. Found",
    "left_out": "a batch that was left out",
    "evaluated_in_one": "the same number of the epoch. Found 2 in process 0, and 1",
    "resumed_in_one": "number of the step. Found 21 in process 0, and 0 in",
    "seeded_again": "seeded again",
    "not_clipped": "Opacus did not clip them",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each case returned in both processes."""
    folder = tmp_path_factory.mktemp("processes")
    package = pathlib.Path(ext.__file__).parent.parent
    paths = f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    begun = [
        subprocess.Popen(
            [sys.executable, cases.__file__, str(process), str(folder)],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    told = [process.communicate(timeout=300)[1] for process in begun]
    assert [process.returncode for process in begun] == [0, 0], "\n".join(told)
    both = [json.loads((folder / f"{n}.json").read_text("utf-8")) for n in range(2)]
    return {name: [each[name] for each in both] for name in both[0]}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_in_all_processes(ran, name):
    """None waits for another that has raised an error."""
    for found in ran[name]:
        assert REFUSED[name] in found.get("error", "")
        assert "the the" not in found["error"]


def test_every_case_is_expected(ran):
    accepted = {name for name, both in ran.items() if "error" not in both[0]}
    assert accepted == set(ran) - set(REFUSED)
    assert len(accepted) == 7


def in_one_process(name, *epochs):
    accountant = accountants.create_accountant(name)
    for steps in epochs:
        accountant.begin_epoch() if name == "balls_and_bins" else None
        for _ in range(steps):
            accountant.step(noise_multiplier=1.0, sample_rate=RATE)
    return list(accountant.get_epsilon_bounds(cases.DELTA))


def test_the_bracket_is_that_of_one_process(ran):
    whole = cases.STEPS
    for found in ran["poisson"]:
        assert found["history"] == [[1.0, RATE, 2 * whole]]
        assert found["bracket"] == in_one_process("certified", whole, whole)
        assert "643 records, shared by 2 processes: ε holds" in found["sentence"]
    for found in ran["bins"]:
        assert found["bracket"] == in_one_process("balls_and_bins", whole, 5, whole)


@pytest.mark.parametrize("name", ["poisson", "bins", "without_make_private"])
def test_the_model_is_one(ran, name):
    first, second = ran[name]
    assert first["weights"] == second["weights"]


def of_both(both):
    """The batches of all steps; each process has every second record."""
    first, second = (each["batches"] for each in both)
    assert {number % 2 for batch in first for number in batch} == {0}
    assert {number % 2 for batch in second for number in batch} == {1}
    return [a + b for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize(
    "name",
    ["poisson", "poisson_of_equal_seeds", "poisson_of_workers", "without_make_private"],
)
def test_batches_are_poisson_samples_of_all_records(ran, name):
    """Records of two processes are independent, also if both were seeded alike."""
    batches = of_both(ran[name])
    is_in = np.zeros((len(batches), cases.RECORDS), dtype=int)
    for number, batch in enumerate(batches):
        assert len(set(batch)) == len(batch)
        is_in[number, batch] = 1
    assert stats.binomtest(int(is_in.sum()), is_in.size, RATE).pvalue > 1e-6
    half = cases.RECORDS // 2
    for pair in ((is_in[:, : 2 * half : 2], is_in[:, 1::2]), (is_in[:-1], is_in[1:])):
        table = np.histogram2d(pair[0].ravel(), pair[1].ravel(), bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-6


def test_each_record_is_in_one_bin(ran):
    batches = of_both(ran["bins"])
    steps = cases.STEPS
    assert len(batches) == 2 * steps + 5
    for epoch in (batches[:steps], batches[-steps:]):
        assert sorted(itertools.chain(*epoch)) == list(range(cases.RECORDS))
        assert stats.chisquare(list(map(len, epoch))).pvalue > 1e-6
    assert batches[:steps] != batches[-steps:]


def test_small_shares_and_small_memory(ran):
    """A process whose batch is empty takes the step, too."""
    first, second = ran["small_shares"]
    assert min(map(len, first["batches"] + second["batches"])) == 0
    assert first["history"] == [[1.0, 1 / cases.RECORDS, 100]]
    for found in ran["poisson_in_small_memory"]:
        assert found["history"] == [[1.0, RATE, cases.STEPS]]
        assert max(map(len, found["batches"])) <= 3 < len(found["batches"])


def test_records_that_differ_each_time_are_not_compared():
    class Changing(list):
        def __getitem__(self, at):
            self.append(len(self))
            return len(self)

    fingerprint = certified.opacus_processes._fingerprint
    assert fingerprint(Changing([0] * 9)) is None
    records = [{"x": np.arange(3.0), "y": [1, "a", None]}] * 40
    assert fingerprint(records) == fingerprint(list(records)) is not None
    assert fingerprint(records) != fingerprint([*records[:-3], *[{"x": 1}] * 3])
