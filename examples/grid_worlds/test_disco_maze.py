import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import FIRST, LAST, MID, play

from retrax.environments import make

from .disco_maze import COLOURS, RandomDiscoMaze

STEPS = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # up, right, down, left


def mazes(num_envs=1, seed=0, **switches):
    return make("grid_worlds:RandomDiscoMaze", num_envs=num_envs, seed=seed, **switches)


def maze_cells(picture):
    """Where the agent is, and the walls `[21, 21]`, from what is seen."""
    white = (picture == 255).all(axis=-1)
    assert white.sum() == 1
    return tuple(np.argwhere(white)[0].tolist()), picture.any(axis=-1) & ~white


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_mazes_are_trees(seed):
    environment = mazes(num_envs=2, pixels=True, seed=seed)
    pictures = environment.reset().observation
    for picture in pictures:
        start, walls = maze_cells(picture)
        assert walls[[0, -1]].all()
        assert walls[:, [0, -1]].all()
        free = {tuple(cell) for cell in np.argwhere(~walls).tolist()}
        pairs = [
            (cell, (cell[0] + down, cell[1] + right))
            for cell in free
            for down, right in STEPS[1:3]
            if (cell[0] + down, cell[1] + right) in free
        ]
        assert len(free) == RandomDiscoMaze.CELLS == 199
        assert len(pairs) == 198  # a connected graph with one edge less than nodes is a tree
        reached, frontier = {start}, [start]
        while frontier:
            row, column = frontier.pop()
            found = {(row + down, column + right) for down, right in STEPS} & free - reached
            reached |= found
            frontier += found
        assert reached == free
    assert (maze_cells(pictures[0])[1] != maze_cells(pictures[1])[1]).any()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), max_steps=st.integers(1, 6), pays=st.booleans())
def test_the_maze_equals_a_loop(seed, max_steps, pays):
    actions = np.random.default_rng(seed).integers(4, size=(30, 2))
    for e in range(2):
        environment = mazes(
            num_envs=2, pixels=True, seed=seed, max_steps=max_steps, reward_visits=pays
        )
        kind = LAST
        for step, found in enumerate(play(environment, actions)):
            seen, seen_walls = maze_cells(found.observation[e])
            if kind == LAST:
                agent, walls, visited = seen, seen_walls, {seen}
                kind, time = FIRST, 0
                wanted = FIRST, 0, 1
            else:
                down, right = STEPS[actions[step - 1, e]]
                there = agent[0] + down, agent[1] + right
                hit, time = walls[there], time + 1
                agent = agent if hit else there
                reward = int(pays and agent not in visited)
                visited.add(agent)
                kind = LAST if hit or time == max_steps else MID
                wanted = kind, reward, 1 - hit
            assert (found.step_type[e], found.reward[e], found.discount[e]) == wanted
            assert seen == agent
            np.testing.assert_array_equal(seen_walls, walls)
            assert environment._environments[e].cells_visited == len(visited)


def test_every_cell_can_be_visited_in_time():
    environment = mazes(num_envs=1, pixels=True, reward_visits=True, seed=3)
    timestep, total, way, visited, moves = environment.reset(), 0.0, [], set(), 0
    while True:
        (row, column), walls = maze_cells(timestep.observation[0])
        visited.add((row, column))
        around = [(row + down, column + right) for down, right in STEPS]
        new = [a for a, cell in enumerate(around) if not walls[cell] and cell not in visited]
        if not new and not way:
            break
        if new:
            way.append(new[0])
        timestep = environment.step(np.array([new[0] if new else (way.pop() + 2) % 4]))
        assert timestep.step_type[0] == MID
        total, moves = total + timestep.reward[0], moves + 1
    assert total == environment._environments[0].optimal_return == 198
    assert environment._environments[0].cells_visited == RandomDiscoMaze.CELLS
    assert moves == 2 * 198 < 400  # there, and all the way back


def test_the_agent_starts_anywhere():
    pictures = mazes(num_envs=200, pixels=True, seed=0).reset().observation
    starts = np.array([maze_cells(picture)[0] for picture in pictures])
    # Rooms and doors lie evenly around 10, between 1 and 19: their deviation is less than 6.
    assert (abs(starts.mean(axis=0) - 10) < 4 * 6 / np.sqrt(200)).all()
    assert len(np.unique(starts, axis=0)) > 60


def test_nothing_is_paid_by_default():
    environment = mazes(num_envs=8, seed=0)
    steps = play(environment, np.random.default_rng(0).integers(4, size=(60, 8)))
    assert not any(step.reward.any() for step in steps)
    assert environment._environments[0].optimal_return == 0


def test_walls_have_one_of_five_colours_drawn_at_each_step():
    environment = mazes(num_envs=1, pixels=True, seed=0)
    before = environment.reset().observation[0]
    _, walls = maze_cells(before)
    action = next(
        a for a, (down, right) in enumerate(STEPS) if not walls[step_from(before, down, right)]
    )
    pictures = [before]
    for t in range(20):  # to and fro
        pictures.append(environment.step(np.array([(action + 2 * (t % 2)) % 4])).observation[0])
        assert not environment._starts[0]
    painted = np.stack(pictures)[:, walls]
    which = (painted[:, :, None] == COLOURS).all(axis=-1)
    assert (which.sum(axis=-1) == 1).all()
    shares, count = which.mean(axis=(0, 1)), which[..., 0].size
    assert (abs(shares - 0.2) < 4 * np.sqrt(0.16 / count)).all()
    changed = (which[1:] != which[:-1]).any(axis=-1)
    assert abs(changed.mean() - 0.8) < 4 * np.sqrt(0.16 / changed.size)


def step_from(picture, down, right):
    (row, column), _ = maze_cells(picture)
    return row + down, column + right


def test_the_vector_is_the_image():
    actions = np.random.default_rng(0).integers(4, size=(20, 2))
    image = mazes(num_envs=2, seed=1, pixels=True)
    vector = mazes(num_envs=2, seed=1)
    for one, two in zip(play(image, actions), play(vector, actions), strict=True):
        assert two.observation.dtype == np.float32
        wanted = one.observation.reshape(2, -1).astype(np.float32) / 255
        np.testing.assert_array_equal(two.observation, wanted)
    picture = vector.render()
    assert picture.shape == (336, 336, 3)
    np.testing.assert_array_equal(picture[::16, ::16], one.observation[0])
    np.testing.assert_array_equal(picture, vector.render())  # to look draws nothing


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"max_steps": 0}, "RandomDiscoMaze: max_steps must be at least 1, got 0"),
        (
            {"side": 5},
            "no switch side; .* are: max_episode_steps, max_steps, pixels, reward_visits",
        ),
    ],
)
def test_wrong_switches_are_refused(switches, message):
    with pytest.raises(ValueError, match=message):
        mazes(**switches)
