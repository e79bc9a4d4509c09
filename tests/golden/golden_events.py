"""Events of golden rows as JSON, and what the package says of a row."""

import functools
import json
from typing import Any

import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import newer_events
import registered

import dp_accounting_ext as ext
from dp_accounting_ext import wpm
from dp_accounting_ext.reading import event_table

# Of no δ or power below it is asked how wide its bracket is.
RARE = 1e-300

event_table.register_stock_events(newer_events.MODULE)
_HOMES = (stock, ext, registered, newer_events.MODULE, wpm)


def encoded(event: Any) -> Any:
    """Returns an event as [name, fields …], lists and numbers as they are."""
    if isinstance(event, dp_accounting.DpEvent):
        fields = [getattr(event, f.name) for f in type(event).__attrs_attrs__]
        return {type(event).__name__: [encoded(field) for field in fields]}
    if isinstance(event, list | tuple):
        return [encoded(item) for item in event]
    return event


def decoded(value: Any) -> Any:
    """Returns the event that was encoded."""
    if isinstance(value, dict):
        ((name, fields),) = value.items()
        home = next(home for home in _HOMES if hasattr(home, name))
        return getattr(home, name)(*map(decoded, fields))
    return [decoded(item) for item in value] if isinstance(value, list) else value


@functools.lru_cache(maxsize=8)  # Rows of one event stand side by side.
def _composed(event: str, relation: str) -> ext.PLDAccountant:
    accountant = ext.PLDAccountant(privacy_accountant.NeighboringRelation[relation])
    return accountant.compose(decoded(json.loads(event)))


def bracket(row: dict[str, Any]) -> tuple[float, float]:
    """Returns what the package says of a row, from both sides; zero where it does not.

    The pure bound at an order of Rényi has no lower one in the accountant.
    """
    if row["what"] == "renyi":
        relation = privacy_accountant.NeighboringRelation[row["relation"]]
        accountant = ext.RdpAccountant([row["at"]], neighboring_relation=relation)
        return row["low"], float(accountant.compose(decoded(row["event"])).rdp[0])
    accountant = _composed(json.dumps(row["event"]), row["relation"])
    asked = {
        "power": accountant.get_true_positive_rate_bounds,
        "delta": accountant.get_delta_bounds,
        "epsilon": accountant.get_epsilon_bounds,
    }
    return asked[row["what"]](row["at"])
