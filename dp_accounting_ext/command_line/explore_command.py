"""The subcommand explore: a page with sliders, which shows the privacy of a run."""

import argparse
from typing import Any

from dp_accounting_ext.command_line import explorer
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.command_line import workers
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext explore --dataset-size 60000 --batch-size 256

A page in the browser, from this machine to itself. Its sliders begin at the
options. It shows certified bounds for each way of drawing batches, what
membership tests find, a sentence to quote, and the commands and the Python
that give the same. It ends at Ctrl-C. It needs Panel: pip install '.[explore]'.
"""
_BEGIN = {"dataset_size": 60_000, "batch_size": 256, "epochs": 30, "delta": 1e-6}


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "a page with sliders: bounds, membership tests, and a sentence to quote"
    command = parser.add_command(commands, "explore", _explore, words, _EPILOG, "")
    others = "sampling_rate", "steps_per_epoch", "batches_per_record", "num_steps"
    parser.add_run(command, *others, "strategy", "noise_multiplier")
    noise = command.add_mutually_exclusive_group()
    words = "standard deviation of the noise, over the clip"
    parser.add(noise, "noise_multiplier", float, words, default=1.1)
    parser.add(noise, "epsilon", float, "ε to be met, in place of a noise multiplier")
    parser.add(command, "port", int, "of the page; 0 for any", default=0)
    parser.add(command, "quiet", bool, "open no browser")
    command.set_defaults(**_BEGIN)


def _explore(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    serve(run, options.epsilon, options.port, show=not options.quiet)
    return {}, "The page has ended."


def serve(
    run: training_run.TrainingRun, target: float | None, port: int, *, show: bool
) -> None:
    """Shows the page of a run until Ctrl-C, in a browser that it opens if asked to."""
    if target is not None:
        calibration.positive_target("epsilon", target)
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to 65535. Found {port}.")
    workers.prepare()  # It imports while this process does.
    import panel

    try:
        server = panel.serve(
            lambda: explorer.Page(panel, run, target).view,
            port=port,
            address="127.0.0.1",
            title="dp_accounting_ext",
            show=show,
            start=False,
            verbose=False,
        )
    except OSError as error:
        words = f"port must be free, or 0 for any. Found {port}: {error.strerror}."
        raise ValueError(words) from None
    text.write(f"The page is http://localhost:{server.port}/ and ends at Ctrl-C.")
    server.start()
    try:
        server.io_loop.start()
    except KeyboardInterrupt:
        server.stop()
