"""The paper's environment for Gymnasium: ``edgeyard/Cluster-v0``, single and vectorised.

Importing this module makes it known to Gymnasium; ``docs/how-to/environments.md`` has observations,
actions, rewards and their units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.mixes import JobMix
from edgeyard.simulator.schedules import Schedule
from edgeyard.training import cluster_steps as world
from edgeyard.training.cluster_steps import MAX_SINCE_NEW

End = Literal["all_done", "no_new_job"]
Form = Literal["image", "compact"]
Observations = NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], tuple[NDArray[np.int64], NDArray[np.int64]]]


class _Clusters:
    """Several independent environments.

    Attributes:
        draw: Returns the arrivals of an episode, from its random numbers and how many steps it has:
            those of the mix where nobody replaces it.
    """

    def __init__(
        self,
        envs: int,
        *,
        mix: JobMix | Mapping[str, Any] | None,
        nodes: int,
        units: int,
        slots: int,
        backlog: int,
        horizon: int,
        arrival_steps: int,
        max_steps: int,
        end: End,
        observation: Form,
        placed_penalty: float,
        visible_penalty: float,
        backlog_penalty: float,
        idle_penalty: float,
    ) -> None:
        self.mix = mix if isinstance(mix, JobMix) else JobMix(**(mix or {}))
        if min(nodes, units, slots, backlog, horizon, arrival_steps, max_steps) < 1:
            raise ValueError(
                "nodes, units, slots, backlog, horizon, arrival_steps and max_steps must be 1 or "
                "more"
            )
        if end not in ("all_done", "no_new_job"):
            raise ValueError(f"end is {end!r}, expected 'all_done' or 'no_new_job'")
        if observation not in ("image", "compact"):
            raise ValueError(f"observation is {observation!r}, expected 'image' or 'compact'")
        if max(self.mix.dominant[1], self.mix.other[1]) > units:
            raise ValueError(
                f"mix: jobs may need more than the {units} units of a node, so that they could "
                f"never run: expected dominant and other up to {units}"
            )
        if max(self.mix.short[1], self.mix.long[1]) >= horizon:
            raise ValueError(
                f"mix: runs must be shorter than the horizon of {horizon} steps: expected short "
                f"and long below {horizon}"
            )
        self.draw: Draw = self.mix.arrivals
        self.max_size = max(self.mix.dominant[1], self.mix.other[1])
        resources = self.mix.resources
        self.state = world.empty_clusters(
            envs, arrival_steps, nodes=nodes, resources=resources, units=units, horizon=horizon,
            slots=slots, backlog=backlog,
        )  # fmt: skip
        width = resources * (nodes * units + slots * self.max_size) + -(-backlog // horizon) + 1
        self.images = np.zeros((envs, horizon, width), dtype=np.float32)
        size = horizon * (1 + nodes * resources) + slots * (1 + resources) + 1
        self._is_compact = observation == "compact"
        self._vectors = np.zeros((envs, size if self._is_compact else 0), dtype=np.float32)
        self.rewards = np.zeros(envs)
        self.terminated = np.zeros(envs, dtype=np.bool_)
        self.truncated = np.zeros(envs, dtype=np.bool_)
        self._units = units
        self._max_steps = max_steps
        self._until_done = end == "all_done"
        self._penalties = np.array(
            [placed_penalty, visible_penalty, backlog_penalty, idle_penalty], dtype=np.float64
        )

    @property
    def observations(self) -> Observations:
        """The observation of each; the next step changes them."""
        return self._vectors if self._is_compact else self.images

    def space(self) -> gymnasium.Space[Observations]:
        """Return the space of one observation."""
        if not self._is_compact:
            whole: gymnasium.Space[Observations] = gymnasium.spaces.Box(
                0.0, 1.0, self.images.shape[1:], np.float32
            )
            return whole
        state = self.state
        steps, backlog = state.lengths.shape[1], state.backlog.shape[1]
        horizon = state.free.shape[2]
        high = float(max(steps, backlog, horizon, self._units, self.max_size))
        counts: gymnasium.Space[Observations] = gymnasium.spaces.Box(
            0.0, high, self._vectors.shape[1:], np.float32
        )
        return counts

    def image(self, env: int) -> Observations:
        """Return the image of one, whatever it observes."""
        if self._is_compact:
            world.draw(self.state, env, self._units, self.max_size, MAX_SINCE_NEW, self.images[env])
        image: Observations = self.images[env]
        return image

    @property
    def actions(self) -> int:
        """None, or one of the slots."""
        return int(self.state.slots.shape[1]) + 1

    def begin(self, env: int, random: np.random.Generator) -> None:
        """Begin an episode with new arrivals."""
        lengths, sizes = self.draw(random, self.state.lengths.shape[1])
        self.begin_with(env, lengths, sizes)

    def check_arrivals(self, options: Mapping[str, Any], *envs: int) -> None:
        """Refuse arrivals of another shape: (*envs, steps) and (*envs, steps, resources).

        Raises:
            ValueError: They have, or a part is missing.
        """
        for name, whole in (("lengths", self.state.lengths), ("sizes", self.state.sizes)):
            if name not in options:
                raise ValueError(f"options: {name} is missing")
            shape, found = (*envs, *whole.shape[1:]), np.shape(options[name])
            if found != shape:
                raise ValueError(f"options: {name} has the shape {found}; it must be {shape}")

    def begin_with(self, env: int, lengths: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Begin an episode with these arrivals."""
        world.begin(self.state, env, self._units)
        self.state.lengths[env] = lengths
        self.state.sizes[env] = sizes
        self.observe(env)

    def observe(self, env: int) -> None:
        """Write the observation of one."""
        if self._is_compact:
            world.summarise(self.state, env, self._vectors[env])
        else:
            image = self.images[env]
            world.draw(self.state, env, self._units, self.max_size, MAX_SINCE_NEW, image)

    def step(self, actions: NDArray[np.int64]) -> None:
        """Take one action in each; the results are in the arrays."""
        world.step_all(
            self.state, actions - 1, self._units, self.max_size, MAX_SINCE_NEW, self._max_steps,
            self._penalties, self._until_done, self.images, self._vectors, self.rewards,
            self.terminated, self.truncated,
        )  # fmt: skip

    def schedule(self, env: int) -> Schedule:
        """Return the jobs that have ended, in steps; ``procs`` counts units of all resources."""
        state = self.state
        ended = (state.ends[env] >= 0) & (state.ends[env] <= state.counts[env, world.NOW])
        return Schedule(
            submit=np.flatnonzero(ended).astype(np.float64),
            start=state.starts[env, ended].astype(np.float64),
            end=state.ends[env, ended].astype(np.float64),
            procs=state.sizes[env, ended].sum(axis=1),
        )

    def figures(self, env: int) -> dict[str, float]:
        """Return the figures of an episode."""
        schedule = self.schedule(env)
        jobs = len(schedule.end)
        return {
            "jobs": float(jobs),
            "lost": float(self.state.counts[env, world.LOST]),
            "mean_slowdown": float(schedule.slowdown.mean()) if jobs else 1.0,
            "mean_wait": float(schedule.wait_s.mean()) if jobs else 0.0,
            "mean_turnaround": float(schedule.turnaround_s.mean()) if jobs else 0.0,
        }

    def allowed(self, env: int) -> NDArray[np.int8]:
        """Return a mask of actions: none, and the slots whose job fits within the horizon now."""
        mask = np.zeros(self.actions, dtype=np.int8)
        world.allowed(self.state, env, mask)
        return mask

    def allowed_all(self) -> NDArray[np.int8]:
        """Return `allowed` of each, shape (envs, actions)."""
        masks = np.zeros((len(self.rewards), self.actions), dtype=np.int8)
        world.allowed_all(self.state, masks)
        return masks

    def choice(self, env: int, name: str, random: np.random.Generator) -> int:
        """Return the action of a baseline."""
        if name == "random":
            return int(random.integers(self.actions))
        choose = world.choose_sjf if name == "sjf" else world.choose_tetris
        slot = choose(self.state, env)
        return 0 if slot == self.actions - 1 else slot + 1


BASELINES = ("sjf", "tetris", "random")


class ClusterEnv(gymnasium.Env[Observations, np.int64]):
    """Jobs of several resources on N nodes; an agent picks which visible job is placed next.

    Attributes:
        clusters: The state, and what it leads to.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's form

    def __init__(
        self,
        *,
        mix: JobMix | Mapping[str, Any] | None = None,
        nodes: int = 1,
        units: int = 10,
        slots: int = 5,
        backlog: int = 60,
        horizon: int = 20,
        arrival_steps: int = 50,
        max_steps: int = 1000,
        end: End = "all_done",
        observation: Form = "image",
        placed_penalty: float = -1.0,
        visible_penalty: float = -1.0,
        backlog_penalty: float = -1.0,
        idle_penalty: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        """Build a cluster.

        Args:
            mix: What arrives; a mapping has the fields of `JobMix`.
            nodes: How many there are; a job runs on one.
            units: Of each resource on each node.
            slots: Visible jobs, N of the paper.
            backlog: Jobs behind them that still count; more are lost.
            horizon: Steps to come that jobs are placed in.
            arrival_steps: Steps in which jobs arrive.
            max_steps: An episode is truncated after so many.
            end: It ends when all jobs have ended, or with the last arrival (DeepRM's training).
            observation: ``image`` as the paper has it, or DeepRM's ``compact`` vector.
            placed_penalty: Factor of 1/T in the reward of each job that is placed and not ended.
            visible_penalty: The same of each visible job.
            backlog_penalty: The same of each in the backlog.
            idle_penalty: Factor of the share of all units that is idle, in the reward of each step
                of time in which a job is in the system. -1 alone, with 0 for the three factors
                before, makes utilisation the reward.
            render_mode: ``"ansi"``: text.

        Raises:
            ValueError: A number is out of range, or the mix has jobs that could never run.
        """
        self.clusters = _Clusters(
            1, mix=mix, nodes=nodes, units=units, slots=slots, backlog=backlog, horizon=horizon,
            arrival_steps=arrival_steps, max_steps=max_steps, end=end,
            observation=observation, placed_penalty=placed_penalty, visible_penalty=visible_penalty,
            backlog_penalty=backlog_penalty, idle_penalty=idle_penalty,
        )  # fmt: skip
        self.render_mode = render_mode
        self.observation_space = self.clusters.space()
        self.action_space = gymnasium.spaces.Discrete(self.clusters.actions)
        self._action = np.zeros(1, dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode; ``options`` may set its arrivals as ``lengths`` and ``sizes``."""
        super().reset(seed=seed)
        if options and "lengths" in options:
            self.clusters.check_arrivals(options)
            self.clusters.begin_with(0, options["lengths"], options["sizes"])
        else:
            self.clusters.begin(0, self.np_random)
        return self.clusters.observations[0].copy(), {}

    def step(self, action: np.int64) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Place a visible job, or let a step of time pass (0, and what can't be placed)."""
        clusters = self.clusters
        self._action[0] = action
        clusters.step(self._action)
        terminated, truncated = bool(clusters.terminated[0]), bool(clusters.truncated[0])
        info = clusters.figures(0) if terminated or truncated else {}
        seen = clusters.observations[0].copy()
        return seen, float(clusters.rewards[0]), terminated, truncated, info

    def action_masks(self) -> NDArray[np.int8]:
        """Return which actions are not the same as 0 now, and 0 itself."""
        return self.clusters.allowed(0)

    def choose(self, baseline: str) -> int:
        """Return the action of ``sjf``, ``tetris`` or ``random`` in the present state."""
        if baseline not in BASELINES:
            raise ValueError(f"baseline is {baseline!r}, expected one of {', '.join(BASELINES)}")
        return self.clusters.choice(0, baseline, self.np_random)

    def render(self) -> str:
        """Return the observation as text, one character per cell."""
        rows = self.clusters.image(0)
        return "\n".join(
            "".join(" .#"[int(cell > 0) + int(cell == 1)] for cell in row) for row in rows
        )


class ClusterVectorEnv(gymnasium.vector.VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """Many of `ClusterEnv` in one process, stepped by one compiled call.

    An environment whose episode has ended begins the next one at the following step, whatever the
    action (``AutoresetMode.NEXT_STEP``). Arrivals are a function of the seed, the environment and
    the number of its episode.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # Gymnasium's form

    def __init__(self, num_envs: int = 1, *, copy: bool = True, **options: Any) -> None:
        """Build the clusters.

        Args:
            num_envs: How many.
            copy: Hand out copies of the observations; otherwise the next step changes them.
            options: Of `ClusterEnv`.
        """
        options.pop("render_mode", None)
        single = ClusterEnv(**options)
        self.num_envs = num_envs
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(
            single.observation_space, num_envs
        )
        self.action_space = gymnasium.vector.utils.batch_space(single.action_space, num_envs)
        defaults = ClusterEnv.__init__.__kwdefaults__ or {}
        options = {**defaults, **options}
        options.pop("render_mode")
        self.clusters = _Clusters(num_envs, **options)
        self._copy = copy
        self._seed = 0
        self._episodes = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in each; ``options`` may set all arrivals, as in `ClusterEnv.reset`.

        ``lengths`` then has the shape (envs, steps), and ``sizes`` (envs, steps, resources).
        """
        if isinstance(seed, list):
            raise ValueError("seed is a list, expected one number: one seed fixes all environments")
        if options and "lengths" in options:
            self.clusters.check_arrivals(options, self.num_envs)
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed
            self._episodes[:] = 0
        for env in range(self.num_envs):
            if options and "lengths" in options:
                self.clusters.begin_with(env, options["lengths"][env], options["sizes"][env])
            else:
                self._begin(env)
        self._ended[:] = False
        return self.observations(), {}

    def action_masks(self) -> NDArray[np.int8]:
        """Return `ClusterEnv.action_masks` of each, shape (envs, actions)."""
        return self.clusters.allowed_all()

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observations, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one action in each."""
        clusters = self.clusters
        clusters.step(np.asarray(actions, dtype=np.int64))
        if self._ended.any():
            for env in np.flatnonzero(self._ended).tolist():
                self._begin(env)
            clusters.rewards[self._ended] = 0.0
            clusters.terminated[self._ended] = False
            clusters.truncated[self._ended] = False
        self._ended = clusters.terminated | clusters.truncated
        infos: dict[str, Any] = {}
        if self._ended.any():
            for env in np.flatnonzero(self._ended).tolist():
                infos = self._add_info(infos, clusters.figures(env), env)
        return (
            self.observations(), clusters.rewards.copy(), clusters.terminated.copy(),
            clusters.truncated.copy(), infos,
        )  # fmt: skip

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether an episode has ended, so that the next step begins another one there."""
        return self._ended

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return everything that `restore` needs, as arrays by name."""
        whole: dict[str, NDArray[Any]] = {
            name: array.copy() for name, array in self.clusters.state._asdict().items()
        }
        whole["episodes"], whole["ended"] = self._episodes.copy(), self._ended.copy()
        whole["seed"] = np.array(self._seed, dtype=np.int64)
        return whole

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> Observations:
        """Go back to a snapshot, of an environment with the same options; return observations."""
        for name, array in self.clusters.state._asdict().items():
            array[...] = snapshot[name]
        self._episodes[:], self._ended[:] = snapshot["episodes"], snapshot["ended"]
        self._seed = int(snapshot["seed"])
        for env in range(self.num_envs):
            self.clusters.observe(env)
        return self.observations()

    def _begin(self, env: int) -> None:
        random = stream(self._seed, "cluster", env, int(self._episodes[env]))
        self._episodes[env] += 1
        self.clusters.begin(env, random)

    def observations(self) -> Observations:
        """Return what is observed in each."""
        seen = self.clusters.observations
        return seen.copy() if self._copy else seen


if "edgeyard/Cluster-v0" not in gymnasium.registry:
    gymnasium.register(
        id="edgeyard/Cluster-v0",
        entry_point="edgeyard.training.cluster_environment:ClusterEnv",
        vector_entry_point="edgeyard.training.cluster_environment:ClusterVectorEnv",
    )
