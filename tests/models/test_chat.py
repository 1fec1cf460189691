"""Chat templates: written as transformers writes them, and kept in their sandbox."""

from __future__ import annotations

import re

import pytest

from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.chat import render

HELLO = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Hé"}]


def rendered(template: str, messages: list[dict[str, str]] = HELLO) -> str:
    """The prompt of a short conversation."""
    return render(template, messages, bos_token="<s>", eos_token="</s>")


def test_lines_of_statements_leave_no_trace() -> None:
    template = """{{ bos_token }}
{% for message in messages %}
    {% if message.role == "user" %}
U: {{ message['content'] }}
    {% else %}
A: {{ message.content }}{{ eos_token }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
A:{% endif %}"""

    assert rendered(template) == "<s>\nU: Hi <b>\nA: Hé</s>\nA:"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Hi <b>"}'),
        ("{{ messages[1].content | tojson }}", '"Hé"'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=True) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        (
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
            "assistant",
        ),
        ("a{% generation %}{{ messages[1].content }}{% endgeneration %}b", "aHéb"),
        ("{% if tools %}T{% endif %}{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{{ missing }}{{ messages | length }}", "2"),
    ],
)
def test_what_templates_rely_on(template: str, text: str) -> None:
    assert rendered(template) == text


def test_templates_can_ask_for_the_date() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", rendered("{{ strftime_now('%Y-%m-%d') }}"))


def test_a_template_may_refuse_the_messages() -> None:
    template = "{% if messages[0].role == 'user' %}{{ raise_exception('system first, please') }}{% endif %}"

    with pytest.raises(
        RequestProblem, match=r"system first, please.*roles given: user, assistant.*plain completion"
    ):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_a_template_may_not_do_is_its_refusal(template: str) -> None:
    with pytest.raises(RequestProblem, match="the chat template of this model refuses"):
        rendered(template)


def test_a_template_that_does_not_parse_is_named_with_its_line() -> None:
    with pytest.raises(CheckpointProblem, match=r"does not parse: .*\(line 2\).*plain completion"):
        rendered("{{ bos_token }}\n{% for %}")
