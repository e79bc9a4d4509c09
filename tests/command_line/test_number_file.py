"""Tables of numbers as spreadsheets write them."""

import numpy as np
import pytest

from dp_accounting_ext.command_line import number_file


def test_another_encoding_must_be_one():
    with pytest.raises(ValueError, match=r"encoding must be one .* Found 'klingon'"):
        number_file.csv_file.read("it must be", b"1,2", "it", "klingon")


def test_a_table_of_costs_may_come_from_a_spreadsheet(tmp_path):
    path = tmp_path / "cost.csv"
    costs = np.array([[0.0, 1.5], [1.5, 0.0]])
    for content in (
        ";Nord;Süd\r\nNord;0;1,5\r\nSüd;1,5;0\r\n",
        "\ufeffplace,Nord,Süd\nNord,0,1.5\nSüd,1.5,0\n",
        "Nord\tSüd\n0\t1,5\n1,5\t0",
    ):
        path.write_text(content, encoding="utf-8")
        found = number_file.read("cost", path)
        np.testing.assert_array_equal(found.numbers, costs)
        assert found.header == ["Nord", "Süd"]
