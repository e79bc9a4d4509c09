"""What the README shows runs as it stands."""

import pathlib
import re

from dp_accounting_ext import event_table

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_every_python_block_runs(monkeypatch):
    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    lower, upper = namespace["accountant"].get_epsilon_bounds(1e-6)
    assert lower <= upper == namespace["epsilon"]
