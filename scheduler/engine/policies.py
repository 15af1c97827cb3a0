"""Which policy decides, and which one as its shadow; operators change both at run time."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from edgeyard.errors import ConfigError, Conflict, NotFound
from edgeyard.scheduler.engine.plugin_lock import with_lock
from edgeyard.scheduler.framework.policy import (
    Policy,
    built_in_policies,
    parse_policy,
    read_policy,
)
from edgeyard.scheduler.framework.registry import Plugins, Registry
from edgeyard.scheduler.model.policies import PolicyActivation, PolicyRole, StoredPolicy
from edgeyard.scheduler.ports import UnitOfWork

logger = logging.getLogger(__name__)

BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedPolicy:
    """A policy with its plugins, ready to decide."""

    policy: Policy
    plugins: Plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy that goes by its name and version.

    Attributes:
        text: Its TOML.
        source: Who brought it: `BUILT_IN`, the server's settings, or a user's id.
    """

    name: str
    version: int
    text: str
    source: str


class Policies:
    """Reads what was activated; one that no longer works leaves its role to the configured one."""

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
        self._made: dict[PolicyRole, tuple[PolicyActivation, LoadedPolicy | None]] = {}
        self._texts: dict[str, LoadedPolicy | None] = {}

    def replace(self, other: Policies) -> None:
        """Decide by the configured policy and the adjustments of another one from now on."""
        self._adjust = other._adjust
        self._made, self._texts = {}, {}
        self.configured = other.configured

    def check(self, text: str, source: str) -> Policy:
        """Return a policy that could be activated.

        Raises:
            ConfigError: It can't be read, or a plugin is not installed; every mistake.
        """
        policy = parse_policy(text, source=source)
        if files := [each.name for each in policy.scorers if each.file]:
            raise ConfigError(
                [
                    f"{source}: scorers: {', '.join(files)}: only the policy of the server's "
                    "settings names files: other policies can't make the server run one"
                ]
            )
        self._registry.resolve(policy)
        return policy

    def known(self, uow: UnitOfWork) -> Mapping[tuple[str, int], NamedPolicy]:
        """Return all that go by a name and a version, sorted; what we bring counts as it is now."""
        found = {
            (each.name, each.version): NamedPolicy(
                name=each.name,
                version=each.version,
                text=each.text,
                source=each.by_user_id or "the server's settings",
            )
            for each in uow.policies.all()
        }
        for name in built_in_policies():
            text = read_policy(name)
            version = parse_policy(text, source=name).version
            found[name, version] = NamedPolicy(
                name=name, version=version, text=text, source=BUILT_IN
            )
        return dict(sorted(found.items()))

    def named(self, uow: UnitOfWork, name: str, version: int | None) -> NamedPolicy:
        """Return the known policy of a name; the highest version unless one is stated.

        Raises:
            NotFound: There is none.
        """
        known = self.known(uow)
        versions = [each for each in known.values() if each.name == name]
        if version is not None:
            versions = [each for each in versions if each.version == version]
        if not versions:
            raise NotFound("policy", name if version is None else f"{name}/{version}")
        return versions[-1]

    def keep(
        self, uow: UnitOfWork, policy: Policy, text: str, by_user_id: str, at: datetime
    ) -> str:
        """Bind name and version to this text from now on, whatever happens to the policy.

        Returns:
            The text that they stand for: other comments make no other policy.

        Raises:
            Conflict: They stand for another policy.
        """
        known = self.known(uow)
        same = known.get((policy.name, policy.version))
        if same is not None and tomllib.loads(same.text) != tomllib.loads(text):
            free = max(version for name, version in known if name == policy.name) + 1
            raise Conflict(
                f"policy {policy.name}/{policy.version} already exists with another text "
                f"(from {same.source}): give this one a new version, {free} for instance"
            )
        text = text if same is None else same.text
        uow.policies.add(
            StoredPolicy(
                name=policy.name, version=policy.version, text=text, by_user_id=by_user_id, at=at
            ),
            replace=same is not None and same.source == BUILT_IN,
        )
        return text

    def keep_configured(self, uow: UnitOfWork, text: str, at: datetime) -> None:
        """Keep what the settings name, also where it changed under its name and version."""
        policy = self.configured.policy
        kept = {(each.name, each.version): each for each in uow.policies.all()}
        before = kept.get((policy.name, policy.version))
        if before is not None and before.text == text:
            return
        if before is not None and tomllib.loads(before.text) != tomllib.loads(text):
            logger.warning(
                "the configured policy changed under the same name and version: what was learned "
                "and recorded under these is of another one; give it a new version",
                extra={
                    "event": "policy.changed",
                    "policy": f"{policy.name}/{policy.version}",
                    "since": before.at.isoformat(),
                },
            )
        uow.policies.add(
            StoredPolicy(name=policy.name, version=policy.version, text=text, by_user_id="", at=at),
            replace=True,
        )

    def current(self, uow: UnitOfWork) -> tuple[LoadedPolicy, LoadedPolicy | None]:
        """Return the active policy and its shadow; None: there is no shadow."""
        activated = uow.policies.activated()
        active = self._of(PolicyRole.ACTIVE, activated) or self.configured
        return active, self._of(PolicyRole.SHADOW, activated)

    def own(self, uow: UnitOfWork) -> Mapping[str, LoadedPolicy]:
        """Return the policies of waiting benchmarks that have one of their own, by benchmark.

        The same object for the same policy.
        """
        found: dict[str, LoadedPolicy] = {}
        texts: dict[str, LoadedPolicy | None] = {}
        for benchmark_id, override in uow.policies.overrides().items():
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
        self, role: PolicyRole, activated: Mapping[PolicyRole, PolicyActivation]
    ) -> LoadedPolicy | None:
        activation = activated.get(role)
        if activation is None:
            return None
        made = self._made.get(role)
        if made is None or made[0] != activation:
            chosen = self._usable(activation.name, activation.text, role.value)
            self._made[role] = made = (activation, chosen)
        return made[1]

    def _usable(self, name: str, text: str, role: str) -> LoadedPolicy | None:
        try:
            return self._chosen(parse_policy(text, source=name))
        except ConfigError as error:
            logger.error(
                "an activated policy can't be used",
                extra={"event": "policy.unusable", "role": role, "why": str(error)},
            )
            return None

    def _chosen(self, policy: Policy) -> LoadedPolicy:
        policy = self._adjust(policy)
        return LoadedPolicy(policy=policy, plugins=with_lock(self._registry.resolve(policy)))
