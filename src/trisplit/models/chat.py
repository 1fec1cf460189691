"""A conversation written out as the text a model was trained on, by the template it came with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trisplit.errors import CheckpointProblem, RequestProblem

PLAIN = "use plain completion instead: `trisplit generate` with the prompt as it should stand"


class GenerationTag(Extension):
    """`{% generation %}` marks what to train on; when a prompt is written it is only its content."""

    tags = {"generation"}  # noqa: RUF012 jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes up to `{% endgeneration %}`."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, messages: Sequence[Mapping[str, str]], *, bos_token: str, eos_token: str) -> str:
    """The prompt for the next answer, as transformers' `apply_chat_template` writes it.

    A template is a program from the checkpoint: it runs in jinja's sandbox, without files or imports,
    and whatever it raises is its refusal of these messages.
    """
    environment = _environment()
    try:
        program = environment.from_string(template)
    except TemplateSyntaxError as error:
        raise CheckpointProblem(
            f"the chat template of this model does not parse: {error.message} (line {error.lineno})",
            fix=PLAIN,
        ) from error
    try:
        return program.render(
            messages=messages,
            add_generation_prompt=True,
            bos_token=bos_token,
            eos_token=eos_token,
            tools=None,
            documents=None,
        )
    except Exception as error:
        raise RequestProblem(
            f"the chat template of this model refuses: {error}", fix=_fix(messages)
        ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _fix(messages: Sequence[Mapping[str, str]]) -> str:
    roles = ", ".join(str(message.get("role")) for message in messages)
    return f"change the messages (roles given: {roles}), or {PLAIN}"


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja's own filter escapes < and > for web pages, which no model was trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
