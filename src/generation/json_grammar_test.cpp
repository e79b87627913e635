// Which texts a schema's grammar has, which tokens it lets through, and what a stranger's schema may cost.
#include <gtest/gtest.h>
#include <array>
#include <random>
#include <regex>
#include "error_of.h"
#include "generation/text_grammar.h"

namespace linnet {
namespace {
Json parse(const std::string& text) { return Json::parse(text, JsonLimits::request()); }

std::shared_ptr<const TextGrammar> grammar_of(const std::string& schema) {
  return std::make_shared<const TextGrammar>(json_schema_grammar(parse(schema)));
}

// A token for each byte, then these.
std::shared_ptr<const TokenTexts> bytes_and(const std::vector<std::string>& more) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.insert(texts.end(), more.begin(), more.end());
  return std::make_shared<const TokenTexts>(std::move(texts));
}

constexpr int32_t kEnd = 256;

// Whether the text, written byte by byte, is one of the grammar.
bool has(const std::shared_ptr<const TextGrammar>& grammar, const std::string& text) {
  TokenFilter filter(grammar, bytes_and({"", "{\"", "\": ", "}}", "tru", "[[", "1.5"}), {kEnd});
  for (const char c : text) {
    const TokenMask* allowed = filter.allowed();
    if (!allowed || !(*allowed)[static_cast<unsigned char>(c)]) return false;
    filter.accept(static_cast<unsigned char>(c));
  }
  return (*filter.allowed())[kEnd] || filter.finished();
}

std::string refusal(const std::string& schema) {
  return error_of([&] { grammar_of(schema); });
}

TEST(JsonGrammar, HasTheTextsOfASchema) {
  const auto grammar = grammar_of(R"({"type": "object", "title": "t", "additionalProperties": false,
      "required": ["name", "tags"], "properties": {
        "name": {"type": "string"}, "age": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a\"b", 1, true]}},
        "more": {"anyOf": [{"type": "number"}, {"type": "object", "properties": {"x": {"const": "\u00e9"}}}]}}})");
  for (const char* text :
      {R"({"name": "", "tags": []})", R"({"name":"a\n\"\u00e9 ü😀","age":-12,"tags":["a\"b",1,true]})",
          R"({"name": "x", "age": null, "tags": [1, 1], "more": -0.5e-3})",
          "{\n  \"name\": \"x\",\n  \"tags\": [],\n  \"more\": {\"x\": \"é\"}\n}",
          R"( {"name": "x", "tags": [], "more": {}})"})
    EXPECT_TRUE(has(grammar, text)) << text;
  for (const char* text :
      {R"({"tags": []})", R"({"name": "", "tags": [2]})", R"({"name": 1, "tags": []})",
          R"({"name": "", "age": 1.5, "tags": []})", R"({"name": "", "age": 01, "tags": []})",
          R"({"name": "", "tags": [],})", R"({"name": "", "tags": [], "other": 1})", R"({"name": "", "tags": [1})",
          "{\"name\": \"\n\", \"tags\": []}", "{\"name\": \"\xFF\", \"tags\": []}", R"({"name": "\ud800", "tags": []})",
          "{\"name\": \"\xED\xA0\x80\", \"tags\": []}", R"({"name": "", "tags": []} )", "", "{", R"({"name": "x")"})
    EXPECT_FALSE(has(grammar, text)) << text;
  const auto any = std::make_shared<const TextGrammar>(json_object_grammar());
  EXPECT_TRUE(has(any, R"({"a": [1, {"b": [null, false, [], {}]}], "c": "d"})"));
  EXPECT_FALSE(has(any, "[]"));
  EXPECT_TRUE(has(grammar_of("{}"), "12")) << "may go on, and may end";
  EXPECT_TRUE(has(grammar_of(R"({"properties": {}, "additionalProperties": false})"), "{}"));
  EXPECT_FALSE(has(grammar_of(R"({"type": "integer", "enum": [1, "a"]})"), "\"a\""));
  TokenFilter several(grammar_of(R"({"anyOf": [{"const": 1}, {"enum": [1, 22]}]})"), bytes_and({""}), {kEnd});
  several.accept('1');
  EXPECT_TRUE(several.finished()) << "whole in two ways, and there is nothing more";
}

// As pydantic writes nested models and dictionaries.
TEST(JsonGrammar, SchemasOfOtherPlaces) {
  const auto grammar =
      grammar_of(R"({"$defs": {"Step": {"properties": {"text": {"type": "string"}}, "required": ["text"]}},
      "properties": {"first": {"$ref": "#/$defs/Step", "description": "where to begin"},
                     "all": {"items": {"$ref": "#/$defs/Step"}},
                     "ages": {"type": "object", "additionalProperties": {"type": "integer"}}},
      "required": ["first", "all", "ages"]})");
  EXPECT_TRUE(
      has(grammar, R"({"first": {"text": "a"}, "all": [{"text": "b"}, {"text": ""}], "ages": {"c": 1, "d": 2}})"));
  EXPECT_TRUE(has(grammar, R"({"first": {"text": "a"}, "all": [], "ages": {}})"));
  EXPECT_FALSE(has(grammar, R"({"first": {}, "all": [], "ages": {}})"));
  EXPECT_FALSE(has(grammar, R"({"first": {"text": "a"}, "all": [], "ages": {"c": "d"}})"));
}

// A tree, a list, and a schema that is part of itself.
TEST(JsonGrammar, SchemasThatContainThemselves) {
  const auto tree = grammar_of(R"({"$defs": {"Tree": {"properties": {"name": {"type": "string"},
      "left": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
      "more": {"items": {"$ref": "#/$defs/Tree"}}}, "required": ["name", "left"]}}, "$ref": "#/$defs/Tree"})");
  EXPECT_TRUE(has(tree, R"({"name": "a", "left": {"name": "b", "left": null}, "more": [{"name": "", "left": null}]})"));
  EXPECT_FALSE(has(tree, R"({"name": "a", "left": {"name": "b"}})"));
  EXPECT_FALSE(has(tree, R"({"name": "a", "left": {"name": "b", "left": 1}})"));
  const auto lists = grammar_of(R"({"type": "array", "items": {"$ref": "#"}})");
  std::string text(500, '[');
  EXPECT_TRUE(has(lists, text + std::string(500, ']'))) << "as deep as one likes";
  EXPECT_FALSE(has(lists, "[[], 1]"));
  for (const char* schema : {R"({"$ref": "#"})", R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})",
           R"({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}})",
           R"({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}})"})
    EXPECT_PRED2(has_text, refusal(schema), "refers to itself alone") << schema;
}

TEST(JsonGrammar, LimitsOfListsAndTexts) {
  const auto expect = [](const std::string& schema, const std::vector<std::string>& fit,
                          const std::vector<std::string>& others) {
    const auto grammar = grammar_of(schema);
    for (const std::string& text : fit) EXPECT_TRUE(has(grammar, text)) << schema << " " << text;
    for (const std::string& text : others) EXPECT_FALSE(has(grammar, text)) << schema << " " << text;
  };
  const std::string items = R"({"items": {"type": "integer"}, )";
  expect(items + R"("minItems": 2})", {"[1,2]", "[1, 2, 3, 4]"}, {"[]", "[1]", "[1,]"});
  expect(items + R"("maxItems": 2})", {"[]", "[1]", "[1, 2]"}, {"[1,2,3]", "[,1]"});
  expect(items + R"("minItems": 1, "maxItems": 2})", {"[1]", "[1,2]"}, {"[]", "[1,2,3]"});
  expect(items + R"("maxItems": 0})", {"[]", "[ ]"}, {"[1]"});
  const std::string pair = R"({"prefixItems": [{"type": "boolean"}, {"type": "null"}], "minItems": 2, )";
  expect(pair + R"("maxItems": 2})", {"[true,null]"}, {"[true]", "[null,true]", "[true,null,1]"});
  expect(pair + R"("items": false})", {"[true,null]"}, {"[true,null,1]"});
  expect(R"({"prefixItems": [{"type": "null"}, {"type": "null"}], "items": false, "maxItems": 1})", {"[]", "[null]"},
      {"[null,null]"});
  expect(pair + R"("items": {"type": "integer"}})", {"[true,null]", "[true,null,1,2]"}, {"[true,null,true]"});
  expect(R"({"minLength": 2})", {"\"ab\"", R"("a\n")", R"("\u00e9é")", "\"abc\""}, {"\"\"", "\"é\"", "1"});
  expect(R"({"type": "string", "minLength": 1, "maxLength": 3})", {"\"é\"", "\"😀ab\""}, {"\"\"", "\"abcd\""});
  expect(
      R"({"oneOf": [{"const": "a"}, {"allOf": [{"type": "null"}]}], "discriminator": {}})", {"\"a\"", "null"}, {"1"});
}

// Beside std::regex, which has the same language.
TEST(JsonGrammar, Patterns) {
  const std::vector<std::string> texts{"", "a", "ab", "abc", "b", "ba", "aab", "a1", "12", "123", "1-2", "a.b", "a b",
      "A", "_", "2024-02-28", "x@y.z", "aaaa", "abab", "-", "]", "a^", "(a)", "a|b", "9z", "a$b"};
  for (const char* pattern : {"a", "^a", "a$", "^a$", "^a|b$", "^(a|b)+$", "^(?:ab){2}$", "^a{2,3}b?$", "^a{2,}$",
           "^[a-c]*$", "^[^a-c]+$", R"(^\d+$)", R"(^\w+\W\w+$)", R"(^\d{4}-\d{2}-\d{2}$)", R"(^[\w.]+@[\w.]+$)", "^.$",
           "^.*b.*$", "^[-a]$", R"(^[\]a]$)", R"(\.)", R"(\s)", "^$", "", "^(a|)b$", "^((a*)*)*$", "a*?b", R"(^\(a\)$)",
           R"(a\|b)", "^[a-]$", "(a|b)(1|2)", "^[^\"]$", R"(^\S+$)", R"(^\D\d$)"}) {
    const auto grammar = grammar_of(Json{{"type", "string"}, {"pattern", pattern}}.dump());
    for (const std::string& text : texts)
      EXPECT_EQ(has(grammar, "\"" + text + "\""), std::regex_search(text, std::regex(pattern)))
          << pattern << " " << text;
  }
  const auto quoted = grammar_of(R"({"pattern": "^[\"\\\\\\n]é.$"})");
  for (const char* text : {R"("\"éa")", R"("\\é😀")", R"("\né\"")"}) EXPECT_TRUE(has(quoted, text)) << text;
  for (const char* text : {R"(""é")", R"("\"e")", R"("xéa")"}) EXPECT_FALSE(has(quoted, text)) << text;
  for (const char* pattern : {"(", ")", "a)", "[a", "a{2", "a{3,2}", "*", "(?=a)", "(?<n>a)", R"(\b)", R"(\1)",
           R"(\p{L})", "[é]", "a$b", "a^", "[z-a]", "{", "\\", "a{9999999}", "(^a)", "(a$)"})
    EXPECT_PRED2(has_text, refusal(Json{{"pattern", pattern}}.dump()), "the schema: the pattern \"") << pattern;
  EXPECT_NE(refusal(Json{{"pattern", std::string(100, '(') + std::string(100, ')')}}.dump()), "no error");
  EXPECT_NE(refusal(R"({"pattern": "a", "minLength": 1})"), "no error");
  EXPECT_NE(refusal(R"({"type": "string", "format": "date", "maxLength": 10})"), "no error");
  EXPECT_NE(refusal(R"({"pattern": "a", "format": "date"})"), "no error");
  // Of characters beyond ASCII only those are let through that every language has in a class.
  for (const char* pattern : {R"(^[^\W\d_]+$)", R"(^[^\D]$)", R"(^[^\S]$)", R"(^\W$)", R"(^[^\w]$)"})
    EXPECT_FALSE(has(grammar_of(Json{{"pattern", pattern}}.dump()), "\"é\"")) << pattern;
  EXPECT_TRUE(has(grammar_of(R"({"pattern": "^[^a]$"})"), "\"é\""));
  EXPECT_PRED2(has_text, refusal(Json{{"pattern", R"(^[^\s\S]$)"}}.dump()), "without characters");
  std::string nothing = "^";
  for (int i = 0; i < 20'000; ++i) nothing += "(){999999}";
  EXPECT_TRUE(has(grammar_of(Json{{"pattern", nothing + "a"}}.dump()), "\"ab\"")) << "nothing, however often";
  EXPECT_NE(refusal(Json{{"pattern", "(((a{999}b{999}){999}c{999}){70000}"}}.dump()), "no error");
}

TEST(JsonGrammar, Formats) {
  const auto fits = [](const std::string& format, const std::string& text) {
    return has(grammar_of(Json{{"type", "string"}, {"format", format}}.dump()), "\"" + text + "\"");
  };
  EXPECT_TRUE(fits("date", "2024-12-31") && fits("date", "2024-04-30") && fits("date", "1999-02-28"));
  EXPECT_FALSE(
      fits("date", "2024-04-31") || fits("date", "2024-02-30") || fits("date", "2024-13-01") || fits("date", "x"));
  EXPECT_TRUE(fits("time", "23:59:59Z") && fits("time", "00:00:00.25+01:30"));
  EXPECT_FALSE(fits("time", "24:00:00Z") || fits("time", "12:00:00") || fits("time", "12:60:00Z"));
  EXPECT_TRUE(fits("date-time", "2024-12-31T23:59:59Z"));
  EXPECT_TRUE(fits("uuid", "123e4567-e89b-12d3-a456-426614174000") && !fits("uuid", "123e4567"));
  EXPECT_TRUE(fits("ipv4", "192.168.0.255") && !fits("ipv4", "192.168.0.256") && !fits("ipv4", "1.2.3"));
  EXPECT_TRUE(fits("hostname", "any text: not enforced"));
}

// Random limits, beside what comparing numbers gives for random texts and for the limits themselves.
TEST(JsonGrammar, LimitsOfNumbers) {
  std::mt19937 random(7);
  const auto number = [&] {
    const int digits = static_cast<int>(random() % 4);
    std::string text = random() % 2 ? "-" : "";
    text += std::to_string(random() % std::array{2, 12, 120, 4000}[random() % 4]);
    for (int i = 0; i < digits; ++i) text += (i == 0 ? "." : "") + std::to_string(random() % (i == 2 ? 2 : 10));
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const bool whole = random() % 2, low = random() % 4 > 0, high = !low || random() % 4 > 0;
    const bool low_open = random() % 2, high_open = random() % 2;
    std::string least = number(), most = number();
    if (low && high && std::stod(least) > std::stod(most)) std::swap(least, most);
    std::string schema = std::string(R"({"type": ")") + (whole ? "integer" : "number") + "\"";
    if (low) schema += std::string(low_open ? R"(, "exclusiveMinimum": )" : R"(, "minimum": )") + least;
    if (high) schema += std::string(high_open ? R"(, "exclusiveMaximum": )" : R"(, "maximum": )") + most;
    if (has_text(refusal(schema + "}"), "no number is within")) {
      EXPECT_TRUE(low && high && std::stod(most) - std::stod(least) < (whole ? 1 : 1e-9)) << schema;
      continue;
    }
    const auto grammar = grammar_of(schema + "}");
    for (int i = 0; i < 40; ++i) {
      const std::string text = i == 0 ? least : i == 1 ? most : i == 2 ? least + "0" : number();
      const double value = std::stod(text);
      const bool spelled = !Json::parse_or_null(text, JsonLimits::request()).is_null();
      const bool fits = spelled && (!whole || text.find('.') == std::string::npos) &&
                        (!low || value > std::stod(least) || (!low_open && value == std::stod(least))) &&
                        (!high || value < std::stod(most) || (!high_open && value == std::stod(most)));
      EXPECT_EQ(has(grammar, text), fits) << schema << " " << text;
    }
  }
  EXPECT_TRUE(has(grammar_of(R"({"minimum": 0.1, "maximum": 1e300})"), "0.1"));
  EXPECT_FALSE(has(grammar_of(R"({"minimum": 1e-17})"), "0.000000000000000"));
  EXPECT_FALSE(has(grammar_of(R"({"minimum": 0.25, "maximum": 0.29999999999999993})"), "0.3"));
  std::string many;
  for (int i = 0; i < 300; ++i)
    many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + R"(": {"type": "number", "minimum": -0.125, "maximum": 1})";
  EXPECT_TRUE(has(grammar_of("{\"properties\": {" + many + "}}"), R"({"299": 0.5})"));
  EXPECT_NE(refusal(R"({"minimum": 2, "maximum": 1})"), "no error");
  EXPECT_PRED2(has_text, refusal(R"({"minimum": "2"})"), "at /minimum");
}

TEST(JsonGrammar, ARefusalNamesTheKeywordAndWhereItStands) {
  EXPECT_PRED2(has_text, refusal(R"({"properties": {"a": {"type": "string", "contains": "x"}}})"),
      "at /properties/a: the keyword \"contains\"");
  for (const char* key : {"oneOf", "allOf", "not", "multipleOf", "uniqueItems", "contains", "patternProperties"})
    EXPECT_PRED2(has_text, refusal(std::string("{\"") + key + "\": []}"), key) << key;
  EXPECT_PRED2(has_text, refusal(R"({"properties": {"a": {}}, "additionalProperties": {"type": "string"}})"),
      "additionalProperties");
  EXPECT_PRED2(has_text, refusal(R"({"items": {"$ref": "#/$defs/A"}, "$defs": {"B": {}}})"),
      "at /items/$ref: there is no \"#/$defs/A\"");
  EXPECT_PRED2(has_text, refusal(R"({"$ref": "#/$defs/A", "$defs": {"A": {"not": {}}}})"), "at /$defs/A: the keyword");
  for (const char* schema :
      {"false", "[]", R"({"type": "text"})", R"({"type": 1})", R"({"enum": []})", R"({"enum": 1})", R"({"anyOf": []})",
          R"({"required": ["a"]})", R"({"properties": []})", R"({"prefixItems": 1})", R"({"minItems": -1})",
          R"({"maxLength": "1"})", R"({"minItems": 2, "maxItems": 1})", R"({"minItems": 1, "items": false})",
          R"({"minimum": 1, "exclusiveMinimum": 2})", R"({"anyOf": [{}], "properties": {}})"})
    EXPECT_NE(refusal(schema), "no error") << schema;
}

// Every random walk over allowed tokens ends in JSON that reads back.
TEST(TokenFilter, WhatItLetsThroughIsJson) {
  const auto texts =
      bytes_and({"", "{\"", "\": ", "}}", "\"}", "tru", "[[", "]", "1.5", "\", \"", "\xC3", "\n  ", "\\u"});
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    TokenFilter filter(
        round % 2 == 0
            ? std::make_shared<const TextGrammar>(json_object_grammar())
            : grammar_of(R"({"type": "array", "items": {"properties": {"k": {}, "l": {"type": "boolean"}}}})"),
        texts, {kEnd});
    std::string text;
    for (int step = 0; step < 3000 && !filter.finished(); ++step) {
      const TokenMask* allowed = filter.allowed();
      ASSERT_TRUE(allowed) << text;
      if ((*allowed)[kEnd]) break;
      std::vector<int32_t> tokens;
      for (size_t i = 0; i < allowed->size(); ++i)
        if ((*allowed)[i]) tokens.push_back(static_cast<int32_t>(i));
      // What closes is preferred, so that texts end.
      int32_t token = tokens[random() % tokens.size()];
      for (const char close : {'"', '}', ']'})
        if (random() % 3 == 0 && (*allowed)[static_cast<size_t>(close)]) token = close;
      text += (*texts)[token];
      filter.accept(token);
    }
    EXPECT_FALSE(Json::parse_or_null(text, JsonLimits::request()).is_null()) << text;
  }
}

TEST(TokenFilter, TokensThatSpellPartsAreJudgedWhole) {
  const auto texts = bytes_and({"", "{\"a", "{\"b", "\":", "1}", "1,", "2"});
  TokenFilter filter(grammar_of(R"({"properties": {"a": {"const": 1}}, "required": ["a"]})"), texts, {kEnd});
  EXPECT_TRUE((*filter.allowed())[257]);
  EXPECT_FALSE((*filter.allowed())[258]);
  filter.accept(257), filter.accept(259);
  EXPECT_TRUE((*filter.allowed())[260]);
  EXPECT_FALSE((*filter.allowed())[261] || (*filter.allowed())[262] || (*filter.allowed())[kEnd]);
  filter.accept(260);
  EXPECT_TRUE(filter.finished());
  TokenFilter without(
      grammar_of(R"({"const": 1})"), std::make_shared<const TokenTexts>(std::vector<std::string>{"a", "b"}), {});
  EXPECT_EQ(without.allowed(), nullptr);
}

TEST(JsonGrammar, AStrangersSchemaIsBounded) {
  // Nested objects whose properties are all optional, and alternatives that begin alike.
  std::string nested = "{}";
  for (int i = 0; i < 25; ++i) nested = R"({"properties": {"a": )" + nested + R"(, "b": {"type": "string"}}})";
  EXPECT_TRUE(has(grammar_of(nested), R"({"a": {"a": {"b": "x"}}, "b": ""})"));
  // Schemas that refer to each other, each from far within: they are not made within each other.
  const auto name = [](int i) { return std::to_string(i); };
  std::string chain = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 110; ++i) {
    chain += "\"" + name(i) + "\": ";
    for (int k = 0; k < 55; ++k) chain += R"({"items": )";
    chain += R"({"$ref": "#/$defs/)" + name(i + 1) + "\"}" + std::string(55, '}') + ", ";
  }
  EXPECT_TRUE(has(grammar_of(chain + R"("110": {}}})"), "[[[[]]]]"));
  std::string alike, words;
  for (int i = 0; i < 400; ++i) {
    alike += (i > 0 ? "," : "") + std::string(R"({"properties": {"same": {"type": "string"}, "p)") + std::to_string(i) +
             R"(": {}}})";
    words += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\"";
  }
  EXPECT_TRUE(has(grammar_of("{\"anyOf\": [" + alike + "]}"), R"({"same": "abc", "p399": 1})"));
  EXPECT_TRUE(has(grammar_of("{\"enum\": [" + words + "]}"), "\"399\""));
  Json numbers = Json::array();
  for (int i = 0; i < 10'000; ++i) numbers.push_back(i);
  const auto many = grammar_of(Json{{"enum", numbers}}.dump());
  for (const char* number : {"0", "5", "12", "1799", "9999"}) EXPECT_TRUE(has(many, number)) << number;
  // Texts that fit in very many ways, of which some are not followed.
  for (const char* pattern : {"^((.?){999}){999}$", "^(([a-m]?[b-z]?[c-w]?){99}){999}$"}) {
    TokenFilter filter(grammar_of(Json{{"pattern", pattern}}.dump()), bytes_and({""}), {kEnd});
    filter.accept('"');
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(filter.allowed() && (*filter.allowed())['a']) << pattern << " " << i;
      filter.accept('a');
    }
  }
  EXPECT_PRED2(has_text, refusal("{\"const\": \"" + std::string(70'000, 'x') + "\"}"), "too large");
}
}  // namespace
}  // namespace linnet
