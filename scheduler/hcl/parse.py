"""HCL text → `NomadJob`: the only reader of HCL, strict about what it knows.

python-hcl2's grammar does the reading; its conversion to dicts, which loses doubled attributes and
leaves quotes in keys and strings, is not used: the syntax tree is walked here. What this module
does not know is refused by name, so that no part of a job is ever silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

import hcl2
from lark import Token, Tree
from lark.exceptions import LarkError, UnexpectedInput

from edgeyard.devices.operators import OPERATORS
from edgeyard.errors import HclError
from edgeyard.scheduler.hcl.job import (
    CONFIG_NAMES,
    Artifact,
    ConfigValue,
    DeviceConstraint,
    JobAffinity,
    JobSpread,
    NodeConstraint,
    NomadJob,
    Periodic,
    Template,
)
from edgeyard.scheduler.hcl.text import REFERENCE_PATTERN, unescaped

LIMIT_CHARACTERS = 256 * 1024
"""Maximum size of a job, which usually has about 4 KiB."""

Value = str | int | float | bool | tuple[str, ...]
T = TypeVar("T")

_ESCAPED_MARKS = {"ESCAPED_INTERPOLATION": "${", "ESCAPED_DIRECTIVE": "%{"}
_SECONDS = re.compile(r"([0-9]{1,9})s")
_NO_VALUE = ("is_set", "is_not_set")


def parse_job(text: str) -> NomadJob:
    """Read one job.

    Raises:
        HclError: The text is not HCL, or holds a block, attribute, operator or expression that is
            not known here; it is named.
    """
    root = _read(text)
    job = root.block("job", labels=1)
    group = job.block("group", labels=1)
    task = group.block("task", labels=1)
    resources = task.block("resources")
    device = resources.block("device", labels=1)
    parsed = NomadJob(
        job_id=job.label,
        namespace=job.take("namespace", _text, None),
        node_pool=job.take("node_pool", _text, None),
        priority=job.need("priority", _whole),
        datacenters=job.need("datacenters", _texts),
        type=job.need("type", _text),
        periodic=_periodic(job),
        meta=_strings(job.blocks("meta", at_most=1)),
        node_constraints=tuple(_node_constraint(block) for block in job.blocks("constraint")),
        group=group.label,
        group_count=group.take("count", _whole, 1),
        retries_off=_retries_off(group),
        lost_after_s=_lost_after_s(group),
        task=task.label,
        driver=task.need("driver", _text),
        kill_timeout_s=task.take("kill_timeout", _seconds, None),
        artifacts=tuple(_artifact(block) for block in task.blocks("artifact")),
        templates=tuple(_template(block) for block in task.blocks("template")),
        config=_config(task.block("config")),
        env=_strings([task.block("env")]),
        cpu_mhz=resources.take("cpu", _whole, None),
        memory_mib=resources.take("memory", _whole, None),
        device=device.label,
        device_count=device.take("count", _whole, 1),
        constraints=tuple(_constraint(block) for block in device.blocks("constraint")),
        affinities=tuple(_affinity(block) for block in device.blocks("affinity")),
        node_affinities=tuple(_affinity(block) for block in job.blocks("affinity")),
        spreads=tuple(_spread(block) for block in job.blocks("spread")),
    )
    for body in (root, job, group, task, resources, device):
        body.done()
    return parsed


def warm_up() -> None:
    """Build the grammar's tables: up to seconds where they are not cached on disk."""
    hcl2.parses_to_tree("a = 1\n")


def _periodic(job: _Body) -> Periodic | None:
    for block in job.blocks("periodic", at_most=1):
        crons = block.need("crons", _texts)
        if len(crons) != 1:
            block.refuse("must have exactly one cron")
        periodic = Periodic(
            cron=crons[0],
            prohibit_overlap=block.take("prohibit_overlap", _truth, False),
            enabled=block.take("enabled", _truth, True),
            time_zone=block.take("time_zone", _text, None),
        )
        block.done()
        return periodic
    return None


def _retries_off(group: _Body) -> bool:
    restarts = group.blocks("restart", at_most=1)
    reschedules = group.blocks("reschedule", at_most=1)
    for block in restarts:
        if block.need("attempts", _whole) != 0 or block.need("mode", _text) != "fail":
            block.refuse('must be attempts = 0 and mode = "fail"')
        block.done()
    for block in reschedules:
        if block.need("attempts", _whole) != 0 or block.need("unlimited", _truth):
            block.refuse("must be attempts = 0 and unlimited = false")
        block.done()
    if len(restarts) != len(reschedules):
        group.refuse("restart and reschedule must be turned off together, or neither")
    return bool(restarts)


def _lost_after_s(group: _Body) -> int | None:
    for block in group.blocks("disconnect", at_most=1):
        lost_after_s = block.need("lost_after", _seconds)
        if block.need("replace", _truth):
            block.refuse("must be replace = false")
        block.done()
        return lost_after_s
    return None


def _artifact(block: _Body) -> Artifact:
    checksum = ""
    for options in block.blocks("options", at_most=1):
        checksum = options.need("checksum", _text)
        options.done()
    artifact = Artifact(
        source=block.need("source", _text),
        destination=block.need("destination", _text),
        mode=block.take("mode", _text, "any"),
        checksum=checksum,
    )
    block.done()
    return artifact


def _template(block: _Body) -> Template:
    template = Template(
        data=block.need("data", _text),
        destination=block.need("destination", _text),
        env=block.take("env", _truth, False),
        change_mode=block.take("change_mode", _text, "restart"),
        perms=block.take("perms", _text, "0644"),
    )
    block.done()
    return template


def _constraint(block: _Body) -> DeviceConstraint:
    attribute, operator, value = _condition(block)
    return DeviceConstraint(attribute=attribute, operator=operator, value=value)


def _node_constraint(block: _Body) -> NodeConstraint:
    attribute, operator, value = _condition(block)
    return NodeConstraint(attribute=attribute, operator=operator, value=value)


def _affinity(block: _Body) -> JobAffinity:
    weight = block.take("weight", _whole, 50)
    attribute, operator, value = _condition(block)
    return JobAffinity(attribute=attribute, operator=operator, value=value, weight=weight)


def _spread(block: _Body) -> JobSpread:
    targets = []
    for target in block.blocks("target", labels=1):
        targets.append((target.label, target.need("percent", _whole)))
        target.done()
    spread = JobSpread(
        attribute=block.need("attribute", _text),
        weight=block.take("weight", _whole, 50),
        targets=tuple(targets),
    )
    block.done()
    return spread


def _condition(block: _Body) -> tuple[str, str, str]:
    """Return the attribute, operator and value of a block ``constraint``."""
    operator = block.take("operator", _text, "=")
    if operator not in OPERATORS:
        block.refuse(f"unknown operator {operator!r}")
    attribute = block.need("attribute", _text)
    if operator in _NO_VALUE:
        value = block.take("value", _as_text, "")
    else:
        value = block.need("value", _as_text)
    block.done()
    return attribute, operator, value


def _config(block: _Body) -> Mapping[str, ConfigValue]:
    found: dict[str, ConfigValue] = {
        name: block.need(name, read) for name, read in _CONFIG.items() if name in block.names()
    }
    for auth in block.blocks("auth", at_most=1):
        if sorted(auth.names()) != ["password", "username"]:
            auth.refuse("username and password are needed, and nothing else")
        found["auth"] = {name: auth.need(name, _text) for name in auth.names()}
        auth.done()
    block.done()
    return {name: found[name] for name in CONFIG_NAMES if name in found}


def _strings(blocks: list[_Body]) -> Mapping[str, str]:
    strings: dict[str, str] = {}
    for block in blocks:
        strings.update((name, block.need(name, _as_text)) for name in block.names())
        block.done()
    return strings


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise HclError("is not a string")
    return value


def _as_text(value: Value) -> str:
    """Convert a number or bool to a string as Nomad does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _text(value)


def _whole(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise HclError("is not a whole number")
    return value


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise HclError("is not true or false")
    return value


def _texts(value: Value) -> tuple[str, ...]:
    if not isinstance(value, tuple):
        raise HclError("is not a list of strings")
    return value


def _seconds(value: Value) -> int:
    match = _SECONDS.fullmatch(_text(value))
    if match is None:
        raise HclError('is not a number of seconds such as "5s"')
    return int(match.group(1))


_CONFIG: Mapping[str, Callable[[Value], ConfigValue]] = {
    "image": _text,
    "network_mode": _text,
    "privileged": _truth,
    "command": _text,
    "args": _texts,
}


def _read(text: str) -> _Body:
    if len(text) > LIMIT_CHARACTERS:
        raise HclError(f"the job is longer than {LIMIT_CHARACTERS} characters")
    try:
        (body,) = hcl2.parses_to_tree(text).children
    except UnexpectedInput as error:
        raise HclError(f"not HCL: line {error.line}, column {error.column}") from error
    except LarkError as error:
        raise HclError("not HCL") from error
    return _Body(_tree(body), "", (), text)


class _Body:
    """The content of a block. Readers take what they know; `done` refuses the rest."""

    def __init__(self, tree: Tree[Token], where: str, labels: tuple[str, ...], source: str) -> None:
        self._where = where
        self._labels = labels
        self._source = source
        self._attributes: dict[str, Value] = {}
        self._blocks: list[tuple[str, _Body]] = []
        separated = True
        for item in map(_tree, tree.children):
            if item.data == "new_line_or_comment":
                separated = True
                continue
            if not separated:  # python-hcl2 takes it, Nomad does not
                self.refuse("each argument needs a line of its own")
            separated = False
            if item.data == "attribute":
                self._add_attribute(item)
            else:
                self._add_block(item)

    @property
    def label(self) -> str:
        return self._labels[0]

    def names(self) -> list[str]:
        return list(self._attributes)

    def refuse(self, reason: str) -> NoReturn:
        raise HclError(f"{self._where or 'top level'}: {reason}")

    def need(self, name: str, read: Callable[[Value], T]) -> T:
        if name not in self._attributes:
            self.refuse(f"{name} is missing")
        try:
            return read(self._attributes.pop(name))
        except HclError as error:
            self.refuse(f"{name} {error}")

    def take(self, name: str, read: Callable[[Value], T], default: T) -> T:
        return self.need(name, read) if name in self._attributes else default

    def blocks(self, name: str, *, labels: int = 0, at_most: int | None = None) -> list[_Body]:
        found = [body for kind, body in self._blocks if kind == name]
        self._blocks = [pair for pair in self._blocks if pair[0] != name]
        if at_most is not None and len(found) > at_most:
            self.refuse(f"more than {at_most} block {name!r}")
        for body in found:
            if len(body._labels) != labels:
                self.refuse(f"block {name!r} takes {labels} label(s)")
        return found

    def block(self, name: str, *, labels: int = 0) -> _Body:
        found = self.blocks(name, labels=labels, at_most=1)
        if not found:
            self.refuse(f"block {name!r} is missing")
        return found[0]

    def done(self) -> None:
        for name in self._attributes:
            self.refuse(f"unknown attribute {name!r}")
        for name, _ in self._blocks:
            self.refuse(f"unknown block {name!r}")

    def _add_attribute(self, item: Tree[Token]) -> None:
        name_tree, _, expression = item.children
        name = _first_token(name_tree)
        if name in self._attributes:
            self.refuse(f"attribute {name!r} is given twice")
        value = _value(_tree(expression), self._source)
        if value is None:
            self.refuse(f"{name} holds an expression that Edgeyard does not know")
        self._attributes[name] = value

    def _add_block(self, item: Tree[Token]) -> None:
        kind = _first_token(item.children[0])
        labels: list[str] = []
        for part in item.children[1:]:
            if not isinstance(part, Tree) or part.data == "new_line_or_comment":
                continue
            if part.data == "body":
                where = f"{self._where} > {kind}" if self._where else kind
                body = _Body(part, where, tuple(labels), self._source)
                self._blocks.append((kind, body))
            elif part.data == "string":
                labels.append(_string(part, self._source))
            else:
                labels.append(_first_token(part))


def _value(tree: Tree[Token], source: str) -> Value | None:
    """Return the value of a literal or a list of strings; None for other expressions."""
    if tree.data == "unary_op":  # how python-hcl2 reads -5, but not -50
        sign, operand = tree.children
        value = _value(_tree(operand), source)
        if sign != "-" or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return -value
    if tree.data != "expr_term" or len(tree.children) != 1:
        return None
    inner = _tree(tree.children[0])
    if inner.data == "string":
        return _string(inner, source)
    if inner.data == "int_lit":
        return int(_first_token(inner))
    if inner.data == "float_lit":
        return float(_first_token(inner))
    if inner.data == "literal_value":
        return {"true": True, "false": False}.get(_first_token(inner))
    if inner.data == "tuple":
        items = [
            _value(item, source)
            for item in inner.children
            if isinstance(item, Tree) and item.data != "new_line_or_comment"
        ]
        texts = tuple(item for item in items if isinstance(item, str))
        return texts if len(texts) == len(items) else None
    return None


def _string(tree: Tree[Token], source: str) -> str:
    parts: list[str] = []
    for child in tree.children:
        if not isinstance(child, Tree):
            continue  # the quotes
        (part,) = child.children
        if not isinstance(part, Tree):
            mark = _ESCAPED_MARKS.get(part.type)
            if mark is None:
                parts.append(unescaped(part))
            elif '"' in part:  # python-hcl2 reads on to the next brace, beyond the string's end
                raise HclError(f"{mark!r} is escaped but not closed within its string")
            else:
                parts.append(mark + unescaped(part[3:]))
            continue
        text = source[part.meta.start_pos : part.meta.end_pos]
        if REFERENCE_PATTERN.fullmatch(text) is None:
            raise HclError(f"Edgeyard does not know the expression {text!r} in a string")
        parts.append(text)
    return "".join(parts)


def _tree(node: Tree[Token] | Token) -> Tree[Token]:
    if not isinstance(node, Tree):
        raise HclError(f"unexpected {str(node)!r}")
    return node


def _first_token(node: Tree[Token] | Token) -> str:
    while isinstance(node, Tree):
        node = node.children[0]
    return str(node)
