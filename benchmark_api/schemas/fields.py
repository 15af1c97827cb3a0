"""Types of fields, each with its check, its JSON Schema, and what it says when it refuses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from edgeyard.benchmark_api.schemas.body import pointer
from edgeyard.devices.benchmark_types import ACCEPTED_TYPES, BENCHMARK_TYPE_PATTERN
from edgeyard.devices.model import ENGINE_PATTERN, FAMILY_PATTERN, TARGET_UID_PATTERN
from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN
from edgeyard.devices.runner.spec import MAX_CALLERS, MAX_LEVELS, MIN_BOUND_S, callers_problem
from edgeyard.devices.sizes import ACCEPTED as SIZES
from edgeyard.devices.sizes import parse_size
from edgeyard.errors import FieldError
from edgeyard.scheduler.hcl.text import ATTRIBUTE_PATTERN, plain_text_problem
from edgeyard.scheduler.model.quantities import duration_s, ratio

MAX_NAME_BYTES = 200
"""File systems allow 255 bytes a name; room is left for what we put before it."""
MAX_URL = 2048
MAX_EMAIL = 254
"""Characters of an address, by RFC 5321."""
MIN_PASSWORD, MAX_PASSWORD = 8, 256
"""Characters of a password."""
MAX_DURATION_S = 30 * 86400.0

RESERVED_NAMES = frozenset({"spec.json", "odt_config.json"})
"""What the task's folder holds besides the user's files."""


def refusal(reason: str, accepted: str) -> PydanticCustomError:
    """Return an error that states what is wrong and which values are allowed."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason, "accepted": accepted})


def _checked(parse: Callable[[object], object], accepted: str) -> BeforeValidator:
    def check(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise refusal(str(error), accepted) from None

    return BeforeValidator(check)


def _plain(value: str) -> str:
    if value.isspace():
        raise refusal("is blank", "a text that is not blank")
    if problem := plain_text_problem(value):
        raise refusal(problem, "plain text on one line")
    return value


def _file_name(value: str) -> str:
    if problem := file_name_problem(value):
        raise refusal(problem, "a plain file name such as resnet50.onnx")
    return value


_DIRECTION_CONTROLS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Characters with which ``exe.onnx`` can be shown as another name."""


def file_name_problem(name: str) -> str | None:
    """Return why a text is not a valid file name, or None if it is one."""
    if not name or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        return f"is empty or longer than {MAX_NAME_BYTES} bytes"
    if "/" in name or "\\" in name:
        return "has path parts"
    if name.startswith((".", "-")) or name != name.strip():
        return "begins with a dot, a dash or a space, or ends with a space"
    if name in RESERVED_NAMES:
        return "is a name that Edgeyard uses itself"
    if _DIRECTION_CONTROLS.intersection(name):
        return "has characters that change the direction of writing"
    return plain_text_problem(name)


_SPECIALS = frozenset('"(),:;<>[]\\')
"""Characters by which one address can be written in several ways, quoted or with comments."""
_EMAIL = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,189}")


def normalized_email(text: str) -> str | None:
    """Return an e-mail address as it is stored and looked up; None where the text is none.

    Addresses that look alike because of their case, width or invisible characters are the same or
    none: the part before the @ is prepared by the profile UsernameCaseMapped of PRECIS (RFC 8265),
    the domain by IDNA with the mapping of UTS 46.
    """
    import idna  # both come with the server
    import precis_i18n

    stripped = text.strip()
    if len(stripped) > MAX_EMAIL or _EMAIL.fullmatch(stripped) is None:
        return None
    user, _, domain = stripped.partition("@")
    try:
        prepared = precis_i18n.get_profile("UsernameCaseMapped").enforce(user)
        if _SPECIALS.intersection(prepared):
            return None
        return f"{prepared}@{idna.encode(domain.rstrip('.'), uts46=True).decode('ascii')}"
    except UnicodeError:  # IDNA's errors are of this kind too
        return None


def _email(text: str) -> str:
    address = normalized_email(_plain(text))
    if address is None:
        raise refusal("is not an e-mail address", "an address such as ada@example.org")
    return address


def is_url(text: str) -> bool:
    """Return whether a text is meant as a URL; `fetch` checks the URL itself."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) is not None


def _name_or_url(value: str) -> str:
    return _plain(value) if is_url(value) else _file_name(value)


def _time(value: object) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str) and re.fullmatch(
        r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", value, re.ASCII
    ):
        # Python takes at most six digits of a second's fraction.
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value.upper()))
    else:
        raise ValueError("is not a date and time with seconds and a time zone")
    if moment.tzinfo is None:
        raise ValueError("has no zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside of the calendar") from None


def pattern(regex: re.Pattern[str], what: str, accepted: str) -> AfterValidator:
    """Return a validator of text; its error states that the text is not ``what``."""

    def check(value: str) -> str:
        if regex.fullmatch(value) is None:
            raise refusal(f"is not {what}", accepted)
        return value

    return AfterValidator(check)


def _schema(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern.strip('^$')}$"})


def _without_login(link: str) -> str:
    if _LOGIN.fullmatch(link) is not None:
        reason = "contains a user name or password, which others would see"
        raise refusal(reason, "the link without it")
    return link


_COMMIT = re.compile(r"^[0-9A-Za-z]*$")
_LINK = re.compile(r"^(https?://[^\s]+)?$")
_LOGIN = re.compile(r"https?://[^/?#\\]*@.*", re.IGNORECASE)
MAX_LINK = 2048

BENCHMARK_ID_PATTERN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,54}$")

Text = Annotated[str, StringConstraints(strict=True, max_length=256), AfterValidator(_plain)]
LongText = Annotated[str, StringConstraints(strict=True, max_length=2000), AfterValidator(_plain)]
GitCommit = Annotated[
    str,
    StringConstraints(strict=True, max_length=64),
    pattern(_COMMIT, "a commit", "its hash, as `git rev-parse HEAD` prints it"),
    _schema(_COMMIT),
]
Link = Annotated[
    str,
    StringConstraints(strict=True, max_length=MAX_LINK),
    AfterValidator(_plain),
    pattern(_LINK, "a URL", "http(s)://HOST/PATH without spaces"),
    AfterValidator(_without_login),
    _schema(_LINK),
]
Url = Annotated[str, StringConstraints(strict=True, max_length=MAX_URL), AfterValidator(_plain)]
FileNameOrUrl = Annotated[
    str, StringConstraints(strict=True, max_length=MAX_URL), AfterValidator(_name_or_url)
]
BenchmarkId = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(
        BENCHMARK_ID_PATTERN,
        "the beginning of a benchmark id",
        "1 to 55 of letters, digits, '.', '_', '-', beginning with a letter or digit",
    ),
    _schema(BENCHMARK_ID_PATTERN),
]
Family = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(FAMILY_PATTERN, "a family's name", "lower-case letters and digits, e.g. rpi4b"),
    _schema(FAMILY_PATTERN),
]
BenchmarkTypeName = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(
        BENCHMARK_TYPE_PATTERN,
        "a benchmark type",
        ACCEPTED_TYPES,
    ),
    _schema(BENCHMARK_TYPE_PATTERN),
]
EngineName = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(ENGINE_PATTERN, "an engine's name", "lower-case letters, digits, _ and -, e.g. ort"),
    _schema(ENGINE_PATTERN),
]
TargetUid = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(TARGET_UID_PATTERN, "a board's target_uid", "<family>-NNNN-NNNN"),
    _schema(TARGET_UID_PATTERN),
]
Email = Annotated[str, StringConstraints(strict=True), AfterValidator(_email)]
_CONSTRAINED = re.compile(f"(?:{ATTRIBUTE_PATTERN.pattern}|{NODE_ATTRIBUTE_PATTERN.pattern})")
AttributeName = Annotated[
    str,
    StringConstraints(strict=True, max_length=128),
    pattern(
        _CONSTRAINED,
        "an attribute of a board or of its node",
        "a name such as memory.ram, or ${node.class}, ${attr.NAME} or ${meta.NAME} of the node",
    ),
    _schema(_CONSTRAINED),
]


def _size(value: object) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise ValueError("is not a size, or out of range") from None


Size = Annotated[
    int,
    _checked(_size, SIZES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
                {"type": "string", "examples": ["4 GiB", "500 MB"]},
            ]
        }
    ),
]


def _duration(value: object) -> float:
    seconds = duration_s(value)
    if not 0 < seconds <= MAX_DURATION_S:
        raise ValueError("is more than 30 days" if seconds else "is not above 0")
    return seconds


Duration = Annotated[
    float,
    _checked(_duration, "seconds, or text such as 15 min; at most 30 days"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_DURATION_S},
                {"type": "string", "examples": ["15 min", "2 h"]},
            ]
        }
    ),
]


def _latency_bound(value: object) -> float:
    if isinstance(value, str) and value.strip().isdecimal():
        raise ValueError("has no unit")
    seconds = _duration(value)
    if seconds < MIN_BOUND_S:
        raise ValueError("is below 1 µs")
    return seconds


LatencyBound = Annotated[
    float,
    _checked(
        _latency_bound,
        "text with a unit such as 20 ms, from 1 µs to 30 days; a JSON number is of seconds",
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": MIN_BOUND_S, "maximum": MAX_DURATION_S},
                {"type": "string", "examples": ["20 ms"]},
            ]
        }
    ),
]
"""A bound of milliseconds as a rule: ``"100"`` is not taken as 100 seconds."""


def _precision(value: object) -> float:
    share = ratio(value)
    if not 0.001 <= share <= 0.5:
        raise ValueError("is outside of 0.1 % to 50 %")
    return share


Precision = Annotated[
    float,
    _checked(_precision, "0.1 % to 50 %, e.g. '2 %' or 0.02"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0.001, "maximum": 0.5},
                {"type": "string", "examples": ["2 %"]},
            ]
        }
    ),
]


def _callers(value: object) -> tuple[int, ...]:
    stated = list(value) if isinstance(value, list | tuple) else [value]
    parts = [
        part for each in stated for part in (each.split(",") if isinstance(each, str) else [each])
    ]
    found = []
    for each in parts:
        if isinstance(each, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", each):
            each = int(each)
        if type(each) is not int:
            raise ValueError("is neither a number of callers nor a list of them")
        found.append(each)
    if problem := callers_problem(sorted(found)):
        raise ValueError(problem)
    return tuple(sorted(found))


Concurrency = Annotated[
    tuple[int, ...],
    _checked(
        _callers,
        f"1 to {MAX_CALLERS}, or up to {MAX_LEVELS} different ones such as 1,2,4",
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_CALLERS},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 1, "maximum": MAX_CALLERS},
                    "maxItems": MAX_LEVELS,
                    "uniqueItems": True,
                },
                {"type": "string", "examples": ["4", "1,2,4"]},
            ]
        }
    ),
]
Time = Annotated[
    datetime,
    _checked(_time, "RFC 3339 with zone, e.g. 2026-11-21T08:00:00Z"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


MAX_FINDINGS = 100
"""Mistakes of a body that are explained: looking up tens of thousands would take long."""


def field_errors(
    errors: Sequence[ErrorDetails],
    known: Mapping[str, FieldInfo],
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> list[FieldError]:
    """Pydantic's findings in our words, without any text of the input.

    Args:
        known: The top-level fields, for "did you mean" and for what they take.
        elsewhere: What is no top-level field but said in another way, and in which.
    """
    found = [_field_error(each, known, elsewhere) for each in errors[:MAX_FINDINGS]]
    if more := len(errors) - len(found):
        mistakes = f"holds {more} more mistake{'s' * (more > 1)}"
        found.append(FieldError("", mistakes, "what the reference says (/docs)"))
    return found


_LISTS_GO_ELSEWHERE = {("model",), ("target",), ("runtime",)}


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
}
"""What would do, by the first word of pydantic's error types such as ``int_parsing``."""
_QUOTED = {bool: "true or false", int: "a number", float: "a number"}
"""What YAML makes of a text without quotes, such as no, 42 and 1.30."""

_OTHER_KIND = re.compile(r"(\w+)_(?:type|parsing|from_float|number)")
"""Pydantic's error types for a value of another kind."""


_BEYOND_BOUNDS = {
    "less_than": "is too large",
    "less_than_equal": "is too large",
    "greater_than": "is too small",
    "greater_than_equal": "is too small",
    "string_too_long": "is too long",
    "too_long": "is too long",
    "too_short": "is too short",
    "string_too_short": "is too short",
}
"""Reasons by pydantic's error types; what is accepted names the bound."""


def _field_error(
    error: ErrorDetails,
    known: Mapping[str, FieldInfo],
    elsewhere: Mapping[str, str],
) -> FieldError:
    location = tuple(part for part in error["loc"] if not _is_branch(part))
    place = pointer(location)
    if error["type"] == "extra_forbidden":
        other = elsewhere.get(str(location[0])) if len(location) == 1 else None
        accepted = other or _nearest(location, known)
        return FieldError(place, "is not a field that Edgeyard knows", accepted)
    if error["type"] == "missing":
        return FieldError(place, "is required", _missing(location, known))
    if error["type"] == "string_type" and type(error["input"]) in _QUOTED:
        return FieldError(place, *not_text(error["input"]))
    if location in _LISTS_GO_ELSEWHERE and isinstance(error["input"], list):
        return FieldError(place, "is a list", "one name; POST /v1/campaigns takes lists")
    return FieldError(place, _reason(error)[:300], _accepted(error, location, known))


def not_text(value: bool | int | float) -> tuple[str, str]:
    """Return what is wrong with a value that YAML has read from a text without quotes, and the fix.

    The text itself is lost: 1.30 was read as 1.3.
    """
    shown = str(value).lower() if isinstance(value, bool) else value
    accepted = f'text: quote it, "{shown}" or as you wrote it'
    return f"{shown} is {_QUOTED[type(value)]}, not text", accepted


def _reason(error: ErrorDetails) -> str:
    value = error["input"]
    if problem := value_problem(error):
        return f"{value} {problem[0]}" if type(value) in (int, float) else problem[0]
    if error["type"] in ("literal_error", "enum"):
        return f"is {str(value)[:100]!r}"
    return error["msg"].removeprefix("Value error, ").removeprefix("Input ")


def value_problem(error: ErrorDetails) -> tuple[str, str] | None:
    """Return what is wrong with a value out of bounds or of another kind, without the value.

    Returns:
        The reason, to follow the value, and the bound, or "" for a value of another kind; None
        for all other errors.
    """
    if error["input"] != error["input"]:
        return "is not a number", _bound(error.get("ctx", {}))
    if reason := _BEYOND_BOUNDS.get(error["type"]):
        return reason, _bound(error.get("ctx", {}))
    kind = _OTHER_KIND.fullmatch(error["type"])
    if kind is None or kind[1] not in _KINDS:
        return None
    return f"is not {_KINDS[kind[1]]}", ""


def _accepted(
    error: ErrorDetails, location: tuple[int | str, ...], known: Mapping[str, FieldInfo]
) -> str:
    context = error.get("ctx", {})
    if said := context.get("accepted") or _bound(context):
        return str(said)
    kind = _KINDS.get(error["type"].split("_", 1)[0], "what the reference says (/docs)")
    field = known.get(str(location[0])) if len(location) == 1 else None
    limits = [_bound(_limits(part)) for part in field.metadata] if field is not None else []
    return ", ".join([kind, *filter(None, limits)])


def _limits(part: object) -> dict[str, object]:
    names = ("ge", "gt", "le", "lt")
    found = {name: getattr(part, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _missing(location: tuple[int | str, ...], known: Mapping[str, FieldInfo]) -> str:
    field = known.get(str(location[0])) if len(location) == 1 else None
    if field is None:
        return "a value"
    if isinstance(shape := field.annotation, type) and issubclass(shape, BaseModel):
        return "an object with " + ", ".join(shape.model_fields)
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return _either([repr(each) for each in choices]) or field.description or "a value"


def _either(words: Sequence[str]) -> str:
    """List choices as pydantic does: 'a', 'b' or 'c'."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _is_branch(part: object) -> bool:
    # In unions pydantic adds the branch's name to the path; no field of ours is named so.
    return isinstance(part, str) and ("[" in part or part in ("str", "dict", "list", "function"))


def _bound(context: Mapping[str, object]) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    words |= {"max_length": "at most", "min_length": "at least"}
    limits = [
        f"{word} {_limit_text(context[key])}" for key, word in words.items() if key in context
    ]
    return ", ".join(limits) or str(context.get("expected", ""))


def _limit_text(limit: object) -> str:
    """Return a limit as people write it: 1000000 instead of 1000000.0."""
    return f"{limit:.15g}" if isinstance(limit, float) else str(limit)


def _nearest(location: tuple[int | str, ...], known: Mapping[str, FieldInfo]) -> str:
    if len(location) != 1:
        return "no such field here"
    close = difflib.get_close_matches(str(location[0])[:100], known, n=1)
    return f"did you mean {close[0]}?" if close else "one of " + ", ".join(known)
