"""`retrax atari57` from its command line."""

import pytest

from retrax.evaluation.atari57 import GAMES, load_scores


def write(path, scores, name="mine"):
    rows = [f"{name},{game},{score}" for game, score in zip(GAMES, scores, strict=True)]
    path.write_text("\n".join(["algorithm,game,score", *rows]) + "\n")
    return path


def cells(out, algorithm):
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [algorithm]]
    return line.split()[1:]


@pytest.mark.parametrize(
    ("arguments", "rainbow"),
    [
        ((), ["2.31", "2.31", "3.63", "3.63", "270", "270"]),
        (("--regime", "human_start"), ["1.53", "1.53", "4.18", "4.18", "186", "186"]),
    ],
)
def test_ours_and_the_papers_side_by_side(retrax, arguments, rainbow):
    status, out, err = retrax("atari57", *arguments)
    found = cells(out, "rainbow")
    assert (status, err) == (0, "")
    assert [*found[:2], *found[-4:]] == rainbow
    assert "depend on the compared algorithms" not in out


def test_a_users_scores_are_a_further_row(tmp_path, retrax):
    file = write(tmp_path / "scores.csv", load_scores("noop")["human"])
    status, out, _ = retrax("atari57", "--scores", file, "--output", tmp_path / "chart.png")
    assert status == 0
    assert cells(out, "mine")[:3] == ["1.00", "1.00", "1.00"]  # no paper: mean, capped mean
    assert "Rank and Elo depend on the algorithms compared" in out
    assert (tmp_path / "chart.png").stat().st_size > 10_000
    assert out.splitlines()[-1].endswith("chart.png")


def test_several_seeds_get_an_interval(tmp_path, retrax):
    rows = [f"{game},{seed},{10 + seed}" for seed in range(3) for game in GAMES]
    (tmp_path / "mine.csv").write_text("\n".join(["game,seed,score", *rows]) + "\n")
    _, out, _ = retrax("atari57", "--scores", tmp_path / "mine.csv", "--algorithms", "dqn")
    assert "stratified bootstrap over 3 seeds" in out


def test_wrong_input_gets_one_sentence_and_nothing_is_written(tmp_path, refused):
    file, chart = write(tmp_path / "scores.csv", [*range(56), "most"]), tmp_path / "chart.pdf"
    for words, sentence in (
        (("--scores", file), f"{file} line 58: score must be a finite number, got 'most'.\n"),
        (("--output", chart), f"{chart} must end in .png: no other format is written.\n"),
    ):
        assert refused("atari57", *words) == f"retrax: {sentence}"
