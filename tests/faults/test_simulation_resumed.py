"""A long simulation in pieces: what one piece came to is kept, and the next goes on with the seed after its last."""

import json

import pytest

from tests.faults.simulation.__main__ import main as simulate


def test_two_pieces_give_the_totals_of_one_run(tmp_path, capsys):
    words = ["--seed", "3", "--seconds", "600"]
    for runs in ("1", "2"):
        assert simulate([*words, "--runs", runs, "--resume", str(tmp_path / "kept")]) == 0
    assert simulate([*words, "--runs", "2", "--resume", str(tmp_path / "whole")]) == 0
    kept, whole = (json.loads((tmp_path / name).read_text()) for name in ("kept", "whole"))
    for sums in (kept, whole):
        assert sums.pop("seconds") > 0
    assert kept == whole
    assert kept["runs"] == 2
    assert "seeds 3 to 4 in" in capsys.readouterr().out


def test_it_ends_after_the_given_number_of_calls(tmp_path):
    for _ in range(2):  # the second piece has nothing left to do
        assert simulate(["--seed", "3", "--calls", "1", "--resume", str(tmp_path / "kept")]) == 0
    assert json.loads((tmp_path / "kept").read_text())["runs"] == 1


def test_a_failed_seed_is_not_skipped(tmp_path):
    assert simulate(["--seed", "3", "--runs", "1", "--resume", str(tmp_path / "kept")]) == 0
    totals = json.loads((tmp_path / "kept").read_text())
    (tmp_path / "kept").write_text(json.dumps(totals | {"failed": {"seed": 3}}))
    with pytest.raises(SystemExit, match="seed 3 failed"):
        simulate(["--resume", str(tmp_path / "kept")])
