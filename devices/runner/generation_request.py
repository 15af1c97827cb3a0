"""What a run of GENAI is asked for: the prompt, how many tokens to generate, how many requests.

Read alike at submission and on the board: only the standard library, Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from edgeyard.devices.runner.engine_parameters import bad_parameter, read_choice

PRESETS: Mapping[str, Tuple[int, int]] = {
    "pp512+tg128": (512, 128),
    "pp512": (512, 1),
    "tg128": (1, 128),
}
"""Lengths of prompt and output, by the names that llama-bench gives its tests.

Its ``pp512`` generates nothing; here a request ends with its first token. Its ``tg128`` begins
with an empty context; here with a prompt of one token.
"""

DEFAULT_PRESET = "pp512+tg128"
DEFAULT_OUTPUT_LENGTH = 128
DEFAULT_REQUESTS, MAX_REQUESTS = 10, 10_000
MAX_LENGTH = 1_000_000
"""Tokens of a prompt or an output at most; the model's context bounds both together."""

PARAMETERS = ("preset", "prompt", "prompt_tokens", "prompt_length", "output_length", "requests")
_PROMPTS = ("prompt", "prompt_tokens", "prompt_length")


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One kind of request, made again and again.

    Attributes:
        preset: Name of the lengths; "": they were stated.
        text: The prompt as text; None: it is no text.
        tokens: The prompt as token ids; None: it is none.
        prompt_length: Tokens of the prompt; None: only a tokenizer knows, for ``text``.
        output_length: Tokens that are generated.
        requests: So many are measured, or more of short ones.
    """

    preset: str
    text: Optional[str]
    tokens: Optional[Tuple[int, ...]]
    prompt_length: Optional[int]
    output_length: int
    requests: int

    def problem(self, context_length: int, vocabulary: int, *, has_tokenizer: bool) -> str:
        """Return why a model can't take this request, naming the parameter; "": it can.

        Args:
            context_length: Tokens of prompt and output together that the model takes.
            vocabulary: Number of token ids, from 0 on.
            has_tokenizer: Whether text can be turned into token ids.
        """
        if self.text is not None and not has_tokenizer:
            return "parameters/prompt: the model's folder has no tokenizer: state prompt_tokens"
        wrong = next((each for each in self.tokens or () if each >= vocabulary), None)
        if wrong is not None:
            return (
                f"parameters/prompt_tokens: has {wrong}, and the model's token ids are from 0 to "
                f"{vocabulary - 1}"
            )
        return self.length_problem(self.prompt_length or 1, context_length)

    def length_problem(self, prompt_length: int, context_length: int) -> str:
        """Return why prompt and output do not fit into the model's context; "": they do."""
        if prompt_length + self.output_length <= context_length:
            return ""
        name = next((each for each in ("prompt", "prompt_tokens") if self._has(each)), "")
        where = name or ("preset" if self.preset else "prompt_length")
        return (
            f"parameters/{where}: a prompt of {prompt_length} tokens and {self.output_length} "
            f"generated ones are more than the model's context of {context_length}"
        )

    def _has(self, name: str) -> bool:
        return (self.text if name == "prompt" else self.tokens) is not None


def read_request(parameters: Mapping[str, object]) -> GenerationRequest:
    """Return the request that the job description's ``parameters`` describe.

    Raises:
        RunFailed: ``user_input``, naming the parameter.
    """
    stated = [name for name in _PROMPTS if name in parameters]
    if len(stated) > 1:
        raise bad_parameter(stated[1], f"can't be combined with {stated[0]}")
    lengths = [*stated, *(["output_length"] if "output_length" in parameters else [])]
    if "preset" in parameters and lengths:
        raise bad_parameter("preset", f"can't be combined with {lengths[0]}")
    requests = _whole(parameters, "requests", DEFAULT_REQUESTS, MAX_REQUESTS)
    if not lengths:
        preset = read_choice(parameters, "preset", tuple(PRESETS), DEFAULT_PRESET)
        prompt_length, output_length = PRESETS[preset]
        return GenerationRequest(
            preset=preset,
            text=None,
            tokens=None,
            prompt_length=prompt_length,
            output_length=output_length,
            requests=requests,
        )
    text, tokens = _text(parameters), _tokens(parameters)
    length: Optional[int] = None if text is not None else len(tokens or ())
    if text is None and tokens is None:
        length = _whole(parameters, "prompt_length", PRESETS[DEFAULT_PRESET][0], MAX_LENGTH)
    return GenerationRequest(
        preset="",
        text=text,
        tokens=tokens,
        prompt_length=length,
        output_length=_whole(parameters, "output_length", DEFAULT_OUTPUT_LENGTH, MAX_LENGTH),
        requests=requests,
    )


def _text(parameters: Mapping[str, object]) -> Optional[str]:
    if "prompt" not in parameters:
        return None
    text = parameters["prompt"]
    if not isinstance(text, str) or not text:
        raise bad_parameter("prompt", "is not a text of at least one character")
    return text


def _tokens(parameters: Mapping[str, object]) -> Optional[Tuple[int, ...]]:
    if "prompt_tokens" not in parameters:
        return None
    tokens = parameters["prompt_tokens"]
    if (
        not isinstance(tokens, list)
        or not tokens
        or not all(type(each) is int and 0 <= each < 2**31 for each in tokens)
    ):
        raise bad_parameter("prompt_tokens", "is not a list of token ids, whole numbers from 0 on")
    return tuple(tokens)


def _whole(parameters: Mapping[str, object], name: str, default: int, high: int) -> int:
    value = parameters.get(name, default)
    if type(value) is not int or not 1 <= value <= high:
        raise bad_parameter(name, f"{value!r} is not a whole number from 1 to {high}")
    return value
