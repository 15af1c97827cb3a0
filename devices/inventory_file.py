"""The boards file ``target.json`` as a model: what is read, written and published as JSON Schema.

The shape is the platform's. ``local``, ``ssh``, ``hooks`` and ``sandbox`` of a board are ours. What
the platform adds for its hosts (``image``, ``volumes``, ``env``, ``auth`` of an engine) is accepted
and not kept: only the host's device plugin reads it (`edgeyard.devices.containers`). Of an engine's
``devices`` the paths are kept, because a board without them is gone.
"""

import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Dict, List, Literal, Optional, Tuple, TypeVar, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from edgeyard.devices.attributes import MEANINGS
from edgeyard.devices.benchmark_types import (
    BENCHMARK_TYPE_PATTERN,
    check_declared_types,
    declared_type,
)
from edgeyard.devices.containers import device_mappings
from edgeyard.devices.model import (
    ENGINE_PATTERN,
    FAMILY_PATTERN,
    TARGET_UID_PATTERN,
    Board,
    BoardEngine,
    Hook,
    LocalSlice,
    Sandbox,
    SshAddress,
)
from edgeyard.devices.sizes import ACCEPTED, parse_size

_MAX_CPUS = 4096
_MAX_HOOK_S = 3600
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _TextPattern:
    """Text that a whole pattern matches; refused with a message of its own."""

    pattern: str
    message: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        compiled = re.compile(self.pattern)

        def check(value: str) -> str:
            if not compiled.fullmatch(value):
                raise PydanticCustomError("pattern", "{message}", {"message": self.message})
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Dict[str, Any]:
        return {**handler(schema), "pattern": f"^({self.pattern.strip('^$')})$"}


def _size(value: object) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise PydanticCustomError("size", f"must be {ACCEPTED}") from error


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


_PATH = r"/[^\x00-\x20\x7f\"'%$]{1,1023}"
"""An absolute path without what ssh would expand or split."""

_Size = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "description": "Bytes, or text such as '4 GiB'.",
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}],
        }
    ),
]
_Path = Annotated[
    str, _TextPattern(f"({_PATH})?", "must be an absolute path without blanks, quotes, % or $")
]
_PathPattern = Annotated[
    str,
    _TextPattern(
        r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+", "must be an absolute path below the root folder"
    ),
]
_BenchmarkType = Annotated[
    str, _TextPattern(BENCHMARK_TYPE_PATTERN.pattern, "must be a type such as TYPE1")
]


def _declared_types(declarations: Dict[str, Any]) -> Dict[str, Any]:
    texts = {}
    for name, declaration in declarations.items():
        try:
            texts[name] = declared_type(name, declaration).as_text()
        except ValueError as error:
            raise PydanticCustomError(
                "type", "{message}", {"message": f"{name}: {error}"}
            ) from error
    try:
        check_declared_types(texts)
    except ValueError as error:
        raise PydanticCustomError("type", "{message}", {"message": str(error)}) from error
    return declarations


_EngineName = Annotated[
    str,
    _TextPattern(
        ENGINE_PATTERN.pattern, "must be a lower-case letter, then letters, digits, '_', '-'"
    ),
]
_Skipped = Annotated[Any, Field(exclude=True)]
_Word = Annotated[str, _TextPattern(r"[^\x00]*", "must not contain the character NUL")]


def _require_program(words: List[str]) -> List[str]:
    if not words or not words[0]:
        raise PydanticCustomError("program", "must begin with a program")
    return words


_FIRST_IS_PROGRAM: Dict[str, Any] = {"prefixItems": [{"type": "string", "minLength": 1}]}


class _Entry(BaseModel):
    """An object of the file, without unknown fields and without conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class EngineEntry(_Entry):
    """A runtime that the board offers."""

    version: Annotated[
        str, BeforeValidator(_number_as_text), WithJsonSchema({"type": ["string", "number"]})
    ] = ""
    supported_types: List[_BenchmarkType] = Field(description="Benchmark types, e.g. TYPE1.")
    types: Annotated[
        Dict[str, Any],
        AfterValidator(_declared_types),
        Field(
            description="Declarations of further types, TYPE4 to TYPE99, that the engine offers, "
            "by name: description, dataset (none, optional, required), parameters and results."
        ),
    ] = {}
    image: Annotated[_Skipped, Field(description="Image of the engine's container.")] = None
    devices: Annotated[
        _Skipped,
        Field(description="Device files of the host; without them the board is unhealthy."),
    ] = None
    volumes: Annotated[_Skipped, Field(description="Volumes of the container.")] = None
    env: Annotated[_Skipped, Field(description="Environment of the container; not kept.")] = None
    auth: Annotated[_Skipped, Field(description="Login at the image's registry; not kept.")] = None
    user: Annotated[
        _Skipped,
        Field(description="User of the container as UID:GID; 10001:10001 by default."),
    ] = None

    def board_engine(self, name: str) -> BoardEngine:
        """Return the engine that this describes; the types that it declares are supported."""
        return BoardEngine(
            name,
            self.version,
            frozenset(self.supported_types) | frozenset(self.types),
            tuple(declared_type(each, self.types[each]) for each in sorted(self.types)),
        )

    def device_files(self) -> List[str]:
        """Return the host's side of `devices`.

        Forms that `device_mappings` does not know concern the platform alone and are skipped.
        """
        return [each["host_path"] for each in device_mappings(self.devices)]


class MemoryEntry(_Entry):
    """Sizes of the board's memories."""

    ram: _Size
    storage: _Size


class LocalEntry(_Entry):
    """The board is a slice of this machine."""

    cpus: Annotated[
        List[Annotated[int, Field(ge=0, lt=_MAX_CPUS)]],
        Field(min_length=1, description="CPU numbers that its task is pinned to."),
        AfterValidator(lambda cpus: sorted(set(cpus))),
    ]
    threads: int = Field(default=1, ge=1, le=_MAX_CPUS)
    duty_cycle: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Share of the time that the engine computes; below 1 it idles after each "
        "inference. Boards whose duty cycles add up to at most 1 on a CPU do not share it.",
    )


class SshEntry(_Entry):
    """The board is reached from its host by ssh."""

    host: Annotated[
        str,
        _TextPattern(
            r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9_])?|::1|::",
            "must be a host's name or address",
        ),
    ]
    port: int = Field(default=22, ge=1, le=65535)
    user: Annotated[
        str, _TextPattern("([A-Za-z0-9_][A-Za-z0-9._-]{0,31})?", "must be a user's name")
    ] = ""
    identity_file: _Path = Field(default="", description="Private key, a file of the host.")
    known_hosts_file: _Path = Field(default="", description="Host keys that are trusted.")
    python: Annotated[
        str,
        _TextPattern(
            f"[A-Za-z0-9_][A-Za-z0-9._-]{{0,63}}|{_PATH}",
            "must be a program's name or absolute path",
        ),
    ] = Field(default="python3", description="Python of the board, with NumPy and the engines.")


class HookEntry(_Entry):
    """A program that runs before or after each run on the board."""

    when: Literal["before", "after"]
    run: List[_Word] = Field(
        min_length=1,
        description="Program and arguments; no shell splits them.",
        json_schema_extra=_FIRST_IS_PROGRAM,
    )
    on: Literal["host", "board"] = "host"
    timeout_s: float = Field(default=60.0, gt=0, le=_MAX_HOOK_S)

    @field_validator("run")
    @classmethod
    def _check_program(cls, words: List[str]) -> List[str]:
        return _require_program(words)


class SandboxEntry(_Entry):
    """How runs on the board are confined."""

    mode: Literal["required", "auto", "off"] = Field(
        default="auto",
        description="required: nothing runs where files and network can't be confined; "
        "auto: as far as the machine allows; off.",
    )
    devices: List[_PathPattern] = Field(
        default=[], description="Device files that runs may use, with *."
    )
    paths: List[_PathPattern] = Field(
        default=[], description="Files and folders that runs may read."
    )


def _own_attribute(name: str) -> str:
    first = name.split(".", 1)[0]
    if name in MEANINGS or first in ("dynamic", "engine", "memory"):
        raise PydanticCustomError(
            "attribute", "{message}", {"message": f"{name} is an attribute of Edgeyard's own"}
        )
    return name


_AttributeName = Annotated[
    str,
    _TextPattern(
        r"[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63}){0,4}",
        "an attribute is lower-case words of letters, digits and '_', joined by '.'",
    ),
    AfterValidator(_own_attribute),
]
_AttributeText = Annotated[
    str, _TextPattern(r"[^\x00-\x1f\x7f]{1,256}", "must be 1 to 256 characters in one line")
]


class BoardEntry(_Entry):
    """One board of the inventory file."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "required": ["local", "ssh"],
                "properties": {"local": {"type": "object"}, "ssh": {"type": "object"}},
            }
        }
    )

    target_uid: Annotated[
        str,
        _TextPattern(TARGET_UID_PATTERN.pattern, "must be <family>-NNNN-NNNN"),
    ] = Field(description="Its identity; begins with its family and occurs once in the file.")
    memory: MemoryEntry
    engines: Dict[_EngineName, EngineEntry] = Field(
        json_schema_extra={"additionalProperties": False}
    )
    local: Optional[LocalEntry] = None
    ssh: Optional[SshEntry] = None
    hooks: List[HookEntry] = []
    sandbox: SandboxEntry = SandboxEntry()
    energy_rail: Annotated[
        str,
        _TextPattern(r"([^\x00-\x1f\x7f]{1,100})?", "must be the name of a rail in one line"),
    ] = Field(
        default="",
        description="Rail of the board's power sensors that measures it, e.g. VDD_IN or "
        "ina3221/VDD_IN; without it the board's input is found by rule.",
    )
    energy_command: Annotated[Optional[List[_Word]], Field(min_length=1)] = Field(
        default=None,
        description="Program of the host with arguments that prints the joules that an external "
        "meter has counted so far; no shell splits them.",
    )
    attributes: Dict[_AttributeName, Union[bool, int, float, _AttributeText]] = Field(
        default={},
        description="Attributes of the lab's own, for constraints, e.g. rack or soc.vendor.",
        json_schema_extra={"additionalProperties": {"type": ["boolean", "number", "string"]}},
    )

    @field_validator("target_uid")
    @classmethod
    def _check_family_and_uniqueness(cls, uid: str, info: ValidationInfo) -> str:
        if isinstance(info.context, _Place):
            info.context.check(uid)
        return uid

    @field_validator("energy_command")
    @classmethod
    def _check_meter(cls, words: Optional[List[str]]) -> Optional[List[str]]:
        return None if words is None else _require_program(words)

    @model_validator(mode="after")
    def _check_one_source_of_energy(self) -> "BoardEntry":
        if self.energy_rail and self.energy_command is not None:
            raise PydanticCustomError(
                "energy", "has either energy_rail or energy_command, not both"
            )
        return self

    @model_validator(mode="after")
    def _check_one_place(self) -> "BoardEntry":
        if self.local is not None and self.ssh is not None:
            raise PydanticCustomError("place", "is either local or reached by ssh, not both")
        return self

    @classmethod
    def of(cls, board: Board) -> "BoardEntry":
        """Describe a board."""
        return cls(
            target_uid=board.target_uid,
            memory=MemoryEntry(storage=board.storage_bytes, ram=board.ram_bytes),
            engines={
                engine.name: EngineEntry(
                    version=engine.version,
                    supported_types=sorted(engine.supported_types),
                    types={each.name: each.as_json() for each in engine.declared_types},
                )
                for engine in board.engines
            },
            local=None if board.local is None else LocalEntry(**_json_fields(board.local)),
            ssh=None if board.ssh is None else SshEntry(**_json_fields(board.ssh)),
            hooks=[HookEntry(**_json_fields(hook)) for hook in board.hooks],
            sandbox=SandboxEntry(**_json_fields(board.sandbox)),
            energy_rail=board.energy_rail,
            energy_command=list(board.energy_command) or None,
            attributes=dict(board.attributes),
        )

    def board(self) -> Board:
        """Return the board that this describes."""
        files = {path for engine in self.engines.values() for path in engine.device_files()}
        return Board(
            target_uid=self.target_uid,
            family=self.target_uid.partition("-")[0],
            ram_bytes=self.memory.ram,
            storage_bytes=self.memory.storage,
            engines=tuple(engine.board_engine(name) for name, engine in self.engines.items()),
            local=None if self.local is None else _value(LocalSlice, self.local),
            ssh=None if self.ssh is None else _value(SshAddress, self.ssh),
            hooks=tuple(_value(Hook, hook) for hook in self.hooks),
            device_files=tuple(sorted(files)),
            sandbox=_value(Sandbox, self.sandbox),
            energy_rail=self.energy_rail,
            energy_command=tuple(self.energy_command or ()),
            attributes=dict(self.attributes),
        )


class _Place:
    """Where the boards of a family stand, and which names occurred before."""

    def __init__(self, family: str, seen: "set[str]") -> None:
        self._family, self._seen = family, seen

    def check(self, uid: str) -> None:
        if not uid.startswith(f"{self._family}-"):
            message = f"{uid} does not begin with its family {self._family}"
            raise PydanticCustomError("family", "{message}", {"message": message})
        if uid in self._seen:
            message = f"{uid} occurs more than once"
            raise PydanticCustomError("repeated", "{message}", {"message": message})
        self._seen.add(uid)


_BOARDS = TypeAdapter(List[BoardEntry])


def boards_of(data: object, problems: List[str]) -> List[Board]:
    """Read the boards of a parsed file.

    Args:
        data: The parsed JSON.
        problems: Every mistake is added here, with its JSON path.

    Returns:
        The boards of the families without a mistake.
    """
    if not isinstance(data, dict):
        problems.append("$: must be an object of families")
        return []
    found: List[Board] = []
    seen: "set[str]" = set()
    for family, entries in data.items():
        if not FAMILY_PATTERN.fullmatch(family):
            problems.append(
                f"$.{family}: a family is a letter, then letters and digits, all lower case"
            )
            continue
        try:
            boards = _BOARDS.validate_python(entries, context=_Place(family, seen))
        except ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                problems.append(f"{_path(family, each['loc'])}: {_message(each)}")
        else:
            found += [entry.board() for entry in boards]
    return found


def inventory_schema() -> Dict[str, Any]:
    """Return the JSON Schema (2020-12) of the file.

    That a board's name begins with its family and occurs once is not in the schema.
    """
    boards = _BOARDS.json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "edgeyard/inventory/v1",
        "title": "Expected boards",
        "description": "By family; boards that are not named here are unknown.",
        "type": "object",
        "propertyNames": {"pattern": FAMILY_PATTERN.pattern},
        "$defs": boards.pop("$defs"),
        "additionalProperties": boards,
    }


def _path(family: str, location: Tuple[Union[int, str], ...]) -> str:
    steps = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in location)
    return f"$.{family}" + "".join(step for step in steps if step != ".[key]")


def _message(error: Any) -> str:
    own = {
        "missing": "is missing",
        "extra_forbidden": "is not a known field",
        "dict_type": "must be an object",
        "model_type": "must be an object",
    }
    message: str = own.get(error["type"], error["msg"])
    return message.replace("Input should", "must")


def _json_fields(value: Any) -> Dict[str, Any]:
    fields = asdict(value)
    return {name: list(each) if isinstance(each, tuple) else each for name, each in fields.items()}


def _value(kind: "type[_Value]", entry: _Entry) -> _Value:
    fields = {name: getattr(entry, name) for name in type(entry).model_fields}
    return kind(
        **{name: tuple(each) if isinstance(each, list) else each for name, each in fields.items()}
    )
