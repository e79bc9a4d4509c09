"""wpm as a shell user meets it."""

import json

from command_runner import run
import pytest


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

    def test_the_law_is_shown_where_it_is_asked_for(self, capsys, files):
        status, text, err = self.wpm(capsys, files, "--epsilon 2 --show-law")
        assert status == 0
        assert "warning: the law is as private as the input" in err
        second = text.splitlines()[1].removeprefix("distribution: ")
        law = [float(share) for share in second.split(",")]
        assert len(law) == 3
        assert sum(law) == pytest.approx(1.0, abs=1e-15)
        assert law[1] == max(law)

    def test_json(self, capsys, files):
        _, text, _ = self.wpm(capsys, files, "--epsilon 2 --json")
        assert set(json.loads(text)) == {"sample"}
        _, text, _ = self.wpm(capsys, files, "--epsilon 2 --json --show-law")
        assert set(json.loads(text)) == {"distribution", "sample"}

    def test_counts(self, capsys, files):
        (files / "counts.csv").write_text("1,3,0\n")
        laws = [
            self.wpm(capsys, files, "--epsilon 2 --show-law", masses=name)[1]
            for name in ("mu.csv", "counts.csv")
        ]
        assert len({law.splitlines()[1] for law in laws}) == 1

    @pytest.fixture
    def places(self, tmp_path):
        (tmp_path / "places.csv").write_text("48.85,2.35\n48.86,2.29\n48.89,2.34\n")
        (tmp_path / "trace.csv").write_text("48.851,2.351\n48.852,2.35\n48.86,2.29\n")
        (tmp_path / "far.csv").write_text("91.23456,2.0\n")
        return tmp_path

    def test_points_and_a_trace(self, capsys, places):
        command = f"wpm --points {places / 'places.csv'} --trace {places / 'trace.csv'}"
        command += " --epsilon 9 --metric haversine --show-law"
        status, text, _ = run(capsys, command)
        assert status == 0
        law = text.splitlines()[2].removeprefix("distribution: ").split(",")
        assert float(law[0]) == pytest.approx(2 / 3, abs=0.05)

    def test_a_crowd_has_a_row_a_user_and_a_draw_a_row(self, capsys, files, places):
        (files / "crowd.csv").write_text("a,b,c\n1,0,0\n0,3,0\n0,0,5\n9,9,9\n")
        rest = "--epsilon 9 --show-law --json"
        found = json.loads(self.wpm(capsys, files, rest, masses="crowd.csv")[1])[
            "draws"
        ]
        assert [set(each) for each in found] == [{"sample", "distribution"}] * 4
        for row in range(3):
            law = found[row]["distribution"]
            assert max(law) == law[row] > 0.9
        named = places / "named.csv"
        named.write_text("lat,lon,name\n48.85,2.35,A\n48.86,2.29,B\n48.89,2.34,C\n")
        command = (
            f"wpm --points {named} --distribution {files / 'crowd.csv'} --epsilon 1"
        )
        status, text, err = run(capsys, f"{command} --metric haversine")
        assert (status, err) == (0, "")
        lines = text.splitlines()
        assert lines[0] == "sample,name,lat,lon" and len(lines) == 5
        for line in lines[1:]:
            place = int(line[0])
            assert (
                line
                == f"{place}," + ["A,48.85,2.35", "B,48.86,2.29", "C,48.89,2.34"][place]
            )
        # One row is one user, whose draw is as it was.
        (files / "one.csv").write_text("0,3,0\n")
        assert set(
            json.loads(
                self.wpm(capsys, files, "--epsilon 1 --json", masses="one.csv")[1]
            )
        ) == {"sample"}
        (files / "empty.csv").write_text("1,0,0\n0,0,0\n0,5,0\n")
        status, _, err = self.wpm(capsys, files, "--epsilon 1", masses="empty.csv")
        assert status == 2 and "distribution must have some mass in each row" in err

    def test_a_public_trace_that_is_swapped_is_told_by_a_plan(self, capsys, places):
        plan = (
            f"wpm plan --points {places / 'places.csv'} --epsilon 2 --metric haversine"
        )
        status, text, err = run(capsys, f"{plan} --public-trace {places / 'trace.csv'}")
        assert (status, err) == (0, "") and "half of the public trace" in text
        assert max(map(len, text.splitlines())) <= 80
        (places / "swapped.csv").write_text("2.351,48.851\n2.35,48.852\n")
        swapped = f"{plan} --public-trace {places / 'swapped.csv'}"
        status, text, err = run(capsys, f"{swapped} --json")
        assert status == 0 and json.loads(text)["distance_of_public_trace"] > 5000
        assert "--public-trace must be near the points." in err and err.count("\n") == 1
        assert err.endswith("; with their two columns swapped they are near.\n")

    def test_a_private_trace_that_is_swapped_is_drawn_from_in_silence(
        self, capsys, places
    ):
        (places / "swapped.csv").write_text("2.351,48.851\n2.35,48.852\n")
        command = f"wpm --points {places / 'places.csv'} --epsilon 2 --metric haversine"
        for name in ("trace", "swapped"):
            status, _, err = run(capsys, f"{command} --trace {places / name}.csv")
            assert (status, err) == (0, "")

    def test_what_goes_with_points_and_plans_alone(self, capsys, files, places):
        draw = f"wpm --points {places / 'places.csv'} --epsilon 2"
        for rest, message in [
            (
                f"--public-trace {places / 'trace.csv'}",
                "--public-trace must come with pla",
            ),
            ("--encoding klingon --trace x", "encoding must be one that Python knows"),
        ]:
            status, _, err = run(capsys, f"{draw} {rest}")
            assert status == 2 and message in err and err.count("\n") == 1
        for rest in ("--columns 1,2", f"--trace {places / 'trace.csv'}"):
            command = f"wpm --cost {files / 'cost.csv'} --epsilon 1 {rest}"
            status, _, err = run(capsys, command)
            assert status == 2 and "must " in err and err.count("\n") == 1

    def test_a_line_of_names_is_passed_over(self, capsys, places):
        named = places / "named.csv"
        named.write_text("latitude,longitude\n" + (places / "places.csv").read_text())
        command = f"wpm --points {named} --trace {named} --epsilon 9 --show-law"
        status, text, _ = run(capsys, command)
        assert status == 0
        assert text.splitlines()[2].count(",") == 2
        # A number that is misspelt beside another is no name.
        named.write_text("48.85,2.x5\n" + (places / "places.csv").read_text())
        assert run(capsys, command)[0] == 2

    def test_points_and_masses(self, capsys, places):
        (places / "mu.csv").write_text("0.5,0.25,0.25\n")
        command = f"wpm --points {places / 'places.csv'} --epsilon 1 --order 2"
        status, _, _ = run(capsys, f"{command} --distribution {places / 'mu.csv'}")
        assert status == 0

    def test_a_place_has_its_name_and_coordinates(self, capsys, places):
        named = places / "named.csv"
        named.write_text("name,lat,lon\nLouvre,48.85,2.35\nEiffel,48.86,2.29\n")
        command = f"wpm --points {named} --trace {places / 'trace.csv'} --epsilon 2"
        command += " --metric haversine"
        _, text, err = run(capsys, command)
        sample, name, coordinates = text.splitlines()
        place = int(sample.removeprefix("sample: "))
        assert name == f"name: {['Louvre', 'Eiffel'][place]}"
        assert coordinates == f"coordinates: {['48.85,2.35', '48.86,2.29'][place]}"
        assert err == ""
        found = json.loads(run(capsys, command + " --json")[1])
        assert set(found) == {"sample", "name", "coordinates"}

    def test_columns_of_costs_may_have_names(self, capsys, files):
        (files / "named.csv").write_text("a,b,c\n0,1,4\n1,0,1\n4,1,0\n")
        _, text, _ = self.wpm(capsys, files, "--epsilon 2", cost="named.csv")
        sample, name = text.splitlines()
        assert name == f"name: {'abc'[int(sample.removeprefix('sample: '))]}"

    def test_degrees_in_a_plane_are_warned_of(self, capsys, places):
        command = f"wpm --points {places / 'places.csv'} --epsilon 2"
        command += f" --trace {places / 'trace.csv'}"
        assert "--metric should be haversine" in run(capsys, command)[2]
        assert run(capsys, command + " --metric euclidean")[2] == ""
        square = places / "square.csv"
        square.write_text("0.5,0.25\n-0.5,0.75\n")
        plan = f"wpm plan --points {square} --epsilon 2"
        assert run(capsys, plan)[2] == ""

    def test_a_plan_is_true(self, capsys):
        command = "wpm plan --num-places 200 --epsilon 2 --json"
        found = json.loads(run(capsys, command)[1])
        assert found["most_that_stays"] < found["most_that_stays_with_any_draw"] < 0.04
        assert found["cost_of_average_user"] < found["cost_of_a_place_at_random"]
        assert found["cost_of_average_user"] < found["cost_of_worst_user"]
        text = run(capsys, command.removesuffix(" --json"))[1]
        assert text.startswith("200 places, ε = 2\n")
        assert max(map(len, text.splitlines())) <= 80


BAD_LINES = [
    ("latitude,longitude\n1,2\n\n3,here\n", "'here' in line 4 of"),
    ("1,2\n3,4,5\n", "3 cells in place of 2 in line 2 of"),
]


@pytest.mark.parametrize(("content", "message"), BAD_LINES)
def test_a_bad_line_is_named_and_shown_if_it_is_public(
    capsys, tmp_path, content, message
):
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    bad.write_text(content)
    good.write_text("1,2\n3,4\n")
    for public in ("--points", "--cost", f"--points {good} --base-measure"):
        command = f"wpm {public} {bad} --distribution {good} --epsilon 1"
        status, _, err = run(capsys, command)
        assert status == 2 and f"Found {message}" in err and err.count("\n") == 1
    where = message[message.index("in line") :]
    for private in ("--trace", "--distribution"):
        command = f"wpm --points {good} {private} {bad} --epsilon 1"
        status, _, err = run(capsys, command)
        assert status == 2 and f"{private} must be" in err
        assert f"Found something else {where}" in err and "'here'" not in err


def test_what_would_do_is_named(capsys, tmp_path):
    spaces, good = tmp_path / "spaces.csv", tmp_path / "good.csv"
    spaces.write_text("0 1\n1 0\n")
    good.write_text("0,1\n1,0\n")
    for options, message in [
        (
            f"--cost {spaces}",
            f"separated by commas. Found no column of numbers in {spaces}",
        ),
        (f"--cost {good} --base-measure minmax", "uniform, minimax, or a file of"),
    ]:
        status, _, err = run(capsys, f"wpm plan {options} --epsilon 1")
        assert status == 2 and message in err and err.count("\n") == 1
