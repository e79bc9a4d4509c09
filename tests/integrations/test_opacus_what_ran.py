"""Wrong set-ups of Opacus: each is named, and none reports less than what ran."""

import copy
import json
import types

import opacus
from opacus import data_loader as opacus_loaders
from opacus import schedulers
from opacus.utils import batch_memory_manager
from opacus.utils.adaptive_clipping import adaptive_clipping_utils as adaptive
from opacus_training import BATCH
from opacus_training import DATASET
from opacus_training import DELTA
from opacus_training import EPOCH
from opacus_training import GHOST
from opacus_training import RECORDS
from opacus_training import REPLACED
from opacus_training import SAMPLED
from opacus_training import STEP
from opacus_training import STEPS
from opacus_training import Training
from opacus_training import balls_and_bins
from opacus_training import epsilon
from opacus_training import made_private
from opacus_training import of_shuffles
from opacus_training import poisson
from opacus_training import shuffled
import pytest
import torch
from torch.utils import data

import dp_accounting_ext as ext
from dp_accounting_ext import risk
from dp_accounting_ext.integrations import opacus as certified

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # JAX, of the other tests, warns of workers; these call nothing of it.
    pytest.mark.filterwarnings("ignore:os.fork"),
]


class Sampler(data.BatchSampler):
    """A user's own, which may draw in any way."""


def ordered(sampler):
    return shuffled(shuffle=None, sampler=sampler)


def in_random(**options):
    return ordered(data.RandomSampler(DATASET, **options))


def in_batches(sampler):
    return data.DataLoader(DATASET, batch_sampler=sampler)


def with_target(loader=None, **options):
    opacus.PrivacyEngine(accountant="certified").make_private_with_epsilon(
        module=torch.nn.Linear(3, 2),
        optimizer=None,
        data_loader=shuffled() if loader is None else loader,
        **{"epochs": 1, "max_grad_norm": 1.0, **TARGET, **options},
    )


TARGET = {"target_epsilon": 1.0, "target_delta": DELTA}
HALF = data.SubsetRandomSampler(range(320))
TOO_LARGE = {"batch_size": 641, "drop_last": True}


def named(name, **options):
    """Returns a function that makes a training with this accountant from a loader."""
    return lambda loader: Training(name, loader, **options)


AS_IT_IS, NO_SAMPLES = named("balls_and_bins"), {"poisson_sampling": False}
OF_BINS = "accountant='balls_and_bins'"
SUBSET = r"torch.utils.data.Subset\(dataset, indices\)"
TWICE, TWO = data.Subset(DATASET, [0, 0]), data.ConcatDataset([DATASET] * 2)
# What the error says, what makes the training, and its loader.
MADE_WRONG = [
    ("add poisson_sampling=False", AS_IT_IS, shuffled),
    (
        r"certified.balls_and_bins\(data_l",
        named("balls_and_bins", **NO_SAMPLES),
        shuffled,
    ),
    ("remove poisson_sampling=False", named("certified", **NO_SAMPLES), shuffled),
    ("add poisson_sampling=False.*='certified'", named("shuffled"), shuffled),
    (OF_BINS, named("certified", **NO_SAMPLES), lambda: balls_and_bins().loader),
    ("in place of balls-and-bins", poisson, lambda: balls_and_bins().loader),
    (OF_BINS, of_shuffles, lambda: balls_and_bins().loader),
    ("'certified'", named("balls_and_bins", **NO_SAMPLES), lambda: poisson().loader),
    (SUBSET, poisson, lambda: ordered(HALF)),
    (SUBSET, balls_and_bins, lambda: ordered(HALF)),
    ("must differ", of_shuffles, lambda: ordered(data.SubsetRandomSampler([0, 1, 1]))),
    ("Weighted", poisson, lambda: ordered(data.WeightedRandomSampler([1.0] * 640, 9))),
    ("remove replacement=True", of_shuffles, lambda: in_random(replacement=True)),
    ("num_samples", of_shuffles, lambda: in_random(num_samples=700)),
    ("batches of Sampler", poisson, lambda: in_batches(Sampler(range(9), 3, False))),
    ("batches of list", of_shuffles, lambda: ordered([0, 1, 1])),
    ("Found batch_size=None", of_shuffles, lambda: data.DataLoader(DATASET, None)),
    ("each record once.*Subset", poisson, lambda: shuffled(dataset=TWICE)),
    (
        "each record once.*ConcatDataset",
        poisson,
        lambda: shuffled(dataset=data.Subset(TWO, range(99))),
    ),
    ("Found none, of 640.*drop_last=True", poisson, lambda: shuffled(**TOO_LARGE)),
    ("must have a batch", with_target, lambda: shuffled(**TOO_LARGE)),
    ("clipping='flat'", named("certified", clipping="adaptive"), shuffled),
]


@pytest.mark.parametrize(("remedy", "make", "loader"), MADE_WRONG)
def test_make_private_names_what_is_wrong(remedy, make, loader):
    with pytest.raises(RuntimeError, match=remedy):
        make(loader=loader())


def test_a_module_of_several_processes_that_is_not_opacus_own():
    module = type("DistributedDataParallel", (), {})()
    with pytest.raises(RuntimeError, match="DifferentiallyPrivateDistributedDataPar"):
        certified.opacus_processes.refuse_module(module, "flat", "hooks")


class Endless(data.IterableDataset):
    def __iter__(self):
        yield from DATASET

    def __len__(self):
        return RECORDS


@pytest.mark.parametrize("name", ["certified", "balls_and_bins", "shuffled"])
def test_iterable_datasets_and_loaders_that_are_none(name):
    accountant = opacus.PrivacyEngine(accountant=name).accountant
    with pytest.raises(RuntimeError, match="iterable dataset"):
        accountant.watch(data.DataLoader(Endless(), batch_size=BATCH))
    with pytest.raises(TypeError, match="DataLoader"):
        accountant.watch([1, 2])


def train_on_old_loader(training):
    training.run(shuffled())


def train_on_old_loader_after_a_look(training):
    next(iter(training.loader))
    training.run(shuffled(batch_size=97))


def train_on_parts(training):
    for features, labels in training.loader:
        training.step(features[1:], labels[1:])


def train_on_repeated_records(training):
    for features, labels in training.loader:
        training.step(features.repeat(2, 1), labels.repeat(2))


def train_twice_on_each(training):
    for features, labels in training.loader:
        training.step(features, labels)
        training.step(features, labels)


def skip_some(training):
    for number, (features, labels) in enumerate(training.loader):
        if number != 1:
            training.step(features, labels)


def seed_each_epoch(training):
    for _ in range(2):
        torch.manual_seed(1)
        training.run()


def without_a_hook_of_this_loader(training):
    hook = training.engine.accountant.get_optimizer_hook_fn(1 / 30)
    training.optimizer.attach_step_hook(hook)
    training.run()


RUN_WRONG = {
    train_on_old_loader: "before its loader drew",
    train_on_old_loader_after_a_look: "another loader's batch",
    train_on_parts: "left out or repeated",
    train_on_repeated_records: "left out or repeated",
    train_twice_on_each: "same ones again",
    skip_some: "a batch that was left out",
}


@pytest.mark.parametrize("make", [poisson, balls_and_bins])
@pytest.mark.parametrize("run", RUN_WRONG)
def test_a_step_on_what_was_not_drawn(make, run):
    torch.manual_seed(1)  # The first batches differ in size.
    training = make()
    with pytest.raises(RuntimeError, match=RUN_WRONG[run]):
        run(training)
    counted = training.engine.accountant.history
    assert sum(steps for *_, steps in counted) <= 1


def test_batches_that_are_kept_for_another_epoch():
    for training in (poisson(), balls_and_bins(), of_shuffles()):
        kept = list(training.loader)
        training.run(kept)
        with pytest.raises(RuntimeError, match="same ones again"):
            training.run(kept)
        assert len(training.engine.accountant) == STEPS


@pytest.mark.parametrize("make", [poisson, balls_and_bins])
def test_draws_that_repeat_earlier_ones(make):
    training = make()
    with pytest.raises(RuntimeError, match="seeded again"):
        seed_each_epoch(training)
    assert len(training.engine.accountant) == STEPS


def test_a_rate_that_is_not_the_loaders():
    training = poisson()
    with pytest.raises(RuntimeError, match="sample_rate must be the loader's"):
        without_a_hook_of_this_loader(training)
    assert training.engine.accountant.history == []


@pytest.mark.parametrize("mode", [{}, GHOST])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", [poisson, balls_and_bins])
def test_virtual_steps_that_add_up_batches(make, workers, mode):
    """Opacus tells of the last one, which may be smaller than the first."""
    for seed in range(3):
        torch.manual_seed(seed)
        training = make(loader=shuffled(num_workers=workers), **mode)
        with pytest.raises(RuntimeError, match="A step (summed|ran on)"):
            for number, batch in enumerate(training.loader):
                training.optimizer.signal_skip_step(number % 4 < 3)
                training.step(*batch)
        assert training.engine.accountant.history == []


def test_virtual_steps_without_make_private():
    """Parts before the last one are not counted, but batches are."""
    training = poisson()
    del training.optimizer.clip_and_accumulate
    del training.optimizer._parts
    with pytest.raises(RuntimeError, match="A step (summed|ran on)"):
        for number, batch in enumerate(training.loader):
            training.optimizer.signal_skip_step(number % 4 < 3)
            training.step(*batch)
    assert training.engine.accountant.history == []


@pytest.mark.parametrize("make", [poisson, balls_and_bins])
def test_a_rate_that_changes_under_way(make):
    training = make().run()
    if training.engine.accountant.mechanism() == "certified":
        training.loader.batch_sampler.sample_rate = 1 / 4
    else:
        training.loader.batch_sampler.num_steps = 4
    with pytest.raises(RuntimeError, match=r"get_optimizer_hook_fn\(0.25\)"):
        training.run()
    assert len(training.engine.accountant) == STEPS


def test_a_run_that_is_resumed_with_the_seed_of_its_start():
    torch.manual_seed(1)
    first = poisson().run()
    state = json.loads(json.dumps(first.engine.accountant.state_dict()))
    torch.manual_seed(1)
    resumed = poisson()
    resumed.engine.accountant.load_state_dict(state)
    with pytest.raises(RuntimeError, match="otherwise where a checkpoint is resumed"):
        resumed.run()
    assert resumed.run().epsilon() == epsilon(SAMPLED, 2 * STEPS)


def test_steps_that_a_checkpoint_forgets():
    training = poisson().run()
    accountant = training.engine.accountant
    state = accountant.state_dict()
    accountant.load_state_dict(state)  # Of the same steps: nothing is lost.
    training.run()
    with pytest.warns(UserWarning, match="forgets 40 steps that ran"):
        accountant.load_state_dict(state)
    accountant = opacus.accountants.create_accountant("certified")
    accountant.history = [(1.0, 0.1, 10)]  # A plan: no step ran.
    accountant.load_state_dict(state)


def test_an_accountant_that_is_put_in_later():
    training = Training("prv")
    training.engine.accountant = certified.CertifiedAccountant()
    training.run()
    with pytest.warns(UserWarning, match="put in later sees none"):
        assert training.epsilon() == 0


class MeanOfAll(torch.nn.Module):
    """A user's own criterion: the mean of all, whatever the reduction."""

    reduction = "mean"

    def forward(self, outputs, labels):
        return (outputs[:, 0] - labels).square().mean()


class Flat(torch.nn.MSELoss):
    def forward(self, outputs, labels):
        return super().forward(outputs[:, 0], labels.float())


class Column(torch.nn.MSELoss):
    def forward(self, outputs, labels):
        return super().forward(outputs[:, :1], labels.float()[:, None])


class ColumnOfLogits(torch.nn.BCEWithLogitsLoss):
    def forward(self, outputs, labels):
        return super().forward(outputs[:, :1], labels.float()[:, None])


def of_ghosts(criterion, **options):
    return Training(
        "certified", grad_sample_mode="ghost", criterion=criterion, **options
    )


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("criterion", [Column, ColumnOfLogits, MeanOfAll])
def test_losses_that_ghost_clipping_does_not_clip(criterion, wrapped):
    """Opacus multiplies a loss of shape (B, 1) by each of the B coefficients."""
    training = of_ghosts(criterion(), wrap_model=wrapped)
    training.model = training.model if wrapped else training.original
    with pytest.raises(RuntimeError, match=r"one number for each record.*squeeze\(1\)"):
        training.run()
    assert training.engine.accountant.history == []
    training.loss.criterion = Flat()
    training.run()
    assert len(training.engine.accountant) == STEPS


def test_parameters_that_ghost_clipping_does_not_see():
    engine = opacus.PrivacyEngine(accountant="certified")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model[0].requires_grad_(False)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    module, optimizer, criterion, loader = made_private(engine, model, plain, **GHOST)
    model[0].requires_grad_(True)
    features, labels = next(iter(loader))
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="requires_grad before make_private"):
        criterion(module(features), labels).backward()
    assert engine.accountant.history == []


def infinite_gradients(training):
    with torch.no_grad():
        training.original.weight[0, 0] = torch.inf


def no_clip_at_all(training):
    training.model.get_clipping_coef = lambda: torch.tensor(1e4)


def a_sum_that_was_changed(training):
    summed = training.optimizer.clip_and_accumulate

    def more():
        summed()
        training.original.bias.summed_grad.add_(1e3)

    training.optimizer.clip_and_accumulate = more


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (infinite_gradients, {}),
        (infinite_gradients, {"clipping": "per_layer", "clip": [1.0, 1.0]}),
        (a_sum_that_was_changed, {}),
        (no_clip_at_all, GHOST),
    ],
)
def test_sums_that_were_not_clipped(change, options):
    training = poisson(**options)
    change(training)
    weights = [p.detach().clone() for p in training.original.parameters()]
    with pytest.raises(RuntimeError, match="at most the clip times the number"):
        training.run()
    assert training.engine.accountant.history == []
    for before, after in zip(weights, training.original.parameters(), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize(
    "options", [{"clipping": "per_layer", "clip": [0.6, 0.8]}, GHOST]
)
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_clip_schedulers_that_change_only_the_noise(options, factor):
    training = poisson(**options).run()
    assert training.epsilon() == pytest.approx(epsilon(SAMPLED, STEPS), rel=1e-6)
    scheduler = schedulers.ExponentialGradClip(training.optimizer, gamma=factor)
    scheduler.step()
    with pytest.raises(RuntimeError, match="from which the noise is made"):
        training.run()
    assert len(training.engine.accountant) == STEPS


def test_clip_schedulers_that_change_both():
    training = poisson().run()
    scheduler = schedulers.ExponentialGradClip(training.optimizer, gamma=0.1)
    scheduler.step()
    assert training.run().epsilon() == epsilon(SAMPLED, 2 * STEPS)
    training.optimizer.max_grad_norm = 0.0
    with pytest.raises(RuntimeError, match="must be positive.* Found 0"):
        training.run()
    ghosts = poisson(grad_sample_mode="ghost")
    ghosts.optimizer.max_grad_norm = ghosts.model.max_grad_norm = 0.5
    assert ghosts.run().epsilon() == epsilon(SAMPLED, STEPS)


@pytest.mark.parametrize("mode", [{}, GHOST])
def test_a_clip_that_changes_amid_a_batch(mode):
    """The first part was clipped at more than the noise of the step is made from."""
    training = poisson(**mode)
    features, labels = next(iter(training.loader))
    training.optimizer.signal_skip_step(True)
    training.step(features[:2], labels[:2])
    training.optimizer.max_grad_norm = 0.1
    if mode:
        training.model.max_grad_norm = 0.1
    training.optimizer.signal_skip_step(False)
    with pytest.raises(RuntimeError, match="Found 0.1, and 1"):
        training.step(features[2:], labels[2:])
    assert training.engine.accountant.history == []


def test_adaptive_ghost_clipping():
    engine = adaptive.PrivacyEngineAdaptiveClipping(accountant="certified")
    with pytest.raises(RuntimeError, match="clipping='flat'"):
        poisson(engine=engine, grad_sample_mode="ghost")
    training = poisson(grad_sample_mode="ghost")
    training.optimizer._adjusted_noise_multiplier = 1.1  # As such an engine does.
    with pytest.raises(RuntimeError, match="clipping='flat'"):
        training.run()


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [of_shuffles, balls_and_bins])
def test_a_step_on_gradients_of_the_epoch_before(make, workers, mode):
    """As after an epoch that was broken off; all batches may have one size."""
    training = make(loader=shuffled(num_workers=workers), grad_sample_mode=mode)
    for features, labels in training.loader:
        training.loss(training.model(features), labels).backward()
        break
    with pytest.raises(RuntimeError, match="gradients of an earlier epoch"):
        for _ in training.loader:
            training.optimizer.step()
    assert len(training.engine.accountant) == 0
    training.optimizer.zero_grad()
    training.run()
    assert len(training.engine.accountant) == STEPS


def sum_twice(training):
    for features, labels in training.loader:
        for _ in range(2):
            training.loss(training.model(features), labels).backward()
        training.optimizer.step()


def step_on_the_last_epoch(training):
    kept = [batch for batch in training.run().loader]
    training.run(kept)
    for _ in training.loader:
        training.step(*kept[0])
        training.step(*kept[1])


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("make", [of_shuffles, balls_and_bins])
@pytest.mark.parametrize(
    ("run", "counted"),
    [(sum_twice, 0), (train_twice_on_each, 1), (step_on_the_last_epoch, 41)],
)
def test_batches_that_are_used_twice_while_workers_draw(make, run, counted, persistent):
    loader = shuffled(num_workers=2, persistent_workers=persistent)
    training = make(loader=loader)
    with pytest.raises(RuntimeError, match="same ones again|several gradients"):
        run(training)
    assert len(training.engine.accountant) in (counted, counted - 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_one_epoch_are_summed(workers):
    training = balls_and_bins(loader=shuffled(num_workers=workers)).run_on_sums(2)
    half = ext.RandomAllocationEvent(STEP, 1, STEPS // 2)
    assert training.engine.accountant.history == [(1.0, 2 / STEPS, STEPS // 2)]
    assert training.epsilon() == epsilon(half, 1)


def test_parts_of_batches_that_are_drawn_ahead_are_not_summed():
    """Of a manager of memory it is not known which batches it handed out."""
    training = of_shuffles(loader=shuffled(num_workers=1))
    with (
        batch_memory_manager.BatchMemoryManager(
            data_loader=training.loader,
            max_physical_batch_size=BATCH,
            optimizer=training.optimizer,
        ) as loader,
        pytest.raises(RuntimeError, match="write num_workers=0"),
    ):
        for features, labels in loader:
            for _ in range(2):
                training.loss(training.model(features), labels).backward()
            training.optimizer.step()
    assert training.engine.accountant.history == []


def plain_alone(training):
    training.run(optimizer=training.plain)


def plain_beside(training):
    for features, labels in training.loader:
        training.step(features, labels)
        training.plain.step()


def another_hook(training):
    training.optimizer.attach_step_hook(lambda optimizer: None)
    training.run()


@pytest.mark.parametrize("mode", [{}, GHOST])
@pytest.mark.parametrize(
    ("run", "counted"), [(plain_alone, 0), (plain_beside, 1), (another_hook, 0)]
)
def test_steps_that_are_not_counted(run, counted, mode):
    """Their gradients have no noise, or noise of which the accountant is not told."""
    training = poisson(**mode)
    before = training.original.weight.detach().clone()
    with pytest.raises(RuntimeError, match=r"SGD must be one that .* optimizer.step()"):
        run(training)
    assert len(training.engine.accountant) == counted
    assert torch.equal(before, training.original.weight) == (counted == 0)
    again = opacus.PrivacyEngine(accountant="rdp")
    standard = training.model.to_standard_module()
    _, made, _ = made_private(again, standard, training.plain)
    made.original_optimizer.step()  # Another engine's is its own.


def seed_after_each_step(training):
    for batch in training.loader:
        training.step(*batch)
        torch.manual_seed(0)


def seed_the_noise(training):
    for batch in training.loader:
        training.optimizer.generator = torch.Generator().manual_seed(0)
        training.step(*batch)


@pytest.mark.parametrize("run", [seed_after_each_step, seed_the_noise])
def test_noise_that_is_that_of_an_earlier_step(run):
    """Its difference is known, so that two steps reveal gradients without noise."""
    for training in (poisson(), balls_and_bins()):
        with pytest.raises(RuntimeError, match="The noise of this step is that of"):
            run(training)
        assert len(training.engine.accountant) <= 2
    nothing = poisson()
    nothing.optimizer.noise_multiplier = 0.0
    assert nothing.run().epsilon() == float("inf")


class Numbers(data.Dataset):
    def __len__(self):
        return RECORDS

    def __getitem__(self, place):
        return place


class WithoutLength(data.Dataset):
    def __getitem__(self, place):
        return torch.ones(3), 0


def loaded(state, name="certified"):
    opacus.PrivacyEngine(accountant=name).accountant.load_state_dict(state)


def planned(history):
    opacus.PrivacyEngine(accountant="certified").accountant.history = history


def drawn_with(generator):
    accountant = opacus.PrivacyEngine(accountant="balls_and_bins").accountant
    certified.balls_and_bins(shuffled(), accountant, generator=generator)


NONE = None
SUM_OF_TWO = types.SimpleNamespace(accumulated_iterations=2, noise_multiplier=1.0)
STATE = {"history": [(1.0, 0.1, 2)], "mechanism": "certified"}
MISUSED = [
    ("noise_multiplier must", lambda: poisson(noise_multiplier=None)),
    ("max_grad_norm must", lambda: poisson(clip=0)),
    ("max_grad_norm must be a sequence", lambda: poisson(clipping="per_layer")),
    ("target_epsilon must", lambda: with_target(target_epsilon=0)),
    ("target_delta must be in", lambda: with_target(target_delta=0)),
    ("epochs must be positive", lambda: with_target(epochs=-1)),
    (r"state_dict\(\) returned. Found None", lambda: loaded(NONE)),
    ("returned. Found 'x'", lambda: loaded("x", "balls_and_bins")),
    ("privacy_accountant_state_dict", lambda: loaded({"module_state_dict": {}})),
    ("history must", lambda: loaded({**STATE, "history": NONE})),
    ("history must", lambda: loaded({**STATE, "history": [(1, 2)]})),
    ("seen must be a sequence", lambda: loaded({**STATE, "seen": 5})),
    (
        "begun must be a sequence",
        lambda: loaded({**STATE, "mechanism": "shuffled", "begun": 7}, "shuffled"),
    ),
    (r"must be in \[0, 1\]", lambda: poisson().run().engine.get_epsilon(1e5)),
    (
        "balls_and_bins",
        lambda: certified.BallsAndBinsSampler(9, 3, certified.CertifiedAccountant()),
    ),
    (
        "accumulated_iterations must be 1",
        lambda: certified.CertifiedAccountant().get_optimizer_hook_fn(0.1)(SUM_OF_TWO),
    ),
    ("history must have a noise", lambda: planned([(1, 2)])),
    ("history must be a sequence", lambda: planned(NONE)),
    (
        "sampling_probability must",
        lambda: certified.CertifiedAccountant().get_optimizer_hook_fn("1/20"),
    ),
    ("generator must be a torch.Gen", lambda: drawn_with(5)),
    (
        r"Found a int: return \(record,\) from Numbers",
        lambda: poisson(shuffled(dataset=Numbers())),
    ),
    (
        "define WithoutLength.__len__",
        lambda: poisson(data.DataLoader(WithoutLength(), batch_size=9)),
    ),
]


@pytest.mark.parametrize(("words", "make"), MISUSED)
def test_arguments_that_mean_nothing_are_named(words, make):
    """No error comes from inside of a library."""
    with pytest.raises((TypeError, ValueError, RuntimeError), match=words) as raised:
        make()
    assert "dp_accounting_ext" in str(raised.traceback[-1].path)


def test_uses_that_are_right():
    """A closure, an optimizer that is made private twice, and a deep copy."""
    training = poisson()
    for features, labels in training.loader:

        def again(features=features, labels=labels):
            training.optimizer.zero_grad()
            loss = training.loss(training.model(features), labels)
            loss.backward()
            return loss

        training.optimizer.step(again)
    assert training.epsilon() == epsilon(SAMPLED, STEPS)
    kept = copy.deepcopy(training.engine.accountant)
    assert kept.get_epsilon(DELTA) == training.epsilon()
    engine = opacus.PrivacyEngine(accountant="certified")
    training.model, training.optimizer, training.loader = made_private(
        engine, training.model, training.optimizer
    )
    training.run()
    assert engine.get_epsilon(DELTA) == epsilon(SAMPLED, STEPS)


def test_iterators_that_alternate():
    training = balls_and_bins()
    first, second = iter(training.loader), iter(training.loader)
    training.step(*next(first))
    training.step(*next(second))
    with pytest.raises(RuntimeError, match="must not alternate"):
        training.step(*next(first))


def test_a_run_that_is_resumed_with_another_sampler(tmp_path):
    first = poisson().run()
    path = tmp_path / "checkpoint"
    first.engine.save_checkpoint(path=path, module=first.model)
    for name, options in (
        ("balls_and_bins", {"wrap": True, "poisson_sampling": False}),
        ("shuffled", {"poisson_sampling": False}),
    ):
        second = Training(name, **options)
        with pytest.raises(ValueError, match="cannot be loaded"):
            second.engine.load_checkpoint(path=path, module=second.model)
    engine = opacus.PrivacyEngine(accountant="certified")
    engine.accountant.load_state_dict(first.engine.accountant.state_dict())
    with pytest.raises(RuntimeError, match="accountant='shuffled'"):
        poisson(engine=engine, poisson_sampling=False)
    assert engine.get_epsilon(DELTA) == first.epsilon()


@pytest.mark.parametrize("name", ["prv", "rdp", "gdp"])
@pytest.mark.filterwarnings("ignore:GDP accounting is experimental")
def test_a_checkpoint_of_an_accountant_of_opacus(name, tmp_path):
    """The line that the error names resumes it; the loader goes on where it was."""
    first = Training(name).run()
    path = tmp_path / "checkpoint"
    first.engine.save_checkpoint(path=path, module=first.model)
    for other in ("certified", "balls_and_bins", "shuffled"):
        engine = opacus.PrivacyEngine(accountant=other)
        with pytest.raises(ValueError, match=r"\*\*state_dict, 'mechanism': 'certi"):
            engine.load_checkpoint(path=path, module=first.model)
    checkpoint = torch.load(path, weights_only=False)
    state = checkpoint["privacy_accountant_state_dict"]
    second = poisson()
    second.engine.accountant.load_state_dict({**state, "mechanism": "certified"})
    assert second.epsilon() == epsilon(SAMPLED, STEPS)
    assert second.run().epsilon() == epsilon(SAMPLED, 2 * STEPS)


def test_a_look_beforehand():
    told = {
        "certified": ("Poisson samples, 20 an epoch, of 640", "ADD_OR_REMOVE_ONE"),
        "balls_and_bins": ("balls-and-bins batches, 20", "ADD_OR_REMOVE_ONE"),
        "shuffled": ("shuffled or fixed batches, 20", "REPLACE_ONE"),
    }
    for training in (poisson(), balls_and_bins(), of_shuffles()):
        engine = training.engine
        sentence = certified.check(engine, training.loader)
        assert all(x in sentence for x in told[engine.accountant.mechanism()])
    with pytest.raises(RuntimeError, match="balls_and_bins"):
        certified.check(balls_and_bins().engine, shuffled())
    with pytest.raises(RuntimeError, match="that make_private returned"):
        certified.check(of_shuffles().engine, shuffled())
    with pytest.raises(RuntimeError, match="that make_private returned"):
        certified.check(of_shuffles().engine, of_shuffles().loader)
    with pytest.raises(TypeError, match="accountant='certified'"):
        certified.check(opacus.PrivacyEngine(accountant="rdp"), shuffled())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (poisson, "Poisson samples: 20 steps with noise"),
        (balls_and_bins, "balls-and-bins batches: 20 steps with noise"),
        (of_shuffles, "shuffled or fixed batches: 20 steps with noise"),
    ],
)
def test_a_statement_of_what_ran(make, words):
    training = make()
    with pytest.raises(ValueError, match="must have run a step. Found none"):
        certified.statement(training.engine, DELTA)
    training.run()
    text = " ".join(certified.statement(training.engine, DELTA).split())
    assert words in text and "multiplier 1.0 and sampling rate 0.05. At δ" in text
    said = float(text.split("at most ")[1].split(" if one record is ")[0])
    assert training.epsilon() <= said <= training.epsilon() * 1.001
    is_replaced = training.engine.accountant.neighboring_relation is REPLACED
    assert f"is {'replaced by another' if is_replaced else 'added or removed'}." in text
    training.optimizer.noise_multiplier = 2.0
    training.run()
    text = " ".join(certified.statement(training.engine, DELTA).split())
    assert "; 20 steps with noise multiplier 2.0" in text
    with pytest.raises(ValueError, match="delta must be"):
        certified.statement(training.engine, 1.0)
    with pytest.raises(TypeError, match="engine must be"):
        certified.statement(training.engine.accountant, DELTA)


@pytest.mark.parametrize("mode", [{}, {"grad_sample_mode": "functorch"}, GHOST])
@pytest.mark.parametrize("workers", [0, 2])
def test_right_runs_have_the_digits_of_their_event(mode, workers):
    training = poisson(shuffled(num_workers=workers), **mode).run().run()
    accountant = training.engine.accountant
    assert accountant.history == [(1.0, 1 / STEPS, 2 * STEPS)]
    assert len(accountant) == 2 * STEPS
    assert training.epsilon() == epsilon(SAMPLED, 2 * STEPS)
    lower, upper = accountant.get_epsilon_bounds(DELTA)
    assert lower <= upper == training.epsilon()
    assert risk.advantage(accountant.pld_accountant())[1] < 1
    training = balls_and_bins(loader=shuffled(num_workers=workers), **mode).run().run()
    assert training.epsilon() == epsilon(EPOCH, 2)


def test_shuffled_batches_are_as_good_as_known():
    training = of_shuffles().run().run()
    for number, batch in enumerate(training.loader):  # An epoch that ends early.
        training.step(*batch)
        if number == 4:
            break
    assert training.epsilon() == epsilon(STEP, 3, REPLACED)
    training.optimizer.noise_multiplier = 2.0
    for number, batch in enumerate(training.loader):
        training.step(*batch)
        if number == 4:
            training.optimizer.noise_multiplier = 1.0
    assert training.epsilon() == epsilon(STEP, 4, REPLACED)
    half = of_shuffles(loader=ordered(HALF)).run()
    assert half.epsilon() == epsilon(STEP, 1, REPLACED)
    assert len(half.engine.accountant) == STEPS / 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pause_to_evaluate_on_the_same_loader(workers):
    """Batches of another iterator come between, and no step is on them."""
    loader = shuffled(num_workers=workers)
    for training, event, count in (
        (poisson(loader), SAMPLED, STEPS),
        (balls_and_bins(loader=loader), EPOCH, 1),
        (of_shuffles(loader=loader), STEP, 1),
    ):
        for number, batch in enumerate(training.loader):
            training.step(*batch)
            if number == 7:
                assert sum(len(x) for x, _ in training.loader)
        relation = training.engine.accountant.neighboring_relation
        assert training.epsilon() == epsilon(event, count, relation)


def test_a_loop_without_make_private():
    engine = opacus.PrivacyEngine(accountant="certified")
    loader = opacus_loaders.DPDataLoader.from_data_loader(shuffled())
    engine.accountant.watch(loader)
    assert "Poisson" in certified.check(engine, loader)
    model = opacus.GradSampleModule(torch.nn.Linear(3, 2))
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(1 / STEPS))
    for features, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    assert engine.get_epsilon(DELTA) == epsilon(SAMPLED, STEPS)


def test_noise_of_a_number_of_steps_that_was_rounded_down():
    """Of so many epochs at one over a length, int() may be one too few."""
    for name in ("certified", "balls_and_bins", "shuffled"):
        accountant = opacus.accountants.create_accountant(name)
        found = []
        for steps in (97, 98):
            accountant.history = [(1.0, 1 / 49, steps)]
            found.append(accountant.get_epsilon(DELTA))
        assert found[0] == found[1]
        accountant.load_state_dict({"history": [(1.0, 1 / 49, 97)], "mechanism": name})
        assert accountant.history == [(1.0, 1 / 49, 97)]
        fewer = accountant.get_epsilon(DELTA)
        assert fewer <= found[0] and (fewer < found[0] or name == "shuffled")
