"""Errors of other people's environments: one sentence, wherever they come from."""

import re
import sys
import threading
import types

import average_agent
import gymnasium
import jax
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from scripted import ScriptedToo
from stepping import Counting

from retrax.environments import failures, make
from retrax.environments.failures import RefusedError, drawn
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureCatch
from retrax.evaluation import run_episodes

SPACE = spaces.Box(-1, 1, (1,), np.float32)


class Failing(Counting):
    """Calls `what` at a place: `init`, `reset`, `close`, or the step of a number."""

    render_mode, closed = "rgb_array", 0

    def __init__(self, place="", what=None, seed=0):
        self.place, self.what = place, what
        self.act("init")

    def act(self, place):
        if place == self.place:
            self.what()

    def reset(self, *, seed=None, options=None):
        self.act("reset")
        return super().reset()

    def step(self, action):
        self.act(self.time + 1)
        return super().step(action)

    def close(self):
        self.closed += 1
        self.act("close")


def having(kind, **attributes):
    """An environment with other attributes."""
    environment = kind()
    vars(environment).update(attributes)
    return environment


def boom():
    raise RuntimeError("boom\nand more")


def leave():
    sys.exit(0)


def needs():
    import no_such_module.part  # noqa: F401


def interrupt():
    raise KeyboardInterrupt


SENTENCES = [(boom, r": RuntimeError: boom\.$"), (leave, r": it called sys\.exit\(0\)\.$")]
SENTENCES += [(lambda: [a for a, b, c, d, e in "abcd"], r": ValueError: not enough values to .*5")]
NEEDS = r": it needs the module no_such_module, which is not installed: pip install no_such_module$"
FAILURE = pytest.mark.parametrize(
    ("what", "error", "sentence"),
    [*((what, RefusedError, told) for what, told in SENTENCES), (needs, ImportError, NEEDS)],
)


def play(environment, steps):
    environment.reset()
    for _ in range(steps):
        environment.step(np.zeros(environment.num_envs, np.int32))
    environment.close()


@FAILURE
def test_a_constructor(what, error, sentence):
    gymnasium.register("Failing-v0", entry_point=Failing)
    try:
        for made, name in ((Failing, "an environment .*"), ("Failing-v0", "Failing-v0")):
            with pytest.raises(error, match=f"^{name} cannot be made{sentence}"):
                make(made, place="init", what=what)
    finally:
        gymnasium.registry.pop("Failing-v0")


@FAILURE
def test_reset_and_step(what, error, sentence):
    environment = make(Failing, place="reset", what=what, num_envs=2)
    with pytest.raises(error, match=rf"environment 0 failed in reset\(\), at step 0{sentence}"):
        environment.reset()
    environment = make(Failing, num_envs=3)
    last = environment._environments[2]
    last.place, last.what = 4, what
    with pytest.raises(error, match=f"environment 2 failed at step 4{sentence}"):
        play(environment, 5)


@pytest.mark.parametrize("place", ["init", "reset", 1, "close"])
def test_a_person_may_interrupt_everywhere(place):
    with pytest.raises(KeyboardInterrupt):
        play(make(Failing, place=place, what=interrupt), 1)


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
def test_a_space_that_is_missing(space):
    class Lacking(gymnasium.Env):
        """Declares one of its spaces."""

    setattr(Lacking, {"observation_space": "action_space"}.get(space, "observation_space"), SPACE)
    sentence = rf"the spaces of environment 0 cannot be read: AttributeError: .*{space}'\.$"
    with pytest.raises(RefusedError, match=sentence):
        make(Lacking)


@pytest.mark.parametrize("module", ["../../etc", "", "a b", "a..b", ".a"])
def test_what_is_no_name_of_a_module(module):
    with pytest.raises(
        ValueError, match=f"^{module!r} is not the name of a module: ".replace(".", r"\.")
    ):
        make(f"{module}:X")


STEP = r"must return \(observation, reward, terminated, truncated, info\)"


@pytest.mark.parametrize(
    ("place", "returned", "wrapper", "sentence"),
    [
        ("reset", np.zeros(1), None, r"must return \(observation, info\), got one of type ndarr"),
        ("step", (np.zeros(1), 0.0, False, {}), None, rf"{STEP}, got 4 values\.$"),
        ("step", (np.zeros(1), 0.0, False, {}), gymnasium.wrappers.Autoreset, rf"{STEP}\.$"),
    ],
)
def test_other_interfaces_are_named(place, returned, wrapper, sentence):
    """Such as Gym's before 0.26."""
    environment = having(Failing, **{place: lambda *_, **__: returned})
    with pytest.raises(RefusedError, match=rf"{place}\(\).* {sentence}"):
        play(make(lambda: wrapper(environment) if wrapper else environment), 1)


def test_closing_what_has_failed_is_bounded(caplog, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(failures, "_CLOSE_SECONDS", 0.2)
    environment = types.SimpleNamespace(close=ended.wait)
    with pytest.raises(ZeroDivisionError), failures.closing_quietly(environment):
        assert 1 / 0
    ended.set()
    assert lines(caplog)[0].endswith("not be closed: TimeoutError: it takes more than 0.2 s.")


# Closing


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("what", "sentence"), SENTENCES)
def test_all_environments_are_closed_whatever_the_first_does(caplog, what, sentence):
    ways = iter([what, lambda: None, what])
    environment = make(lambda: Failing("close", next(ways)), num_envs=3)
    inner = list(environment._environments)
    environment.close()
    environment.close()
    assert [one.closed for one in inner] == [1, 1, 1]
    assert len(lines(caplog)) == 2
    for line, e in zip(lines(caplog), (0, 2), strict=True):
        assert re.search(f"^environment {e} could not be closed{sentence}", line)


def test_environments_are_closed_that_were_made_before_one_failed():
    made = []

    def make_one():
        made.append(Failing())
        if len(made) == 3:
            raise RuntimeError("no licence")
        return made[-1]

    with pytest.raises(RefusedError, match="no licence"):
        make(make_one, num_envs=4)
    assert [one.closed for one in made] == [1, 1, 0]
    made = [ScriptedToo(), ScriptedToo(actions=specs.DiscreteArray(3))]
    each = iter(made)
    with pytest.raises(ValueError, match="action_spec of environment 1"):
        make(lambda: next(each), num_envs=2)
    assert [one.closed for one in made] == [1, 1]


# Drawing

PICTURE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
GOT = r"the environment cannot be drawn: render\(\) must return uint8 \[height, width, 3\], got "


def shows(shown):
    """A function `render`, which raises or returns what is given."""
    return shown if callable(shown) else lambda: shown


@pytest.mark.parametrize(
    "draw",
    [
        lambda shown: make(lambda: having(Failing, render=shows(shown))).render(),
        lambda shown: make(lambda: having(ScriptedToo, render=shows(shown))).render(),
        lambda shown: drawn(shows(shown)),
    ],
)
@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (PICTURE / 255, r"float64 \[2, 4, 3\]"),
        (PICTURE > 3, r"bool \[2, 4, 3\]"),
        (None, "None"),
        ("a map", r"<U5 \[\]"),
        (PICTURE[..., 0], r"uint8 \[2, 4\]"),
        (PICTURE.astype(int) + 250, r"int64 \[2, 4, 3\]"),
    ],
)
def test_what_is_no_picture_is_named(draw, shown, found):
    with pytest.raises(RefusedError, match=f"^{GOT}{found}.$"):
        draw(shown)
    np.testing.assert_array_equal(draw(PICTURE), PICTURE)
    whole = draw(PICTURE.astype(int).tolist())
    np.testing.assert_array_equal(whole, PICTURE)
    assert whole.dtype == np.uint8
    for what, sentence in SENTENCES:
        with pytest.raises(RefusedError, match=f"^the environment cannot be drawn{sentence}"):
            draw(what)


def test_an_evaluation_draws_with_what_says_so():
    vector = PureVector(PureCatch())
    vector.render = lambda: None
    with pytest.raises(RefusedError, match=f"^{GOT}None"):
        run_episodes(
            average_agent.agent_and_shapes()[0],
            None,
            vector,
            key=jax.random.key(0),
            num_episodes=1,
            on_frame=print,
        )
