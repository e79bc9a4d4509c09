"""calibrate as a shell user meets it."""

from command_runner import run

from dp_accounting_ext.studies import training_run

COMMAND = "calibrate --steps-per-epoch 10 --epochs 2 --epsilon 2 --delta 1e-6"


def test_the_printed_noise_is_certified(capsys):
    status, table, err = run(capsys, COMMAND)
    assert (status, err) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("noise multiplier for ε ≤ 2 at δ = 1e-06, 1 of 10")
    for line, scheme in zip(lines[3:], training_run.SCHEMES, strict=False):
        assert line.startswith(scheme)
        noise, lower, upper = map(float, line[len(scheme) :].split()[:3])
        setting = training_run.TrainingRun(noise, 10, 1, 2, sampling=scheme)
        bounds = setting.accountant().get_epsilon_bounds(1e-6)
        assert lower <= bounds[0] <= bounds[1] <= upper <= 2


def test_no_noise_makes_epsilon_zero(capsys):
    status, _, err = run(capsys, COMMAND.replace("--epsilon 2", "--epsilon 0"))
    assert status == 2 and "--epsilon must be positive" in err
    assert "for 0 no noise is enough; 0.001 is hardly more" in err
