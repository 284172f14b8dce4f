"""What is drawn of a comparison."""

import numpy as np
import pytest
from matplotlib import image

from retrax.evaluation.atari57 import GAMES, load_scores, make_table, plot_scores


def test_profiles_are_the_parts_of_the_games_with_so_high_a_score(tmp_path):
    table, output = make_table("human_start", ["dqn", "rainbow"]), tmp_path / "new" / "scores.png"
    figure = plot_scores(table, output)
    picture = image.imread(output)
    assert min(picture.shape[:2]) > 800
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10  # not blank
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
    axes = plot_scores(table, tmp_path / "scores.png").axes[1]
    *_, dqn, rainbow, mine = table.entries
    order = [GAMES.index(label.get_text()) for label in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(mine.normalised) == mine.normalised[order].tolist()
    (marks,) = [line for line in axes.get_lines() if line.get_label() == "best of the others"]
    others = np.maximum(dqn.normalised, rainbow.normalised)
    np.testing.assert_array_equal(marks.get_xdata(), others[order])
    assert f"mine: above the human in {mine.summary.games_above_human} of 57" in axes.get_title()


def test_one_algorithm_alone_may_be_far_below_random_and_has_no_rivals(tmp_path):
    own = {"worst": load_scores("noop")["random"][None] - 1e6}
    axes = plot_scores(make_table("noop", [], own), tmp_path / "scores.png").axes[1]
    low, high = axes.get_xlim()
    assert low == -1.0 < high
    assert axes.get_legend() is None


def test_refuses_other_files_and_nothing_to_draw(tmp_path):
    for algorithms, name, sentence in (
        (None, "a.pdf", r"a\.pdf must end in \.png"),
        ([], "a.png", "nothing to draw: give algorithms other than random and human"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plot_scores(make_table("noop", algorithms), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
