"""What is drawn of a comparison."""

import numpy as np
import pytest
from matplotlib import image

from retrax.evaluation.atari57 import GAMES, load_scores, make_table, plot_scores


def test_draws_a_picture(tmp_path):
    output = tmp_path / "new" / "scores.png"
    plot_scores(make_table(), output)
    picture = image.imread(output)
    assert min(picture.shape[:2]) > 800
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10  # not blank


def test_profiles_are_the_parts_of_the_games_with_so_high_a_score(tmp_path):
    table = make_table("human_start", ["dqn", "rainbow"])
    figure = plot_scores(table, tmp_path / "scores.png")
    curves = {line.get_label().split()[0]: line for line in figure.axes[0].get_lines()}
    for entry in table.entries[2:]:
        x, y = curves[entry.algorithm].get_data()
        assert curves[entry.algorithm].get_drawstyle() == "steps-pre"
        for score in (0.1, 0.5, 1.0, 7.3):
            share = np.mean(entry.normalised >= score)
            assert y[np.searchsorted(x, score)] == pytest.approx(share)  # steps-pre: the next one
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["rainbow  1.53", "dqn  0.69"]


def test_games_are_those_of_the_users_algorithm_in_order(tmp_path):
    own = {"mine": load_scores("noop")["reactor"][None] * 0.9}
    table = make_table("noop", ["dqn", "rainbow"], own)
    figure = plot_scores(table, tmp_path / "scores.png")
    axes = figure.axes[1]
    mine, labels = table.entries[-1], [text.get_text() for text in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(mine.normalised)
    assert [mine.normalised[GAMES.index(name)] for name in labels] == widths
    (marks,) = [line for line in axes.get_lines() if line.get_label() == "best of the others"]
    others = np.maximum(table.entries[2].normalised, table.entries[3].normalised)
    np.testing.assert_array_equal(marks.get_xdata(), [others[GAMES.index(name)] for name in labels])
    assert f"mine: above the human in {mine.summary.games_above_human} of 57" in axes.get_title()


def test_one_algorithm_alone_has_no_rivals(tmp_path):
    figure = plot_scores(make_table("noop", ["dqn"]), tmp_path / "scores.png")
    assert figure.axes[1].get_legend() is None


def test_scores_far_below_random_stay_in_the_picture(tmp_path):
    own = {"worst": load_scores("noop")["random"][None] - 1e6}
    figure = plot_scores(make_table("noop", [], own), tmp_path / "scores.png")
    low, high = figure.axes[1].get_xlim()
    assert low == -1.0 < high


def test_refuses_other_files_and_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match=r"a\.pdf must end in \.png"):
        plot_scores(make_table(), tmp_path / "a.pdf")
    with pytest.raises(
        ValueError, match="nothing to draw: give algorithms other than random and human"
    ):
        plot_scores(make_table("noop", []), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
