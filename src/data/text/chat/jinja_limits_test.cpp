// Templates that try to take time or memory: each ends within a bound that does not depend on what it says.
#include <gtest/gtest.h>
#include <malloc.h>
#include <atomic>
#include <cstdlib>
#include <new>
#include "base/error.h"
#include "data/text/chat/jinja_template.h"

// The sanitizers count in their own way.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LINNET_COUNTS_MEMORY 1
#endif

namespace linnet {
namespace {
std::atomic<int64_t> memory_now{0}, memory_most{0}, memory_in_all{0};
}  // namespace
}  // namespace linnet

#ifdef LINNET_COUNTS_MEMORY
void* operator new(size_t size) {
  void* made = std::malloc(size);
  if (!made) throw std::bad_alloc();
  const auto bytes = static_cast<int64_t>(malloc_usable_size(made));
  const int64_t now = linnet::memory_now += bytes;
  linnet::memory_in_all += bytes;
  if (now > linnet::memory_most) linnet::memory_most = now;
  return made;
}
void operator delete(void* made) noexcept {
  linnet::memory_now -= static_cast<int64_t>(malloc_usable_size(made));
  std::free(made);
}
void operator delete(void* made, size_t) noexcept { operator delete(made); }
#endif

namespace linnet {
namespace {
struct Rendering {
  std::string text;  // or "error: " and the message
  jinja::Cost cost;
  int64_t most = 0, in_all = 0;  // bytes of the heap
};

Rendering rendered(const std::string& source, const jinja::Dict& variables) {
  Rendering rendering;
  const jinja::Template made(source, "the template");
  const int64_t before = memory_now, in_all = memory_in_all;
  memory_most = before;
  try {
    rendering.text = made.render(variables, &rendering.cost);
  } catch (const Error& error) {
    rendering.text = std::string("error: ") + error.what();
  }
  rendering.most = memory_most - before, rendering.in_all = memory_in_all - in_all;
  return rendering;
}

jinja::Dict variables_of(size_t size) {
  jinja::Dict variables;
  variables.set("text", std::string(size, 'a'));
  variables.set("other", std::string(size, 'a'));
  return variables;
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string in_a_loop(const std::string& expression) {
  return "{% for i in range(99999) %}{% set x = " + expression + " %}{% endfor %}";
}

std::string grown(const std::string& first, const std::string& next) {
  return "{% set ns = namespace(a=" + first + ") %}{% for i in range(99999) %}{% set ns.a = " + next +
         " %}{% endfor %}";
}

TEST(JinjaLimits, NoTemplateTakesMoreThanItsStepsAndItsMemory) {
  const std::string hostile[] = {
      in_a_loop("'a' * 9999999"),
      in_a_loop("[0] * 999999"),
      "{{ [text] * 999999999999 }}",
      "{{ text * 9223372036854775 }}",
      "{% for a in text %}{% for b in text %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      in_a_loop("text | join(text)"),
      in_a_loop("text | replace('a', text)"),
      in_a_loop("text.find(text ~ 'b')"),
      in_a_loop("(text[1:] ~ 'b') in text"),
      in_a_loop("text.count(text[:1000] ~ 'b')"),
      in_a_loop("text.strip(text)"),
      in_a_loop("text.split('a')"),
      in_a_loop("text | list | unique"),
      "{{ range(99999) | list | unique | length }}",
      in_a_loop("range(99999) | sort | list"),
      in_a_loop("range(99999) | select('odd') | list"),
      in_a_loop("range(99999)[::-1]"),
      in_a_loop("text[i:]"),
      in_a_loop("text[::-1]"),
      in_a_loop("text[-1]"),
      in_a_loop("text == other"),
      in_a_loop("text.startswith([other, other, other])"),
      in_a_loop("[1, 2][text]"),
      in_a_loop("[text] | tojson(indent=1000)"),
      in_a_loop("99999 in range(99999)"),
      "{{ (text | list) == (other | list) and (text | list) == (other | list) }}",
      grown("text", "ns.a ~ ns.a"),
      grown("text", "ns.a + text"),
      grown("[]", "ns.a + [text.upper]"),
      grown("[]", "[ns.a]"),
      grown("1", "{'a': ns.a}"),
      grown("namespace()", "namespace(a=ns.a)"),
      grown("[1]", "[ns.a, ns.a] if i < 60 else ns.a") + "{{ ns.a }}",
      grown("[1]", "[ns.a, ns.a] if i < 60 else ns.a") + "{{ ns.a | tojson(indent=900) }}",
      grown("[1]", "[ns.a, ns.a] if i < 60 else ns.a") + "{{ ns.a == ns.a }}",
      "{% set s = namespace(end=namespace()) %}{% for i in range(99999) %}{% set t = s.end %}{% set n = namespace() %}"
      "{% set t.next = n %}{% set s.end = n %}{% endfor %}",
      "{% macro m(a) %}" + repeated("{% if 1 %}", 40) + "{{ m(a) ~ m(a) }}" + repeated("{% endif %}", 40) +
          "{% endmacro %}{{ m(text) }}",
      "{% macro m(a) %}{{ 1" + repeated(" + 1", 900) + " + m(a) }}{% endmacro %}{{ m(1) }}",
      "{% for i in range(99999) %}{% macro m(a) %}" + repeated("{{ a }}", 2000) + "{% endmacro %}{% endfor %}",
      repeated("{% for i in range(9) %}", 60) + "{{ nothing }}" + repeated("{% endfor %}", 60),
      "{% for i in range(99999) %}{{ text }}{% endfor %}",
      "{% for i in range(99999) %}{% set x %}{{ text }}{% endset %}{% endfor %}",
  };
  for (const std::string& source : hostile) {
    const Rendering rendering = rendered(source, variables_of(size_t{1} << 20));
    const std::string what = source.substr(0, 200) + "\n" + rendering.text.substr(0, 200);
    EXPECT_LE(rendering.cost.steps, 10'000'001) << what;  // the last charge may be as large as all
    EXPECT_LT(rendering.most, int64_t{300} << 20) << what;
    EXPECT_LT(rendering.in_all, int64_t{1000} << 20) << what;
  }
}

TEST(JinjaLimits, WhatIsReadAndMadeIsCharged) {
  for (const char* expression :
      {"text | upper", "text ~ text", "text.find('b')", "text.split('a') | length", "text == other", "text | length",
          "text | replace('a', 'bc')", "text[1:]", "text[::-1]", "'b' in text", "text.strip('b')", "text | tojson",
          "text | list | join", "text * 3", "[1] * (text | length)", "text | reverse", "text[-1]", "text < other"}) {
    const std::string source = std::string("{% set x = ") + expression + " %}";
    const jinja::Cost one = rendered(source, variables_of(10'000)).cost,
                      two = rendered(source, variables_of(20'000)).cost;
    EXPECT_GT(two.steps, one.steps + 10'000 / 32 - 2) << expression;
    EXPECT_LE(two.steps, 2 * one.steps) << expression << ": more than in proportion";
    EXPECT_LE(two.bytes, 2 * one.bytes) << expression << ": more than in proportion";
  }
}

// A long conversation with what templates of reasoning models do with it stays far from the limits.
TEST(JinjaLimits, AConversationOfMegabytesIsRendered) {
  jinja::List messages;
  for (int i = 0; i < 1000; ++i) {
    jinja::Dict message;
    message.set("role", i % 2 == 0 ? "user" : "assistant");
    message.set("content", "<think>" + std::string(2000, 'x') + "</think>" + std::string(2000, 'y'));
    messages.emplace_back(message);
  }
  jinja::Dict variables;
  variables.set("messages", messages);
  const Rendering rendering = rendered(
      "{% set ns = namespace(last=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.last %}"
      "{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}"
      "{% for m in messages %}{% set content = m.content %}{% if '</think>' in content %}"
      "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
      "{{ '<|' + m.role + '|>' + content | trim }}{% if messages[loop.index0 + 1:] | selectattr('role', 'equalto', "
      "'user') | list | length == 0 %}{{ '!' }}{% endif %}{% endfor %}",
      variables);
  EXPECT_GT(rendering.text.size(), 2'000'000U);
  EXPECT_FALSE(rendering.text.starts_with("error")) << rendering.text;
  EXPECT_LT(rendering.cost.steps, 3'750'000);
  EXPECT_LT(rendering.cost.bytes, int64_t{64} << 20);
}
}  // namespace
}  // namespace linnet
