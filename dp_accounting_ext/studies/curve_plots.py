"""How curves are drawn: axes, styles, and a note below."""

from typing import Any

from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.studies import training_run

Accountant = pld_accountant.PLDAccountant

# Colours that colour-blind readers can distinguish (Okabe and Ito), and dashes, so that
# curves can be distinguished without colours. Marks stand for sizes of groups.
STYLES: dict[str, dict[str, Any]] = {
    training_run.RANDOM_ALLOCATION: {"color": "#0072B2", "linestyle": "-"},
    training_run.POISSON_SAMPLING: {"color": "#D55E00", "linestyle": "--"},
    training_run.NO_AMPLIFICATION: {"color": "#000000", "linestyle": ":"},
    training_run.SHUFFLED: {"color": "#009E73", "linestyle": "-."},
}
MARKS = ("", "o", "s", "^", "v", "D", "*", "x")
_NOTE = "Certified: the truth is on the line, or in its shade."
TITLE_LETTERS = 66
_BELOW_AXES = -0.45  # The distance below the axes at which their labels end, in inches.


def axes_of(ax: Any) -> Any:
    """Returns the given axes, or the axes of a new figure of pyplot."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def explain(ax: Any) -> None:
    """Puts a legend of two columns below the axes, and makes room for it."""
    from matplotlib import transforms

    whole = ax.figure.figure  # If it is a subfigure, this is the whole figure.
    if whole.get_layout_engine() is None:
        whole.set_layout_engine("constrained")
    below = transforms.ScaledTranslation(0, _BELOW_AXES, whole.dpi_scale_trans)
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        borderaxespad=0,
        ncols=2,
        columnspacing=1,
        frameon=False,
        fontsize="x-small",
        title=_NOTE,
        title_fontsize="x-small",
        alignment="left",
    )
