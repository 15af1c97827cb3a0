"""The settings of a training of the paper's agent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import msgspec

from edgeyard.errors import InvalidInput
from edgeyard.simulator.mixes import JobMix

MAX_SEED = 2**31 - 1

_MAX_SPANS, _MIN_MAX_STEPS = 20, 1_000
"""An episode is cut after so many times the steps with arrivals, and not before so many steps."""


class Critic(StrEnum):
    """What the critic estimates."""

    V = "v"  # the value of a state
    Q = "q"  # of an action in a state, the paper's equation 3: targets take the best next action
    INFORMED = "informed"  # of a state with the time and all arrivals that are still to come


class NetworkKind(StrEnum):
    """The layers of actor and critic, each with parameters of its own; all end in a dense layer."""

    CNN = "cnn"  # the paper's: 16 filters of 3x3, 32 of 3x3, flatten
    MAXPOOL = "maxpool"  # the same with a maximum over 2x2 after each convolution
    DENSE = "dense"  # flatten, then a dense layer of 64 units
    COMPACT = "compact"  # no image but DeepRM's compact observation, two dense layers of 64 units
    JOBS = "jobs"  # no image: one small network scores each visible job, another one waiting


class Reward(StrEnum):
    """What each step of time costs; placements are free."""

    SLOWDOWN = "slowdown"  # the paper's and DeepRM's: 1/T of each job in the system
    WAITING = "waiting"  # 1/T of each job that is not placed yet
    TURNAROUND = "turnaround"  # 1 for each job in the system, as in edgeyard/Boards-v0
    UTILISATION = "utilisation"  # the idle share of all units, while a job is in the system


@dataclass(frozen=True, slots=True, kw_only=True)
class A2cTraining:
    """The settings of a training.

    Attributes:
        seed: Of all draws.
        episodes: How many there are, at least.
        n_steps: Actions in each environment after which the agent learns from them all; the
            critic's estimate stands for what follows. 0: whole episodes (Monte Carlo).
        critic: See `Critic`; ``informed`` has a network of its own, as that of ``jobs``.
        masked: Never choose what cannot be placed; otherwise such a choice lets time pass.
        place_when_idle: Never wait while no job is placed and one could be: every job then ends.
        network: See `NetworkKind`.
        reward: See `Reward`.
        discount: Of the rewards, for each step of time; placements take none. Above 0, at most 1.
        trace: Share by which a return trusts the rewards that follow, for each step of time, and
            not the critic's estimate of them (lambda); 1: all rewards of the batch.
        actor_rate: Step of the actor's optimiser.
        critic_rate: Step of the critic's.
        epochs: How often the agent learns from each action.
        minibatch: Actions in each step of the optimisers, drawn anew in each epoch; 0: all.
        clip: By how much the probability of an action may change, relative to what it was when it
            was chosen, before the action counts no more (Schulman et al., "Proximal policy
            optimization algorithms", 2017).
        entropy: Weight of the entropy of the actions, which keeps the agent exploring.
        normalise: Divide the advantages by their standard deviation.
        anneal: Let both rates and the entropy's weight fall linearly to 0 over the episodes.
        envs: Episodes that run at the same time; each is followed by the next one.
        validation: Sequences on which the best actor is chosen.
        stride: Of both convolutions of ``cnn``. The paper states none; 2 costs far less than 1.
        mix: What arrives.
        slots: Visible jobs, N of the paper; the agent has N + 1 actions.
        units: Of each resource.
        horizon: Steps to come that jobs are placed in.
        backlog: Jobs behind the visible ones.
        arrival_steps: Steps of an episode in which jobs arrive.
    """

    seed: int = 0
    episodes: int = 500
    n_steps: int = 20
    critic: Critic = Critic.V
    masked: bool = True
    place_when_idle: bool = False
    network: NetworkKind = NetworkKind.CNN
    reward: Reward = Reward.SLOWDOWN
    discount: float = 1.0
    trace: float = 0.97
    actor_rate: float = 1e-3
    critic_rate: float = 1e-3
    epochs: int = 1
    minibatch: int = 0
    clip: float = 0.2
    entropy: float = 0.01
    normalise: bool = False
    anneal: bool = False
    envs: int = 16
    validation: int = 20
    stride: int = 2
    mix: JobMix = field(default_factory=JobMix)
    slots: int = 5
    units: int = 10
    horizon: int = 20
    backlog: int = 60
    arrival_steps: int = 50

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidInput: A number is out of range, or two settings exclude each other.
        """
        for name, value, low, high in (
            ("seed", self.seed, 0, MAX_SEED),
            ("episodes", self.episodes, 1, 10_000_000),
            ("n_steps", self.n_steps, 0, 100_000),
            ("envs", self.envs, 1, 1024),
            ("validation", self.validation, 1, 1000),
            ("epochs", self.epochs, 1, 100),
            ("minibatch", self.minibatch, 0, 1_000_000),
            ("stride", self.stride, 1, 2),
            ("slots", self.slots, 1, 100),
            ("resources", self.mix.resources, 1, 10),
            ("arrival_steps", self.arrival_steps, 2, 10_000),
        ):
            if not low <= value <= high:
                raise InvalidInput.at(name, f"is {value}", f"{low} to {high}")
        for name, number, above in (
            ("rate", self.mix.rate, 0.0),
            ("discount", self.discount, 0.0),
            ("trace", self.trace, -math.ulp(0.0)),
            ("clip", self.clip, 0.0),
            ("actor_rate", self.actor_rate, 0.0),
            ("critic_rate", self.critic_rate, 0.0),
            ("entropy", self.entropy, -math.ulp(0.0)),
        ):
            if not above < number <= 1.0:
                start = "from 0" if above < 0.0 else "above 0"
                raise InvalidInput.at(name, f"is {number}", f"a number {start}, at most 1")
        if self.place_when_idle and not self.masked:
            reason = "has no effect with masked = false"
            raise InvalidInput.at("place_when_idle", reason, "one of them")

    @property
    def has_no_image(self) -> bool:
        """Whether the network sees something else than the paper's image."""
        return self.network in (NetworkKind.COMPACT, NetworkKind.JOBS)

    @property
    def max_steps(self) -> int:
        """Steps of time after which an episode is cut."""
        return max(_MIN_MAX_STEPS, _MAX_SPANS * self.arrival_steps)

    def cluster(self) -> dict[str, Any]:
        """Return the options of ``edgeyard/Cluster-v0``."""
        is_utilisation = self.reward is Reward.UTILISATION
        of_waiting = 0.0 if is_utilisation else -1.0
        return {
            "mix": self.mix,
            "slots": self.slots,
            "units": self.units,
            "horizon": self.horizon,
            "backlog": self.backlog,
            "arrival_steps": self.arrival_steps,
            "max_steps": self.max_steps,
            "placed_penalty": 0.0 if self.reward is Reward.WAITING else of_waiting,
            "visible_penalty": of_waiting,
            "backlog_penalty": of_waiting,
            "idle_penalty": -1.0 if is_utilisation else 0.0,
            "observation": "compact" if self.has_no_image else "image",
        }


_OF_MIX = ("rate", "resources")
_FIXED = ("mix", "units", "horizon", "backlog")  # as the jobs of the mix need them
SETTINGS = (*_OF_MIX, *(each.name for each in fields(A2cTraining) if each.name not in _FIXED))
"""Names in a table of settings."""


def settings_of(given: Mapping[str, object], mix: JobMix | None = None) -> A2cTraining:
    """Return the settings of a table, as a settings file has it.

    Args:
        given: By name, each one of `SETTINGS`; ``rate`` and ``resources`` are the mix's.
        mix: What arrives where the table does not state it.

    Raises:
        InvalidInput: A name is unknown, or a value is out of range or of another type.
    """
    if unknown := given.keys() - set(SETTINGS):
        raise InvalidInput.at(min(unknown), "is unknown", ", ".join(SETTINGS))
    if "stride" in given and given.get("network", "cnn") != "cnn":
        raise InvalidInput.at("stride", "has no effect without convolutions", 'network = "cnn"')
    of_mix = {name: given[name] for name in _OF_MIX if name in given}
    others = {name: value for name, value in given.items() if name not in _OF_MIX}
    try:
        return replace(
            msgspec.convert(others, A2cTraining),
            mix=msgspec.convert({**msgspec.to_builtins(mix or JobMix()), **of_mix}, JobMix),
        )
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        if not place:  # of the mix's own checks, which begin with the name
            place, _, reason = reason.partition(" ")
        raise InvalidInput.at(place.rstrip("`"), reason) from error
