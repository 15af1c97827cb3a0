"""What the account of a submission can bear."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.run_times import shortest_run_s
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.model.benchmark import JobDescription
from edgeyard.scheduler.model.run_bounds import run_bound_s
from edgeyard.scheduler.model.tariff import parse_tariff
from edgeyard.scheduler.ports import UnitOfWork

_ASK = "ask an operator"


class AccountLimits:
    """What one user's account, and group, can bear at most, whatever is running now."""

    def __init__(self, uow: UnitOfWork, caller: Caller, services: Services) -> None:
        group = quotas.group_of(uow, caller.user)
        limits = [("your account", caller.user.max_running)]
        credits = [("your account", uow.credits.balance(caller.user_id).credits)]
        if group is not None:
            limits.append((f"your group {group.group_id}", group.max_running))
            credits.append((f"your group {group.group_id}", group.credits))
        self._max_running = [(whose, boards) for whose, boards in limits if boards is not None]
        self._credits = [(whose, left) for whose, left in credits if left is not None]
        self._uow = uow
        self._max_run_s = services.settings.default_user_time_s
        self._factor = min(parse_tariff(services.settings.tariff).factors, default=1.0)

    @cached_property
    def _rates(self) -> Mapping[str, float]:
        return self._uow.credits.rates()

    def check(self, description: JobDescription) -> None:
        """Refuse what could never be placed.

        Raises:
            InvalidInput: The account has too few credits for it even when nothing else runs, or may
                not run anything; or the benchmark's own budget pays for no run.
        """
        for whose, boards in self._max_running:
            if boards == 0:
                raise InvalidInput.at("", f"{whose} may have no benchmarks on boards", _ASK)
            if description.count > boards:
                raise InvalidInput.at(
                    "/count",
                    f"is {description.count}, more than {whose} may have on boards at once",
                    f"at most {boards}",
                )
        if not self._credits and description.user_budget is None:
            return
        rate = self._rates.get(description.family, 1.0) * self._factor
        if rate <= 0:
            return
        min_s = shortest_run_s(description)
        if description.user_budget is not None and description.user_budget / rate < min_s:
            raise InvalidInput.at(
                "/user_budget",
                f"{description.user_budget:g} credits are too few for any run: the shortest takes "
                f"{min_s:g} s at {rate:g} credits a second",
                f"at least {rate * min_s:g}",
            )
        bound_s = run_bound_s(
            description.user_time_s, description.user_budget, rate, self._max_run_s
        )
        count = description.count
        for whose, left in self._credits:
            if round(count * rate * bound_s, 6) > left:
                runs = "a run" if count == 1 else f"{count} runs"
                raise InvalidInput.at(
                    "/user_time",
                    f"{runs} of {bound_s:g} s may cost {count * rate * bound_s:g} credits, and "
                    f"{whose} has {left:g}",
                    f"at most {left / rate / count:g} s, or more credits",
                )
