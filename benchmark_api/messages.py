"""The texts of messages to people, made from the templates in ``templates/messages``.

What happened comes as a webhook of Edgeyard's own format gets it. Names and sentences in it are
written by users: a text is one line without control characters wherever it is put, and the notation
of the chat services is escaped.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import jinja2

from edgeyard.scheduler.model.webhooks import WebhookFormat

MAX_SUBJECT = 150
"""Characters of a mail's subject."""

MAX_TEXT = 500
"""Characters of any one text in a message."""

MAX_SENTENCE = 4000
"""Characters of a text that consists of sentences: the cause of an alert names all versions that
were measured, each with its interval."""

_SHARES = frozenset({"size", "low", "high"})
"""Data that are relative changes."""

_SENTENCES = ("sentence", "not_tested", "reason")
"""Data that are sentences of their own."""

_HIDDEN = frozenset({*_SENTENCES, "change_id", "series_id", "before", "by"})
"""Data that say nothing to people, or that a message has elsewhere."""


class Messages:
    """Writes messages. Thread-safe.

    Args:
        public_url: Where people reach the server.
        lab_name: Gives the lab's name.
    """

    def __init__(self, public_url: str, lab_name: Callable[[], str]) -> None:
        self._public_url = public_url
        self._lab_name = lab_name
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("edgeyard.templates", "messages"),
            autoescape=False,  # plain text; what chat services interpret is escaped by filters
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=False,
        )
        self._templates.filters.update(slack=_slack, markdown=_markdown)

    def mail(self, message: Mapping[str, object]) -> tuple[str, str]:
        """Return subject and text of a mail."""
        subject = one_line(self._text("subject", message), MAX_SUBJECT)
        return subject, self._text("mail", message) + "\n"

    def chat(self, form: WebhookFormat, message: Mapping[str, object]) -> bytes:
        """Return the JSON body that a chat service takes."""
        return json.dumps({"text": self._text(form.value, message)}).encode()

    def _text(self, template: str, message: Mapping[str, object]) -> str:
        data = cast("Mapping[str, object]", message["data"])
        text = one_line(message["text"])
        about = _about(message, data)
        return self._templates.get_template(f"{template}.txt.j2").render(
            message=message,
            sentence=text[:1].upper() + text[1:] + (f": {about}" if about else ""),
            paragraphs=[
                one_line(data[name], MAX_SENTENCE) for name in _SENTENCES if data.get(name)
            ],
            facts=_facts(message, data),
            lab=one_line(self._lab_name()),
            subscriptions=f"{self._public_url}/ui/subscriptions",
        )


def one_line(value: object, max_length: int = MAX_TEXT) -> str:
    """Return a text on one line, without control characters, cut off where it is too long."""
    text = "".join(" " if _is_control(each) else each for each in str(value))
    text = " ".join(text.split())
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


def _about(message: Mapping[str, object], data: Mapping[str, object]) -> str:
    """Return the name of what a message is about; "" if it has none."""
    named = message["benchmark_id"] or next(
        (data[name] for name in ("lineage", "target_uid", "model", "scorer") if data.get(name)), ""
    )
    return one_line(named, 100)


def _facts(message: Mapping[str, object], data: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    facts = [("time", str(message["at"]))]
    for name, value in data.items():
        if name in _HIDDEN or not isinstance(value, str | int | float) or value == "":
            continue
        shown = f"{value:+.1%}" if name in _SHARES and not isinstance(value, str) else value
        facts.append((one_line(name).replace("_", " "), one_line(shown)))
    return facts


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    # "@all" would wake everybody in a channel; a space of no width keeps it from being a mention.
    escaped = re.sub(r"([\\`*_{}\[\]()<>#+!|~-])", r"\\\1", text)
    return escaped.replace("@", "@\u200b")
