"""bsuite's scores, by bsuite's own functions, from its records of all episodes of training.

A score is between 0 and 1, of one experiment, whose ids differ in their difficulty or seed: it says
how well was learned, not how well the agent plays in the end. A tag (memory, exploration, ...) has
the mean of its experiments.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .suites import DATA, read_rows

SCORES = "bsuite.csv"
EXPERIMENT, TAG = "experiment", "tag"
_FIRST_EPISODE = {"deep_sea_stochastic": 100}  # bsuite scores no earlier ones; it fails without any


class Score(NamedTuple):
    """A score of an experiment or a tag."""

    kind: str  # "experiment" or "tag"
    name: str
    score: float  # in [0, 1]
    ids: int  # how many ids it is from
    finished: bool  # whether all of them have bsuite's number of episodes


def scores(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Score]:
    """Scores of one agent's experiments, and of the tags that these have.

    `environments.dm_env_adapter.BsuiteVector` makes the records; keys are bsuite's ids. Experiments
    without a row, or deep_sea_stochastic before the 100th episode, have no score.
    """
    import matplotlib
    import pandas

    with matplotlib.rc_context():  # bsuite changes the style of all plots when it is imported
        from bsuite.experiments import summary_analysis
        from bsuite.logging import logging_utils
    rows = [
        {**row, "bsuite_id": id}
        for id, found in records.items()
        for row in found
        if row["episode"] >= _FIRST_EPISODE.get(id.partition("/")[0], 1)
    ]
    if not rows:
        return []
    frame = logging_utils.join_metadata(pandas.DataFrame(rows))
    with _old_pandas(pandas):
        found = summary_analysis.bsuite_score(frame)
    found["ids"] = [frame[frame.bsuite_env == x].bsuite_id.nunique() for x in found.bsuite_env]
    each = [
        Score(EXPERIMENT, row.bsuite_env, float(row.score), row.ids, bool(row.finished))
        for row in found.itertuples()
    ]
    tags = summary_analysis.ave_score_by_tag(found, []).dropna().sort_values("tag")
    for row in tags.itertuples():
        tagged = found[found.tags.str.contains(row.tag)]
        whole = bool(tagged.finished.all())
        each.append(Score(TAG, row.tag, float(row.score), int(tagged.ids.sum()), whole))
    return each


@contextlib.contextmanager
def _old_pandas(pandas: Any) -> Iterator[None]:
    """Gives `Series` the method `append` of pandas 1, with which bsuite 0.3.6 scores deep_sea."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if not hasattr(pandas.Series, "append"):
            pandas.Series.append = lambda one, other: pandas.concat([one, other])
            stack.callback(lambda: delattr(pandas.Series, "append"))
        yield


def published() -> dict[str, dict[str, float]]:
    """Scores in the reports of bsuite's authors, by algorithm and experiment."""
    found: dict[str, dict[str, float]] = {}
    for row in read_rows(DATA / "bsuite_scores.csv"):
        found.setdefault(row["algorithm"], {})[row["experiment"]] = float(row["score"])
    return found
