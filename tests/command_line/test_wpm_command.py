"""wpm as a shell user meets it."""

import json
import sys
import time

from command_runner import run
import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.command_line import columns
from dp_accounting_ext.command_line import tables


class TestWpm:
    @pytest.fixture
    def files(self, tmp_path):
        (tmp_path / "cost.csv").write_text("0,1,4\n1,0,1\n4,1,0\n")
        (tmp_path / "mu.csv").write_text("0.25\n0.75\n0\n")
        (tmp_path / "m.csv").write_text("0.2,0.6,0.2\n")
        (tmp_path / "bad.csv").write_text("0.25,secret,0\n")
        return tmp_path

    def wpm(self, capsys, files, rest, cost="cost.csv", masses="mu.csv"):
        command = f"wpm --cost {files / cost} --distribution {files / masses} {rest}"
        return run(capsys, command)

    @pytest.mark.parametrize("measure", ["uniform", "minimax", "m.csv"])
    def test_the_draw_alone(self, capsys, files, measure):
        if measure.endswith("csv"):
            measure = files / measure
        rest = f"--epsilon 2 --base-measure {measure}"
        status, text, err = self.wpm(capsys, files, rest)
        assert (status, err) == (0, "")
        assert int(text.removeprefix("sample: ")) in range(3)
        assert set(json.loads(self.wpm(capsys, files, f"{rest} --json")[1])) == {
            "sample"
        }

    def test_the_law_is_shown_where_it_is_asked_for(self, capsys, files):
        status, text, err = self.wpm(capsys, files, "--epsilon 2 --show-law")
        assert status == 0
        assert "warning: the law is as private as the input" in err
        second = text.splitlines()[1].removeprefix("distribution: ")
        law = [float(share) for share in second.split(",")]
        assert len(law) == 3
        assert sum(law) == pytest.approx(1.0, abs=1e-15)
        assert law[1] == max(law)

    @pytest.fixture
    def places(self, tmp_path):
        files = {
            "places.csv": "48.85,2.35\n48.86,2.29\n48.89,2.34\n",
            "trace.csv": "48.851,2.351\n48.852,2.35\n48.86,2.29\n",
        }
        for name, rows in files.items():
            (tmp_path / name).write_text(f"lat,lon\n{rows}")
        (tmp_path / "far.csv").write_text("91.23456,2.0\n")
        return tmp_path

    def test_a_crowd_has_a_row_a_user_and_a_draw_a_row(self, capsys, files, places):
        (files / "crowd.csv").write_text("1,0,0\n0,3,0\n0,0,5\n9,9,9\n")
        rest = "--epsilon 9 --show-law --json"
        out = self.wpm(capsys, files, rest, masses="crowd.csv")[1]
        found = json.loads(out)["draws"]
        assert [set(each) for each in found] == [{"sample", "distribution"}] * 4
        for row in range(3):
            law = found[row]["distribution"]
            assert max(law) == law[row] > 0.9
        named = places / "named.csv"
        named.write_text("lat,lon,name\n48.85,2.35,A\n48.86,2.29,B\n48.89,2.34,C\n")
        status, text, err = run(
            capsys,
            f"wpm --points {named} --distribution {files / 'crowd.csv'} --epsilon 1 "
            "--metric haversine",
        )
        assert (status, err) == (0, "")
        head, *lines = text.splitlines()
        assert head == "sample,name,lat,lon" and len(lines) == 4
        known = ["0,A,48.85,2.35", "1,B,48.86,2.29", "2,C,48.89,2.34"]
        assert set(lines) <= set(known)
        (files / "empty.csv").write_text("1,0,0\n0,0,0\n0,5,0\n")
        status, _, err = self.wpm(capsys, files, "--epsilon 1", masses="empty.csv")
        assert status == 2 and "distribution must have some mass in each row" in err

    def test_a_public_trace_that_is_swapped_is_told_by_a_plan(self, capsys, places):
        plan = (
            f"wpm plan --points {places / 'places.csv'} --epsilon 2 --metric haversine"
        )
        status, text, err = run(capsys, f"{plan} --public-trace {places / 'trace.csv'}")
        assert (status, err) == (0, "") and "half of the public trace to" in text
        assert max(map(len, text.splitlines())) <= 80
        (places / "swapped.csv").write_text("lat,lon\n2.351,48.851\n2.35,48.852\n")
        swapped = f"{plan} --public-trace {places / 'swapped.csv'}"
        status, text, err = run(capsys, f"{swapped} --json")
        assert status == 0 and json.loads(text)["distance_of_public_trace"] > 5000
        assert "--public-trace must be near the points." in err and err.count("\n") == 1
        assert err.endswith("; with their two columns swapped they are near.\n")

    def test_a_private_trace_that_is_swapped_is_drawn_from_in_silence(
        self, capsys, places
    ):
        (places / "swapped.csv").write_text("lat,lon\n2.351,48.851\n2.35,48.852\n")
        command = f"wpm --points {places / 'places.csv'} --epsilon 2 --metric haversine"
        for name in ("trace", "swapped"):
            status, _, err = run(capsys, f"{command} --trace {places / name}.csv")
            assert (status, err) == (0, "")

    def test_a_place_has_its_name_and_coordinates(self, capsys, places):
        named = places / "named.csv"
        named.write_text("name,lat,lon\nLouvre,48.85,2.35\nEiffel,48.86,2.29\n")
        command = f"wpm --points {named} --trace {places / 'trace.csv'} --epsilon 2"
        command += " --metric haversine --order 2"
        _, text, err = run(capsys, command)
        sample, name, coordinates = text.splitlines()
        place = int(sample.removeprefix("sample: "))
        assert name == f"name: {['Louvre', 'Eiffel'][place]}"
        assert coordinates == f"coordinates: {['48.85,2.35', '48.86,2.29'][place]}"
        assert err == ""
        found = json.loads(run(capsys, command + " --json")[1])
        assert set(found) == {"sample", "name", "coordinates"}

    def test_degrees_in_a_plane_are_warned_of(self, capsys, places):
        command = f"wpm --points {places / 'places.csv'} --epsilon 2"
        command += f" --trace {places / 'trace.csv'}"
        assert "--metric should be haversine" in run(capsys, command)[2]
        assert run(capsys, command + " --metric euclidean")[2] == ""

    def test_a_plan_is_true(self, capsys):
        command = "wpm plan --num-places 200 --epsilon 2 --json"
        found = json.loads(run(capsys, command)[1])
        assert found["most_that_stays"] < found["most_that_stays_with_any_draw"] < 0.04
        assert found["cost_of_average_user"] < found["cost_of_a_place_at_random"]
        assert found["cost_of_average_user"] < found["cost_of_worst_user"]
        text = run(capsys, command.removesuffix(" --json"))[1]
        assert text.startswith("200 places, ε = 2\n")
        assert max(map(len, text.splitlines())) <= 80


def test_without_pandas_the_extra_is_named(capsys, tmp_path, monkeypatch):
    (tmp_path / "cost.csv").write_text("0,1\n1,0\n")
    monkeypatch.setitem(sys.modules, "pandas", None)
    status, out, err = run(
        capsys, f"wpm plan --cost {tmp_path / 'cost.csv'} --epsilon 1"
    )
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert err.endswith("run python -m pip install '.[files]'.\n")


class TestUsers:
    """A table of check-ins gives each user a draw."""

    VISITS = "who,when,lng,lat\n" + "".join(
        f"{user},noon,{x},{y}\n"
        for user, x, y in [
            ("bob", 2.29, 48.86),
            ("ann", 2.351, 48.85),
            ("bob", 2.29, 48.861),
            ('"Zoë, the first"', 2.34, 48.89),
            ("ann", 2.352, 48.851),
        ]
    )
    EXPECTED = (
        "user,sample,name,lat,lng,epsilon\n"
        '"Zoë, the first",2,C,48.89,2.34,60.0\n'
        "ann,0,A,48.85,2.35,60.0\n"
        "bob,1,B,48.86,2.29,60.0\n"
    )

    @pytest.fixture
    def command(self, tmp_path):
        (tmp_path / "places.csv").write_text(
            "name,lng,lat\nA,2.35,48.85\nB,2.29,48.86\nC,2.34,48.89\n"
        )
        (tmp_path / "visits.csv").write_text(self.VISITS, encoding="utf-8")
        return (
            f"wpm --points {tmp_path / 'places.csv'} --trace {tmp_path / 'visits.csv'} "
            f"--metric haversine --user who --output {tmp_path / 'draws.csv'} "
        )

    def test_a_draw_each_in_the_order_of_names(self, capsys, tmp_path, command):
        status, out, err = run(capsys, f"{command} --epsilon 60")
        assert (status, err) == (0, "")
        assert out == f"{tmp_path / 'draws.csv'}: 0 users kept, 3 added\n"
        assert (tmp_path / "draws.csv").read_text(encoding="utf-8") == self.EXPECTED

    def test_nobody_is_drawn_from_twice(self, capsys, tmp_path, command):
        run(capsys, f"{command} --epsilon 1")
        first = (tmp_path / "draws.csv").read_bytes()
        with (tmp_path / "visits.csv").open("a", encoding="utf-8") as file:
            file.write("ann,noon,2.34,48.89\ncarl,noon,2.34,48.89\n")
        assert "3 users kept, 1 added" in run(capsys, f"{command} --epsilon 1")[1]
        assert (tmp_path / "draws.csv").read_bytes().startswith(first)

    @pytest.mark.parametrize(
        ("change", "epsilon", "place"),
        [(("", ""), 59, 1), (("48.89", "48.88"), 60, 1), (("", ""), 60, 9)],
    )
    def test_draws_of_another_mechanism_are_left_alone(
        self, capsys, tmp_path, command, change, epsilon, place
    ):
        draws, drawn = (
            tmp_path / "draws.csv",
            self.EXPECTED.replace("b,1,", f"b,{place},"),
        )
        draws.write_text(drawn, encoding="utf-8")
        places = tmp_path / "places.csv"
        places.write_text(places.read_text().replace(*change))
        status, _, err = run(capsys, f"{command} --epsilon {epsilon}")
        assert status == 2 and "a row of other places or of another ε" in err
        assert draws.read_text(encoding="utf-8") == drawn

    def test_it_is_written_as_it_goes(self, capsys, tmp_path, command, monkeypatch):
        draw = wpm.WassersteinProjectionMechanism.sample
        left = iter([1, 1])

        def sample(mechanism, private):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return draw(mechanism, private)

        monkeypatch.setattr(wpm.WassersteinProjectionMechanism, "sample", sample)
        status, _, err = run(capsys, f"{command} --epsilon 60")
        assert status == 130 and "interrupted; run it again to go on" in err
        draws = tmp_path / "draws.csv"
        assert draws.read_text(encoding="utf-8") == "".join(
            self.EXPECTED.splitlines(keepends=True)[:3]
        )

    def test_names_and_rows_have_users_too(self, capsys, tmp_path):
        (tmp_path / "cost.csv").write_text("A,B\n0,1\n1,0\n")
        shapes = [
            ("user,place\n9,B\n10,A\n9,B\n", "user"),
            ("9,B\n10,A\n9,B\n", "1"),
            ("place,user,count\nB,9,2.0\nA,10,1.0\n", "user"),
            ("user,B,A\n10.0,0,1\n9.0,4,0\n", "user"),
        ]
        for number, (content, user) in enumerate(shapes):
            (tmp_path / "mu.csv").write_text(content)
            output = tmp_path / f"{number}.csv"
            status, _, err = run(
                capsys,
                f"wpm --cost {tmp_path / 'cost.csv'} --distribution "
                f"{tmp_path / 'mu.csv'} --user {user} --output {output} --epsilon 60",
            )
            assert (status, err) == (0, ""), err
            assert output.read_text() == (
                "user,sample,name,epsilon\n10,0,A,60.0\n9,1,B,60.0\n"
            )


def test_rows_that_are_left_out_are_counted(capsys, tmp_path):
    points, trace = tmp_path / "places.csv", tmp_path / "trace.csv"
    points.write_text("lat,lon\n48.85,2.35\n48.86,2.29\nNA,1\n")
    trace.write_text("lat,lon\n48.85,2.35\n,2.35\n48.85,\\N\n")
    command = f"wpm --points {points} --trace {trace} --epsilon 1 --metric haversine"
    status, out, err = run(capsys, f"{command} --drop-missing")
    assert status == 0 and out.startswith("sample: ")
    assert f"warning: 1 rows of {points} that lack a cell are left out." in err
    assert f"warning: 2 rows of {trace} that lack a cell are left out." in err


@pytest.mark.nightly
def test_many_rows_are_read_in_a_second(tmp_path):
    """Of check-ins as Gowalla has them."""
    row, path = (
        "{}\t2010-10-19T23:55:27Z\t30.23590{}\t-97.79513{}\t22847\n",
        tmp_path / "a",
    )
    path.write_text("".join(row.format(n % 3000, n, n) for n in range(170_000)))
    places = columns.Places(np.zeros((1, 2)), are_degrees=True)
    tables.read("trace", path)  # The first reading imports pandas.
    begin = time.process_time()
    visits, users = columns.trace(tables.read("trace", path), places, "3,4", "1", True)
    assert time.process_time() - begin < 2  # On a machine at rest it takes 0.7 s.
    assert visits.shape == (170_000, 2) and len(users) == 170_000
