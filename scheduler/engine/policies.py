"""Which policy decides, and which one beside it; operators change both while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.policy import Policy, parse_policy
from edgeyard.scheduler.framework.registry import Plugins, Registry
from edgeyard.scheduler.model.records import PolicyActivation, PolicySeat
from edgeyard.scheduler.ports import UnitOfWork

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """A policy with its plugins, ready to decide."""

    policy: Policy
    plugins: Plugins


class Policies:
    """Reads what was activated; one that no longer works leaves its seat to the configured one."""

    def __init__(
        self,
        registry: Registry,
        configured: Policy,
        adjust: Callable[[Policy], Policy] = lambda policy: policy,
    ) -> None:
        """Nothing is read before `current`.

        Args:
            registry: Of the plugins.
            configured: Decides until another is activated.
            adjust: What the server's settings change of any policy.

        Raises:
            ConfigError: A plugin of the configured policy is not installed.
        """
        self._registry = registry
        self._adjust = adjust
        self.configured = self._chosen(configured)
        self._made: dict[PolicySeat, tuple[PolicyActivation, Chosen | None]] = {}
        self._texts: dict[str, Chosen | None] = {}

    def check(self, text: str, source: str) -> Policy:
        """A policy that could be activated.

        Raises:
            ConfigError: It can't be read, or a plugin is not installed; every mistake.
        """
        policy = parse_policy(text, source=source)
        if files := [each.name for each in policy.scorers if each.file]:
            raise ConfigError(
                [
                    f"{source}: scorers: {', '.join(files)}: only the policy of the server's "
                    "settings names files: nobody else has the server run one"
                ]
            )
        self._registry.resolve(policy)
        return policy

    def current(self, uow: UnitOfWork) -> tuple[Chosen, Chosen | None]:
        """Who decides, and who decides beside it."""
        activated = uow.cycles.activated()
        active = self._of(PolicySeat.ACTIVE, activated) or self.configured
        return active, self._of(PolicySeat.SHADOW, activated)

    def own(self, uow: UnitOfWork) -> Mapping[str, Chosen]:
        """Who decides benchmarks that wait and have a policy of their own; by benchmark.

        The same object for the same policy.
        """
        found: dict[str, Chosen] = {}
        texts: dict[str, Chosen | None] = {}
        for benchmark_id, override in uow.cycles.overrides().items():
            if override.text not in texts:
                texts[override.text] = (
                    self._texts[override.text]
                    if override.text in self._texts
                    else self._usable(override.name, override.text, benchmark_id)
                )
            chosen = texts[override.text]
            if chosen is not None:
                found[benchmark_id] = chosen
        self._texts = texts
        return found

    def _of(
        self, seat: PolicySeat, activated: Mapping[PolicySeat, PolicyActivation]
    ) -> Chosen | None:
        activation = activated.get(seat)
        if activation is None:
            return None
        made = self._made.get(seat)
        if made is None or made[0] != activation:
            chosen = self._usable(activation.name, activation.text, seat.value)
            self._made[seat] = made = (activation, chosen)
        return made[1]

    def _usable(self, name: str, text: str, seat: str) -> Chosen | None:
        try:
            return self._chosen(parse_policy(text, source=name))
        except ConfigError as error:
            logger.error(
                "an activated policy can't be used",
                extra={"event": "policy.unusable", "seat": seat, "why": str(error)},
            )
            return None

    def _chosen(self, policy: Policy) -> Chosen:
        policy = self._adjust(policy)
        return Chosen(policy=policy, plugins=self._registry.resolve(policy))
