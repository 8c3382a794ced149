"""Templates of chats: filled in as the reference does, and harmless whoever wrote them."""

from __future__ import annotations

import pytest

from mapper.errors import FormatError
from mapper.running import chat
from mapper.running.chat import filled

pytest.importorskip("jinja2")
USER = [{"role": "user", "content": "Hi {{ 1 + 1 }}"}]
TEMPLATE = """{%- for message in messages %}
    {{- '<|' + message['role'] + '|>' + message.content | trim + eos_token }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|assistant|>' }}
    {%- endif %}
{%- endfor %}
"""


def test_a_template_is_filled_in_as_the_reference_does() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    wanted = render_jinja_template(
        [USER], chat_template=TEMPLATE, add_generation_prompt=True, eos_token="</s>"
    )
    assert (
        filled(TEMPLATE, USER, {"eos_token": "</s>"})
        == wanted[0][0]
        == "<|user|>Hi {{ 1 + 1 }}</s><|assistant|>"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_reaches_nothing_but_its_messages(template: str) -> None:
    try:
        text = filled(template, USER, {})
    except FormatError as error:
        assert "\n" not in str(error)
    else:
        assert "class" not in text and "root:" not in text


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
        "{{ 'a' * 10 ** 10 }}",
        "{% for a in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    ],
)
def test_a_template_takes_no_time_and_memory_beyond_its_share(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "SECONDS", 2)
    with pytest.raises(FormatError, match=r"the chat template cannot be filled in: .*more than"):
        filled(template, USER, {})


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(FormatError, match="roles must alternate"):
        filled("{{ raise_exception('roles must alternate') }}", USER, {})
