// Chat templates beside what transformers makes of them (tests/golden/make_chat_templates.py), and templates that are
// wrong or do not end.
#include <gtest/gtest.h>
#include <clocale>
#include <random>
#include "base/error.h"
#include "base/files.h"
#include "data/text/chat/chat_template.h"
#include "data/text/chat/jinja_template.h"
#include "parsed_json.h"

namespace linnet {
namespace {
using ordered_json = OrderedJson;

const ordered_json& golden() {
  static const ordered_json json = ordered_json::parse(read_file("tests/golden/chat_templates.json"));
  return json;
}

jinja::Dict variables_of(const ordered_json& conversation, bool prompt) {
  jinja::Dict variables;
  variables.set("messages", template_value(conversation.at("messages").dump()));
  variables.set("tools", template_value(conversation.at("tools").dump()));
  variables.set("documents", jinja::None{});
  variables.set("add_generation_prompt", prompt);
  variables.set("bos_token", "<s>");
  variables.set("eos_token", "</s>");
  return variables;
}

// The text, or "error: " and the message.
std::string rendered(const std::string& source, const jinja::Dict& variables = {}) {
  try {
    return jinja::Template(source, "the template").render(variables);
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

TEST(Jinja, ChatTemplatesGiveTheTextOfTransformers) {
  for (const auto& test : golden().at("cases")) {
    const ordered_json& conversation = golden().at("conversations").at(test.at("conversation").get<std::string>());
    const std::string source = golden().at("templates").at(test.at("template").get<std::string>());
    const std::string text = rendered(source, variables_of(conversation, test.at("add_generation_prompt")));
    if (test.contains("text")) EXPECT_EQ(text, test.at("text").get<std::string>()) << test.dump();
    else EXPECT_TRUE(text.starts_with("error: the template, line ")) << text << test.dump();
  }
}

TEST(Jinja, ExpressionsHaveTheValuesOfJinja) {
  const jinja::Dict variables = variables_of(golden().at("conversations").at("system"), true);
  for (const auto& test : golden().at("expressions")) {
    const std::string source = test.at("expression"), text = rendered("{{ " + source + " }}", variables);
    if (test.contains("text")) EXPECT_EQ(text, test.at("text").get<std::string>()) << source;
    else EXPECT_TRUE(text.starts_with("error: ")) << source << ": " << text;
  }
}

TEST(Jinja, NumbersAreReadAlikeInEveryLocale) {
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  EXPECT_EQ(rendered("{{ ' +1.5'|float }} {{ '1.5x'|float }} {{ '2.7'|int }} {{ 1.5 }}"), "1.5 0.0 2 1.5");
  std::setlocale(LC_ALL, "C");
}

TEST(Jinja, AnErrorNamesTheLineAndWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"a\n{% include 'x' %}", "line 2: {% include %} is not supported"},
      {"{{ x | frobnicate }}", "line 1: the filter 'frobnicate' is not supported"},
      {"{{ x is frobnicated }}", "the test 'frobnicated' is not supported"},
      {"\n\n{{ raise_exception('no system role') }}", "line 3: the template says: no system role"},
      {"{% if x %}", "{% endif %} is missing at the end"},
      {"{% for x in y %}{% endif %}", "{% endif %} is not supported"},
      {"{{ 'a", "a string has no end"},
      {"{{ a", "a {{ has no end"},
      {"{{ 1ex5 }}", "'ex5'"},
      {"{# a", "a comment {# has no end"},
      {"{{ messages[0].role }}", "'messages' is not defined, and '0' is asked of it"},
      {"{{ 1 + 'a' }}", "a int and a str cannot be added"},
      {"{{ frob('a') }}", "'frob' is not defined"},
      {"{{ 1 / 0 }}", "a division by zero"},
      {"{% break %}", "stands in no loop"},
      {"{{ " + std::string(5000, '(') + "1", "more than 2000 words"},
      {"{{ " + std::string(200, '(') + "1" + std::string(200, ')') + " }}", "nests deeper"},
      {"{% if 1 %}" +
              [] {
                std::string s;
                for (int i = 0; i < 300; ++i) s += "{% if 1 %}";
                return s;
              }(),
          "nests deeper"},
      {"{{ 9223372036854775807 }}", "is too large"},
      {"{{ 999999999999999999 * 999999999999999999 }}", "out of range"},
  };
  for (const auto& [source, part] : wrong) {
    const std::string text = rendered(source);
    EXPECT_NE(text.find(part), std::string::npos) << source.substr(0, 60) << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Jinja, WhatDoesNotEndIsRefused) {
  EXPECT_NE(rendered("{{ range(1000000) }}").find("more than 100000"), std::string::npos);
  EXPECT_NE(rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}").find("steps"),
      std::string::npos);
  EXPECT_NE(rendered("{{ 'aaaaaaaa' * 999999999999 }}").find("grows beyond"), std::string::npos);
  EXPECT_NE(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("too deeply"), std::string::npos);
  EXPECT_NE(rendered("{% set ns = namespace(a='a') %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}")
                .find("grows beyond"),
      std::string::npos);
  EXPECT_NE(rendered("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}").find("nests deeper"), std::string::npos);
}

// Templates cut short, with bytes changed, doubled and left out: a text or an error of one line, never anything else.
TEST(Jinja, DamagedTemplatesGiveATextOrAnErrorOfOneLine) {
  std::mt19937 random(7);
  std::vector<std::string> sources;
  for (const auto& [name, source] : golden().at("templates").items()) sources.push_back(source);
  for (const auto& test : golden().at("expressions"))
    sources.push_back("{{ " + test.at("expression").get<std::string>() + " }}");
  const std::string marks = "{}%#|.,:()[]'\"-+*~=<> \n01aex\\";
  int errors = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string source = sources[random() % sources.size()];
    for (unsigned change = random() % 4 + 1; change > 0 && !source.empty(); --change) {
      const size_t at = random() % source.size();
      switch (random() % 4) {
        case 0: source[at] = marks[random() % marks.size()]; break;
        case 1: source.erase(at, random() % 9); break;
        case 2: source.insert(at, source.substr(random() % source.size(), random() % 20)); break;
        default: source.resize(at);
      }
    }
    const auto& conversations = golden().at("conversations");
    const auto conversation =
        std::next(conversations.begin(), static_cast<std::ptrdiff_t>(random() % conversations.size()));
    const std::string text = rendered(source, variables_of(*conversation, true));
    if (!text.starts_with("error: ")) continue;
    ++errors;
    ASSERT_TRUE(text.starts_with("error: the template, line ")) << source << "\n" << text;
  }
  EXPECT_GT(errors, 1000);
}
}  // namespace
}  // namespace linnet
