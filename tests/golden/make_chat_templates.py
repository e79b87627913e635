#!/usr/bin/env python3
"""Chat templates in the manner of well-known models, and what transformers makes of conversations with them.

    tests/golden/make_chat_templates.py        writes tests/golden/chat_templates.json

Needs transformers and jinja2. The templates are written here: they use what those of Llama 2 and 3, Mistral, Qwen, Gemma,
Zephyr and the like use. "expressions" are single expressions of the template language.
"""
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_templates.json")
TEMPLATES = {
    "chatml": """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must alternate user/assistant/user/...') }}
    {%- endif -%}
    {%- if loop.index0 == 0 and system_message is not false -%}
        {%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' -%}
        {{ ' ' + content.strip() + ' ' + eos_token }}
    {%- endif -%}
{%- endfor -%}""",
    "llama3": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message comes first, whoever wrote it. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" and message.content is defined %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" ~ message.tool_calls | map(attribute="function") | map(attribute="name") | join(", ") ~ "]" ~ eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' ~ message.content|string|tojson ~ ', "n": ' ~ loop.index ~ "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""",
    "qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call one or more functions.\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson(indent=2) }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "macros": """{%- macro part(content, sep=", ") -%}
  {%- if content is string -%}{{ content }}
  {%- else -%}
    {%- for item in content -%}
      {%- if item.type == 'text' -%}{{ item['text'] }}{%- else -%}<{{ item.type | upper }}>{%- endif -%}
      {%- if not loop.last -%}{{ sep }}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{# a comment
   of two lines #}
{% raw %}{{ raw }} {% not a tag %}{% endraw %}

{% for message in messages recursive_is_not_used if message.role != 'system' %}{% endfor %}
""".replace(" recursive_is_not_used", "") + """{% for m in messages %}
    {% if m.role == 'tool' %}{% continue %}{% endif %}
  {{ loop.index }}/{{ loop.length }} {{ m.role | title }}: {{ part(m.content) if m.content else "nothing" }}
    {% if loop.index == 3 %}
    {% break %}
    {% endif %}
{% else %}
none
{% endfor %}
{% set text %}
block {{ messages | length }}
{% endset %}
[{{ text | trim }}]{{+ 1 }}
{%+ if true %}  kept {% endif +%}
end {{ {'a': [1, 2.5, none, true], "b'": 'x"y'} }} {{ 'é\\u00e9' | length }}""",
}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds \"two\" numbers", "parameters": {"type": "object", "properties": {"a": {"type": "int"}}, "required": ["a"]}, "return": {}}}
USER, ANSWER = {"role": "user", "content": " How far is the moon?\nIn km. "}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n384,400 — naïve 世界. "}
SYSTEM, MORE = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "And <the> sun's?"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [1.5, None, True, {}, []], "c": "é\"\n"}}}]}
RESULT = {"role": "tool", "content": "2"}
PARTS = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
CONVERSATIONS = {
    "one": ([USER], None), "system": ([SYSTEM, USER], None), "three": ([USER, ANSWER, MORE], None), "four": ([SYSTEM, USER, ANSWER, MORE], None),
    "tools": ([SYSTEM, USER, CALL, RESULT, ANSWER], [TOOL, TOOL]), "parts": ([PARTS], None), "answered": ([USER, ANSWER], None),
}
EXPRESSIONS = """1 + 2 * 3 - 4 // 3 % 2|7 // -2|-7 % 3|7 / 2|2 ** 10|1.0|1e20|0.1 + 0.2|1 / 3|"a" * 3|[1, 2] + [3]|'a' ~ 1 ~ none|not true or false|1 < 2 < 3|3 in [1, 2]|'b' not in 'abc'
x.y|x @ default('d')|x is undefined|nothing|'' @ default(1, true)|'' or 'b'|'abc'[1]|'abc'[-1]|'abcdef'[1:4]|'abcdef'[::-1]|'abcdef'[::2]|[1, 2, 3][-2:]|[1, 2, 3][5:]|(1, 2)[0]|{'a': 1}.a|{'a': 1}['a']|{'a': 1}.get('b', 2)|{'a': {'b': 1}}.a.b
{'items': 1}['items']|{'a': 1, 'b': 2}.items() @ map('first') @ join|{'b': 1, 'a': 2} @ dictsort @ map('last') @ join|{'a': 1}.keys() @ list|[3, 1, 2] @ sort|['b', 'A'] @ sort(reverse=true)|[1, 1, 2] @ unique @ list|[1, 2, 3] @ sum|[1, 5, 2] @ max|[1, 2] @ first|[] @ join(',')|[1, 'a', none] @ join('-')
' a ' @ trim|'xxaxx'.strip('x')|'a,b,c'.split(',')|' a  b '.split()|'a,b,c'.split(',', 1)|'a b'.title()|"it's 3rd a_b (x".title()|"it's 3rd a_b (x-y" @ title|'hello world' @ capitalize|'abc' @ reverse|'aXbX' @ replace('X', 'y')|'aXbX'.replace('X', 'y', 1)|'abc'.startswith('ab')|'abc'.upper()|'a\\nb' @ indent(2)|'a\\nb' @ indent(2, true)|'3' @ int + 1|'x' @ int(7)|3.7 @ int|'12abc' @ int(7)|'0x10' @ int|' 12 ' @ int|'1e2' @ int|5 @ string + '1'
[1, [2.0, 'a\\'b'], {'k': none}]|{'a': [1, 2]} @ tojson|{'a': [1, {}]} @ tojson(indent=2)|'<é>"' @ tojson|[1, 2, 3, 4] @ select('even') @ list|[1, 2] @ reject('odd') @ list|[{'a': 1}, {'a': 2}] @ map(attribute='a') @ list|[{'a': 1}, {'b': 2}] @ selectattr('a', 'defined') @ list|['a', 'b'] @ map('upper') @ join
1 if false|'y' if 1 == 1.0 else 'n'|none is none|1 is number|'a' is string|{} is mapping|[] is iterable|[] is sequence|true is boolean|4 is divisibleby 2|1 is not string and 2 is even|range(3) @ list|range(5, 0, -2) @ list|dict(a=1)|'a' 'b'|[1, 2,]|'%' in 'a%'|-3 @ abs|(-3) @ abs|not 1 == 2|1 == 1 and 2 == 2|'\\x41\\tz'|True and None is none
loop is defined|'a.b'.split('.')[-1]|('a', 'b') @ list|'ab' @ list|'x' if x is defined and x.y else 'z'|[0] and 'full'|1 in (1, 2)|'abc' @ length > 2 and true|messages[0].role|messages @ map(attribute='role') @ join(',')|messages[-1]['content'][:3]""".replace("\n", "|").split("|")


def render(template, **variables):
    try:
        return {"text": _compile_jinja_template(template).render(**variables)}
    except Exception as error:
        return {"error": str(error)}


def conversation(template, messages, tools, prompt):
    return render(template, messages=messages, tools=tools, documents=None, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")


cases, expressions = [], []
for name, template in TEMPLATES.items():
    for chat, (messages, tools) in CONVERSATIONS.items():
        for prompt in (True, False):
            if prompt or chat in ("answered", "one"):
                cases.append({"template": name, "conversation": chat, "add_generation_prompt": prompt, **conversation(template, messages, tools, prompt)})
for text in EXPRESSIONS:
    text = text.replace("@", "|").strip("\n")
    expressions.append({"expression": text, **render("{{ " + text + " }}", messages=[SYSTEM, USER])})
with open(FILE, "w") as file:
    json.dump({"templates": TEMPLATES, "conversations": {k: {"messages": m, "tools": t} for k, (m, t) in CONVERSATIONS.items()},
               "cases": cases, "expressions": expressions}, file, ensure_ascii=False, indent=0)
for case in cases + expressions:
    if "error" in case: print(case)
