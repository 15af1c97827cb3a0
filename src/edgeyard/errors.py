"""Every error that Edgeyard raises on purpose, in one tree.

::

    EdgeyardError
    ├── InvalidInput          the request is wrong: fix the fields that it names
    │   ├── UrlRefused        the address rules forbid this URL
    │   └── NothingDiffers    two versions to be compared are the same
    ├── NotAuthenticated      no token, or one that is unknown, expired or revoked
    ├── Forbidden             the token is good, but not for this
    ├── NotFound              no such thing, or not yours: the two look the same
    ├── Conflict              the thing is not in a state that allows this
    │   └── ConcurrentUpdate  another transaction was first: `Store.transact` tries again
    ├── TooLarge              over a stated limit
    ├── QuotaExceeded         over what the account, or everybody together, may have
    ├── RateLimited           too many requests in a short time
    │   ├── TooManyLogins     too many log-ins that failed
    │   ├── TooManyOpenRequests  too many requests of a user at the same time
    │   ├── TooManyOpenBytes  too large ones
    │   └── TooMuchHeavyWork  too many that take long
    ├── Unavailable           not now: wait and try again
    │   └── LeadershipLost    another server leads: this one's engine must not write any more
    ├── Cancelled             whoever wanted this no longer does
    ├── ConfigError           the operator's settings or files are wrong
    ├── HclError              text that is not a job of ours
    │   └── HclMismatch       a rendered job that does not read back as it was meant
    ├── ClusterError
    │   ├── ClusterUnreachable    nothing is known of what happened to the call
    │   ├── JobExists             create-only: the id is taken
    │   └── JobRefused            the cluster will not run this job
    ├── StartFailed           an agent of a test bed did not come up
    └── RunFailed             a benchmark could not be measured, and whose matter that is

This module is imported on boards too: only the standard library, Python 3.10.
"""

from dataclasses import dataclass
from typing import Dict, Optional, Sequence, Tuple, Type


def reason_of(error: Exception) -> str:
    """Return why a file can't be read or written, in words: an OSError without number and path."""
    return getattr(error, "strerror", None) or str(error)


class EdgeyardError(Exception):
    """Root of the tree; never raised itself.

    Errors cross processes whole, whatever arguments their classes take.
    """

    def __reduce__(self) -> Tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: Type[EdgeyardError], args: Tuple[object, ...], attributes: Dict[str, object]
) -> EdgeyardError:
    """Return an unpickled error."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a request.

    Attributes:
        pointer: JSON pointer (RFC 6901) of the field, "" for the whole body.
        reason: What is wrong, in words.
        accepted: What would be accepted, in words; "" where nothing would.
    """

    pointer: str
    reason: str
    accepted: str = ""

    def __str__(self) -> str:
        tail = f" (accepted: {self.accepted})" if self.accepted else ""
        return f"{self.pointer or 'request'}: {self.reason}{tail}"


class InvalidInput(EdgeyardError):
    """The request names or needs something that can't be; fix the fields it lists."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors: Tuple[FieldError, ...] = tuple(errors)
        super().__init__("; ".join(str(error) for error in self.errors))

    @classmethod
    def at(cls, pointer: str, reason: str, accepted: str = "") -> "InvalidInput":
        """Return the error for one wrong field, which is the common case."""
        return cls([FieldError(pointer, reason, accepted)])


class UrlRefused(InvalidInput):
    """A URL that leads, or may lead, where the address rules forbid."""

    def __init__(self, url: str, reason: str, pointer: str = "") -> None:
        self.url = url
        super().__init__([FieldError(pointer, reason, "an http(s) URL of a public address")])


class NothingDiffers(InvalidInput):
    """Two versions to be compared are the same, so that there is nothing to measure."""


class NotAuthenticated(EdgeyardError):
    """The call carries no token that is good now."""

    def __init__(self, reason: str = "a bearer token is needed") -> None:
        super().__init__(reason)


class Forbidden(EdgeyardError):
    """The caller is known, but this is not theirs to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class NotFound(EdgeyardError):
    """There is no such thing for this caller."""

    def __init__(self, kind: str, name: str, reason: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(reason or f"no {kind} {name!r}")


class Conflict(EdgeyardError):
    """The thing exists, but its present state does not allow the action."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class ConcurrentUpdate(Conflict):
    """Another transaction changed what this one had read, or waits for what this one locked.

    Nothing of it was kept, and the same unit of work can be tried again from its start.
    """


class TooLarge(EdgeyardError):
    """Something is over a limit that the operator set.

    Attributes:
        limit: Name of the limit; "" where it has none.
        value: The most that is allowed.
        whose: Whom the limit is for.
    """

    def __init__(
        self, what: str, limit_bytes: int, limit: str = "", whose: str = "this server"
    ) -> None:
        self.limit = limit
        self.value = limit_bytes
        self.whose = whose
        named = f" ({limit} of {whose}; an operator may raise it)" if limit else ""
        super().__init__(f"{what} is over the limit of {limit_bytes} bytes{named}")

    @classmethod
    def of_run(cls, limit: str, value: int, used: int, whose: str) -> "TooLarge":
        """Return the error of a run that uploads more than it may."""
        made = cls("the result", value, limit, whose)
        made.args = (
            f"{limit} of {whose} is {value}, and this would make {used}: upload less, or ask an "
            "operator for more",
        )
        return made


class QuotaExceeded(EdgeyardError):
    """A user, or all of them together, would have more than they may.

    Attributes:
        limit: Name of the limit.
        value: The most that is allowed.
        used: What there would be.
        whose: Whom the limit is for, e.g. ``user alice``.
        retry_after_s: When there may be room, in seconds; None: not before somebody makes some.
    """

    def __init__(
        self,
        limit: str,
        value: int,
        used: int,
        whose: str,
        advice: str,
        retry_after_s: Optional[float] = None,
    ) -> None:
        self.limit = limit
        self.value = value
        self.used = used
        self.whose = whose
        self.retry_after_s = retry_after_s
        super().__init__(f"{limit} of {whose} is {value}, and this would make {used}: {advice}")


class RateLimited(EdgeyardError):
    """More requests came in the window of a rate limit than it allows.

    Attributes:
        limit: Name of the limit.
        value: Requests a minute that are allowed.
        whose: Whom the limit is for, e.g. ``a token of user alice``.
        retry_after_s: When the next request is allowed, in seconds.
    """

    def __init__(self, limit: str, value: int, whose: str, retry_after_s: float) -> None:
        self.limit = limit
        self.value = value
        self.whose = whose
        self.retry_after_s = retry_after_s
        super().__init__(
            f"{limit} of {whose} is {value} requests a minute, and there were more: "
            f"try again in {retry_after_s:.0f} s, and less often"
        )


class TooManyLogins(RateLimited):
    """Too many log-ins failed lately, or too many sessions are open."""

    def __init__(self, name: str, value: int, whose: str, retry_after_s: float, what: str) -> None:
        super().__init__(name, value, whose, retry_after_s)
        self.args = (f"too many {what}: try again in {retry_after_s:.0f} s",)


class TooManyOpenRequests(RateLimited):
    """A user has more requests under way at the same time than they may."""

    def __init__(self, value: int, whose: str) -> None:
        super().__init__("open_requests_per_user", value, whose, 1.0)
        self.args = (
            f"open_requests_per_user of {whose} is {value}, and so many are under way: end some, "
            "such as uploads that do not go on or logs that are followed",
        )


class TooMuchHeavyWork(RateLimited):
    """A user has more requests that take long under way or waiting than they may."""

    def __init__(self, value: int, whose: str) -> None:
        super().__init__("heavy_requests_per_user", value, whose, 2.0)
        self.args = (
            f"heavy_requests_per_user of {whose} is {value}, and so many run or wait for their "
            "turn: send the next when one is answered",
        )


class TooManyOpenBytes(RateLimited):
    """Bodies of a user's requests that are under way take more memory than they may."""

    def __init__(self, value: int, whose: str) -> None:
        super().__init__("open_body_bytes_per_user", value, whose, 1.0)
        self.args = (
            f"open_body_bytes_per_user of {whose} is {value} bytes, and the bodies of requests "
            "that are under way take as much: send the next when one is answered",
        )


class Unavailable(EdgeyardError):
    """The service can't do this now, but is likely to later."""

    def __init__(self, reason: str, retry_after_s: float = 5.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class DatabaseDamaged(Unavailable):
    """The database's file has damaged pages: an operator has to restore a backup."""

    def __init__(
        self,
        reason: str = "the database is damaged: stop the server, check the disk and "
        "restore a backup",
    ) -> None:
        super().__init__(reason, retry_after_s=300.0)


class OutOfSpace(Unavailable):
    """No room is left where the service keeps its data: an operator has to make some.

    Attributes:
        limit: ``reserve_bytes`` where only that is left; "" where nothing is.
        value: Of the limit.
        whose: Whom the limit is for.
    """

    def __init__(self, doing: str, reserve_bytes: int = 0) -> None:
        self.limit = "reserve_bytes" if reserve_bytes else ""
        self.value = reserve_bytes
        self.whose = "this server"
        left = f"only the reserve of {reserve_bytes} bytes" if reserve_bytes else "no room"
        super().__init__(
            f"{doing}: {left} is left on the server; its operator has to make some",
            retry_after_s=60.0,
        )


class LeadershipLost(Unavailable):
    """Another server has taken the lead since: nothing of this epoch may be written any more."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(f"this server no longer leads: its epoch {epoch} is over")


class Cancelled(EdgeyardError):
    """The work was given up half-way, because nobody wants its result any more."""


class ConfigError(EdgeyardError):
    """Settings, inventory or policy files that can't be used, each mistake with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class HclError(EdgeyardError):
    """HCL text that is not a job that Edgeyard knows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class HclMismatch(HclError):
    """A rendered job that reads back as something else; it must not be dispatched."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__("rendered job differs from its decision: " + "; ".join(differences))


class ClusterError(EdgeyardError):
    """A call to the cluster did not do what was asked."""


class ClusterUnreachable(ClusterError):
    """The cluster did not answer: whether the call took effect is unknown."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class JobExists(ClusterError):
    """A job of this id is already there; create-only changes nothing."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} is already registered")


class JobRefused(ClusterError):
    """The cluster understood the job and will not take it.

    Attributes:
        lasting: Whether it will never take this job; otherwise the reason is a state of the cluster
            that may pass, such as a quota.
    """

    def __init__(self, job_id: str, reason: str, *, lasting: bool = True) -> None:
        self.job_id = job_id
        self.reason = reason
        self.lasting = lasting
        super().__init__(f"job {job_id} refused: {reason}")


class StartFailed(EdgeyardError):
    """A test bed did not come up; with the end of the log that may tell why."""

    def __init__(self, reason: str, log_tail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}\n{log_tail}".rstrip())


class RunFailed(EdgeyardError):
    """A benchmark could not be measured.

    Attributes:
        category: One of the failure categories, e.g. ``user_model``.
        sentence: What happened and, where there is one, the fix, for the one who can act on it.
    """

    def __init__(self, category: str, sentence: str) -> None:
        self.category = category
        self.sentence = sentence
        super().__init__(f"{category}: {sentence}")
