"""Regular expressions of users, matched in time that grows only with text times pattern.

Python's own ``re`` backtracks: a pattern such as ``(.|.)*x`` can hold it for years, and a
constraint comes from anybody. This is the classic simulation of all states at once (Thompson,
CACM 11(6), 1968), for the common part of Go's syntax, in which Nomad reads the same pattern:
literals, ``.``, classes, ``\\d \\w \\s`` and their opposites, ``^ $ \\b \\B``, groups, ``|`` and
``* + ? {m,n}`` (lazy forms match the same texts).

Imported on boards too: only the standard library, Python 3.10.
"""

from typing import Callable, Dict, FrozenSet, List, Optional, Tuple

_MAX_STATES = 250  # a search of them takes a millisecond or two
_MAX_REPEATS = 1000  # Go's own limit
_MAX_LENGTH = 500
_MAX_DEPTH = 50
_MAX_TEXT = 256  # with the states it bounds the work: attributes of boards are short

_Test = Callable[[str], bool]
_Check = Callable[[str, int], bool]


class PatternError(ValueError):
    """The text is no pattern that is understood here."""


class _State:
    """Takes a character that passes ``test``, or goes on freely where ``check`` holds."""

    __slots__ = ("after", "check", "test")

    def __init__(self) -> None:
        self.test: Optional[_Test] = None
        self.check: Optional[_Check] = None
        self.after: List["_State"] = []


class _States:
    """Makes states, up to the limit."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> _State:
        self._count += 1
        if self._count > _MAX_STATES:
            raise PatternError("it is too big")
        return _State()


_Node = Callable[[_States, _State], _State]
"""Builds its states behind the given one and returns its last: a repeated node is built anew."""


class Pattern:
    """A compiled pattern.

    Raises:
        PatternError: The text is no pattern, or too big a one.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise PatternError(f"it is longer than {_MAX_LENGTH} characters")
        node = _Parser(text).parse()
        states = _States()
        self._start = states.new()
        self._end = node(states, self._start)

    def search(self, text: str) -> bool:
        """Whether it matches anywhere in the text; never in one of over 256 characters."""
        if len(text) > _MAX_TEXT:
            return False
        current: FrozenSet[_State] = frozenset()
        for index in range(len(text) + 1):
            current = _closure(current | {self._start}, text, index)
            if self._end in current:
                return True
            if index < len(text):
                current = frozenset(
                    after
                    for state in current
                    if state.test is not None and state.test(text[index])
                    for after in state.after
                )
        return False


def _closure(states: FrozenSet[_State], text: str, index: int) -> FrozenSet[_State]:
    """All states that are reached without taking a character."""
    seen = set(states)
    todo = list(states)
    while todo:
        state = todo.pop()
        if state.test is not None or (state.check and not state.check(text, index)):
            continue
        for after in state.after:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return frozenset(seen)


def _taking(test: _Test) -> _Node:
    def build(states: _States, before: _State) -> _State:
        state, end = states.new(), states.new()
        before.after.append(state)
        state.test, state.after = test, [end]
        return end

    return build


def _checking(check: _Check) -> _Node:
    def build(states: _States, before: _State) -> _State:
        state, end = states.new(), states.new()
        before.after.append(state)
        state.check, state.after = check, [end]
        return end

    return build


def _in_order(nodes: List[_Node]) -> _Node:
    def build(states: _States, before: _State) -> _State:
        for node in nodes:
            before = node(states, before)
        return before

    return build


def _either(nodes: List[_Node]) -> _Node:
    def build(states: _States, before: _State) -> _State:
        fork, end = states.new(), states.new()
        before.after.append(fork)
        for node in nodes:
            node(states, fork).after.append(end)
        return end

    return build


def _repeat(node: _Node, least: int, most: Optional[int]) -> _Node:
    def build(states: _States, before: _State) -> _State:
        for _ in range(least):
            before = node(states, before)
        loop, end = states.new(), states.new()
        before.after.append(loop)
        if most is None:
            node(states, loop).after.append(loop)
        else:
            for _ in range(most - least):
                loop.after.append(end)
                then = node(states, loop)
                loop = states.new()
                then.after.append(loop)
        loop.after.append(end)
        return end

    return build


class _Parser:
    """Recursive descent over the pattern's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise PatternError("a ')' closes nothing")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("it ends too early")
        self._at += 1
        return char

    def _eat(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError("its groups are nested too deep")
        branches = [self._sequence()]
        while self._eat("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else _either(branches)

    def _sequence(self) -> _Node:
        parts: List[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _in_order(parts)

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._eat("?")
        if self._bounds() is not None:
            raise PatternError("a repetition repeats a repetition")
        return _repeat(node, *bounds)

    def _bounds(self) -> Optional[Tuple[int, Optional[int]]]:
        if self._eat("*"):
            return 0, None
        if self._eat("+"):
            return 1, None
        if self._eat("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        close = self._text.find("}", self._at)
        inner = self._text[self._at + 1 : close] if close > 0 else ""
        low, comma, high = inner.partition(",")
        if not (_digits(low) and (high == "" or _digits(high))):
            return None  # Go takes such a brace as itself
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _MAX_REPEATS or (most is not None and most < least):
            raise PatternError(f"bad repetition {{{inner}}}")
        self._at = close + 1
        return least, most

    def _atom(self) -> _Node:
        char = self._next()
        if char == "(":
            if self._eat("?P<") or self._eat("?<"):
                name = self._text[self._at :].partition(">")[0]
                if not name.isidentifier():
                    raise PatternError("only groups, named groups and (?:…) are understood")
                self._at += len(name) + 1
            elif self._eat("?") and not self._eat(":"):
                raise PatternError("only groups, named groups and (?:…) are understood")
            node = self._choice()
            if not self._eat(")"):
                raise PatternError("a '(' is not closed")
            return node
        if char in "*+?":
            raise PatternError(f"{char!r} repeats nothing")
        if char == "[":
            return _taking(self._class())
        if char == ".":
            return _taking(lambda char: char != "\n")
        if char == "^":
            return _checking(lambda text, index: index == 0)
        if char == "$":
            return _checking(lambda text, index: index == len(text))
        if char == "\\":
            return self._escape()
        return _taking(_one(char))

    def _escape(self) -> _Node:
        char = self._next()
        if char in "bB":
            inside = char == "b"
            return _checking(lambda text, index: _at_border(text, index) == inside)
        if char == "A":
            return _checking(lambda text, index: index == 0)
        if char == "z":
            return _checking(lambda text, index: index == len(text))
        return _taking(_escaped(char))

    def _class(self) -> _Test:
        negated = self._eat("^")
        tests: List[_Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            char = self._next()
            if char == "[" and self._peek() == ":":
                raise PatternError("classes such as [:alpha:] are not understood")
            if char == "\\":
                char = self._next()
                if char in "dDwWsS":
                    tests.append(_escaped(char))
                    continue
                char = _plain(char)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                last = self._next()
                if last == "\\":
                    last = _plain(self._next())
                if last < char:
                    raise PatternError(f"bad range {char}-{last}")
                tests.append(_between(char, last))
            else:
                tests.append(_one(char))
        self._at += 1
        found = tuple(tests)
        return lambda char: any(test(char) for test in found) != negated


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _one(wanted: str) -> _Test:
    return lambda char: char == wanted


def _between(low: str, high: str) -> _Test:
    return lambda char: low <= char <= high


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _at_border(text: str, index: int) -> bool:
    before = index > 0 and _is_word(text[index - 1])
    after = index < len(text) and _is_word(text[index])
    return before != after


def _escaped(char: str) -> _Test:
    sets: Dict[str, _Test] = {
        "d": lambda char: char.isascii() and char.isdigit(),
        "w": _is_word,
        "s": lambda char: char in "\t\n\f\r ",
    }
    if char in sets:
        return sets[char]
    if char.lower() in sets:
        inside = sets[char.lower()]
        return lambda char: not inside(char)
    return _one(_plain(char))


def _plain(char: str) -> str:
    """The character that an escape stands for."""
    named = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
    if char in named:
        return named[char]
    if char.isascii() and char.isalnum():
        raise PatternError(f"escape \\{char} is not understood")
    return char
