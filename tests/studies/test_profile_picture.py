"""Every profile is a curve that is told from the others, or a sentence."""

import dataclasses
import itertools

import pytest

from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import profile_picture
from dp_accounting_ext.studies import training_run

SIZES = (1, 4, 16)


def profile(scheme, size):
    return delta_profile.Profile(scheme, size, (0.1, 1.0), (0.5, 0.1), (0.6, 0.2), 0.0)


ALL = [profile(*each) for each in itertools.product(training_run.SCHEMES, SIZES)]


def test_every_profile_is_a_band_with_a_name_and_a_look_of_its_own():
    picture = profile_picture.picture(ALL, title="title", smallest_delta=1e-9)
    (panel,) = picture.panels
    assert len(panel.curves) == len(ALL)
    assert len({curve.label for curve in panel.curves}) == len(ALL)
    assert len({curve.look for curve in panel.curves}) == len(ALL)
    for curve, each in zip(panel.curves, ALL, strict=True):
        assert (curve.x, curve.lower) == (each.epsilons, each.delta_lower)
        assert curve.upper == each.delta_upper
    assert panel.y_limits == (1e-9, 1.0)


def test_poisson_sampling_is_dashed_on_the_broad_line_of_random_allocation():
    picture = profile_picture.picture(ALL, title="", smallest_delta=1e-9)
    curves = {curve.label: curve.look for curve in picture.panels[0].curves}
    assert curves["random allocation"].dashes is drawing.Dashes.SOLID
    assert curves["random allocation"].kind is drawing.Kind.BROAD
    assert curves["Poisson sampling"].dashes is drawing.Dashes.DASHED
    assert curves["Poisson sampling"].kind is drawing.Kind.LINE


def test_a_chain_is_told_in_its_label_and_below():
    chained = dataclasses.replace(ALL[0], group_size=4, note="chained")
    picture = profile_picture.picture([*ALL, chained], title="", smallest_delta=1e-9)
    labels = [curve.label for curve in picture.panels[0].curves]
    assert labels[-1] == f"{ALL[0].scheme}, groups of 4 (chained)"
    assert "no tight bound is known" in picture.note
    plain = profile_picture.picture(ALL, title="", smallest_delta=1e-9)
    assert plain.note == "Certified bands."


@pytest.mark.parametrize(
    ("size", "name"),
    [(1, "Poisson sampling"), (16, "Poisson sampling, groups of 16")],
)
def test_single_records_are_no_group(size, name):
    assert profile_picture.label(profile("Poisson sampling", size)) == name
