"""Drives a run of the test environment: its episodes, its training, and its record on disk."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgeyard.errors import Cancelled, Conflict, InvalidInput
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Scorer
from edgeyard.simulator.scenario import Scenario, scenario_hash
from edgeyard.simulator.schedules import compare
from edgeyard.simulator.wording import count_of
from edgeyard.training.ste import training
from edgeyard.training.ste.controller import Controller, Episode, RoundReport
from edgeyard.training.ste.runs import (
    CHECKPOINT_FILE,
    RunFolder,
    episode_to_json,
)
from edgeyard.training.ste.scheduling import SchedulerController

UNSEEN = 1_000_000
"""Distance of the seeds that a trained model is judged on from those that it was trained on."""

_MODEL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

Progress = Callable[[RoundReport, float], None]
"""Called after each round, with the share of the episode's jobs that have ended."""


class Training(Protocol):
    """The training of a registered model, at the scheduler controller."""

    def begin(self, run_id: str, name: str, *, new: bool, resume: bool) -> None:
        """Make the rewards of a run's rounds update a model.

        Args:
            name: The model.
            new: Register it; it knows nothing yet.
            resume: Go on with what `keep` has stored of this run.

        Raises:
            ConfigError: The model can't be trained, or there is one of a new one's name.
            InvalidInput: There is no such model.
        """
        ...

    def keep(self, run_id: str) -> None:
        """Store what was learned so far, so that the run can be resumed."""
        ...

    def publish(self, run_id: str, trained_on: str) -> int:
        """Write the model with a higher version; return the version."""
        ...


class LocalTraining:
    """`Training` in the process of the scheduler controller. Not thread-safe."""

    def __init__(
        self,
        scheduler: SchedulerController,
        models: Path,
        checkpoints: RunFolder,
        load: Callable[[Path], Scorer],
    ) -> None:
        """Train nothing yet.

        Args:
            scheduler: Gets the trainer.
            models: Folder of registered models.
            checkpoints: Where runs store what was learned.
            load: Loads a model as a scorer, for its judgement.
        """
        self._scheduler, self._models, self._checkpoints = scheduler, models, checkpoints
        self._load = load
        self._run_id = ""
        self._trainer: training.EpisodeEvolution | None = None

    @property
    def run_id(self) -> str:
        """The run that trains now; "": none."""
        return self._run_id

    def begin(self, run_id: str, name: str, *, new: bool, resume: bool) -> None:
        folder = self._checkpoints.path(run_id)
        path = model_path(self._models, name, new=new and not resume)
        if new and not resume:
            training.new_model(name, self._models)
        manifest, network = training.load_trainable(path)
        state = training.TrainingState(network=network)
        if resume and (folder / CHECKPOINT_FILE).exists():
            state = training.read_checkpoint(folder / CHECKPOINT_FILE)
        folder.mkdir(parents=True, exist_ok=True)
        self._trainer = training.EpisodeEvolution(manifest, state, load=self._load)
        self._run_id = run_id
        self._scheduler.set_trainer(self._trainer)

    def keep(self, run_id: str) -> None:
        trainer = self._of(run_id)
        training.write_checkpoint(self._checkpoints.path(run_id) / CHECKPOINT_FILE, trainer.state)

    def publish(self, run_id: str, trained_on: str) -> int:
        trainer = self._of(run_id)
        manifest = trainer.manifest
        learned = replace(manifest, version=manifest.version + 1, trained_on=trained_on[:200])
        training.write_model(self._models / f"{manifest.name}.toml", learned, trainer.network)
        return learned.version

    def _of(self, run_id: str) -> training.EpisodeEvolution:
        if self._trainer is None or run_id != self._run_id:
            trains = f"run {self._run_id} is" if self._run_id else "none is"
            raise Conflict(f"run {run_id} is not training a model now: {trains}")
        return self._trainer


def model_path(models: Path, name: str, *, new: bool) -> Path:
    """Return where the manifest of a model is, or of a new one will be.

    Raises:
        InvalidInput: It is not a valid model name, or there is none of this name.
    """
    if not _MODEL_NAME.fullmatch(name):
        accepted = "lower-case letters, digits and _, beginning with a letter"
        raise InvalidInput.at("--train", f"{name!r} is not a valid model name", accepted)
    path = models / f"{name}.toml"
    if not new and not path.exists():
        known = ", ".join(sorted(each.stem for each in models.glob("*.toml")))
        reason = f"there is no model {name!r} in {models}"
        raise InvalidInput.at("--train", reason, f"{known or 'none'}, or --new")
    return path


def new_record(
    scenario: Scenario,
    *,
    reference: str,
    policy: str,
    episodes: int = 1,
    seed: int | None = None,
    max_rounds: int | None = None,
    train: str = "",
    models: str = "",
    judged: int = 5,
) -> dict[str, Any]:
    """Return the record of a run that has not begun.

    Args:
        scenario: What is simulated.
        reference: Its name at the ScenarioDB, or its file.
        policy: Name or file of the policy that decides; "": the one of the scheduler service.
        episodes: Wanted number.
        seed: Of the first episode; None: the scenario's.
        max_rounds: Of each episode; None: no bound.
        train: Model that the rewards update; "": none.
        models: Its folder, as far as it is known here.
        judged: Unseen seeds to compare the trained model on.
    """
    now = datetime.now(UTC)
    return {
        "run_id": f"ste-{now:%Y%m%d%H%M%S}-{secrets.token_hex(3)}",
        "created_at": now.isoformat(timespec="seconds"),
        "state": "running",
        "scenario": scenario.name,
        "scenario_ref": reference,
        "scenario_sha256": scenario_hash(scenario),
        "policy": policy,
        "policy_ref": policy,
        "seed": scenario.seed if seed is None else seed,
        "train": train,
        "models": models,
        "judged": judged,
        "max_rounds": max_rounds,
        "episodes_wanted": episodes,
        "episodes": [],
        "resumes": 0,
        "judgement": None,
    }


class RunDriver:
    """Executes runs; each step of a run is stored as soon as it is done."""

    def __init__(self, controller: Controller, runs: RunFolder, training: Training | None) -> None:
        """Take what runs need.

        Args:
            controller: Does the episodes.
            runs: Where records are stored.
            training: For runs that train a model; None: they are refused.
        """
        self._controller, self._runs, self._training = controller, runs, training

    def policy(self) -> Policy:
        """Return the policy that decides: the scheduler's."""
        return self._controller.policy()

    def execute(
        self,
        record: dict[str, Any],
        *,
        scenario: str,
        new: bool = False,
        resume: bool = False,
        on_round: Callable[[int], Progress] = lambda episode: lambda report, share: None,
        on_episode: Callable[[Episode], None] = lambda episode: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do the episodes that a run lacks, and judge and publish what it trains.

        Args:
            record: As `new_record` made it or as it was stored; it is updated.
            scenario: Name for the controller's ScenarioDB.
            new: Register the model that is trained.
            resume: Go on where the run was cancelled.
            on_round: Returns what is called after each round of an episode.
            on_episode: Called after each episode, before it is stored as finished.
            cancelled: Asked before each round.

        Raises:
            Cancelled: It was cancelled; finished episodes are stored.
            Conflict: It is executed already.
        """
        run_id, train = str(record["run_id"]), str(record["train"])
        with self._runs.executing(run_id):
            if train:
                self._trained().begin(run_id, train, new=new, resume=resume)
            record["state"] = "running"
            if resume:
                record["resumes"] = record.get("resumes", 0) + 1
            self._runs.save(record)
            # The rounds of an episode that was cut off are other ones now.
            notified_as = f"{run_id}/resumed-{record['resumes']}" if resume else run_id
            try:
                for number in range(len(record["episodes"]), record["episodes_wanted"]):
                    episode = self._controller.episode(
                        scenario,
                        run=notified_as,
                        episode=number,
                        seed=training.seed_of_episode(record["seed"], number)
                        if train
                        else record["seed"] + number,
                        train=train,
                        max_rounds=record["max_rounds"],
                        on_round=on_round(number),
                        cancelled=cancelled,
                    )
                    on_episode(episode)
                    record["episodes"].append(episode_to_json(episode))
                    if train:
                        self._trained().keep(run_id)
                    self._runs.save(record)
                if train:
                    record["judgement"] = self._judgement(record, scenario, cancelled)
                    episodes = count_of(record["episodes_wanted"], "episode")
                    trained_on = f"run {run_id}: {episodes} of {scenario}"
                    record["model_version"] = self._trained().publish(run_id, trained_on)
            except (Cancelled, KeyboardInterrupt):
                self._end(record, "cancelled")
                raise
            except BaseException as error:
                self._end(record, "failed", str(error))
                raise
            self._end(record, "completed")

    def _end(self, record: dict[str, Any], state: str, problem: str = "") -> None:
        record["state"] = state
        record["problem"] = problem
        self._runs.save(record)

    def _trained(self) -> Training:
        if self._training is None:
            raise InvalidInput.at(
                "--train", "there is no folder of models to train", "--models DIR"
            )
        return self._training

    def _judgement(
        self, record: dict[str, Any], scenario: str, cancelled: Callable[[], bool]
    ) -> dict[str, object] | None:
        """Compare the model after and before the training on unseen seeds, each deciding alone."""
        first = int(record["seed"]) + UNSEEN
        seeds = range(first, first + int(record["judged"]))
        if not seeds:
            return None
        trained, frozen = (
            self._turnarounds(record, scenario, seeds, state, cancelled)
            for state in ("trained", "frozen")
        )
        return {
            "figure": "mean_turnaround_s",
            "seeds": list(seeds),
            "trained": trained,
            "frozen": frozen,
            **asdict(compare(np.array(trained), np.array(frozen))),
        }

    def _turnarounds(
        self,
        record: dict[str, Any],
        scenario: str,
        seeds: Sequence[int],
        state: str,
        cancelled: Callable[[], bool],
    ) -> list[float]:
        return [
            self._controller.episode(
                scenario,
                run=f"{record['run_id']}/{state}",
                episode=number,
                seed=seed,
                judged=state,
                cancelled=cancelled,
            ).figures.mean_turnaround_s
            for number, seed in enumerate(seeds)
        ]
