#include "base/json.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include "parsed_json.h"

namespace linnet {
namespace {
Json parsed(std::string_view text) { return Json::parse(text, JsonLimits::tables()); }

// The message of the JsonError that a call ends with; "" if there is none.
template <class Call> std::string problem(const Call& call) {
  try {
    call();
  } catch (const JsonError& error) {
    return error.what();
  }
  return "";
}

std::string problem_of(std::string_view text, const JsonLimits& limits = JsonLimits::request()) {
  return problem([&] { Json::parse(text, limits); });
}

std::string repeated(const std::string& text, int count, const std::string& between = "") {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? between : "") + text;
  return all;
}

// {"key0": 0, ...}
std::string object_of(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += (i > 0 ? ",\"key" : "\"key") + std::to_string(i) + "\":" + std::to_string(i);
  return text + "}";
}

TEST(Json, WritesWhatTheLibraryWrites) {
  for (const char* text :
      {"null", "true", "[]", "{}", "[[],{}]", "[1,-2,18446744073709551615,-9223372036854775808,9223372036854775807]",
          "[0.1,1e-5,1.5e300,-0.0,100000.0,1e15,1e16,123456789012345678901234567890,5e-324,0.30000000000000004]",
          R"({"b":[1,{"c":null}],"a":{"x":"y"},"":""})", R"(["\u0000\u001f\"\\\/\b\f\n\r\té日本\ud83d\ude00",""])"}) {
    const auto oracle = OrderedJson::parse(text);
    const Json json = parsed(text);
    for (const int indent : {-1, 0, 1, 2}) EXPECT_EQ(json.dump(indent), oracle.dump(indent));
    EXPECT_EQ(json.dump_ascii(), oracle.dump(-1, ' ', true));
    EXPECT_EQ(parsed(json.dump(2)), json);
  }
}

TEST(Json, NumbersKeepTheirTypeAndValue) {
  const Json json =
      parsed("[-9223372036854775808, 9223372036854775807, 18446744073709551615, 18446744073709551616, 2.0]");
  EXPECT_EQ(json[0].get<int64_t>(), INT64_MIN);
  EXPECT_EQ(json[1].get<int64_t>(), INT64_MAX);
  EXPECT_EQ(json[2].get<uint64_t>(), UINT64_MAX);
  EXPECT_TRUE(json[2].is_natural());
  EXPECT_FALSE(json[2].is_integer());
  EXPECT_TRUE(json[3].is_float());
  EXPECT_TRUE(json[4].is_float());
  EXPECT_TRUE(std::signbit(parsed("-0.0").get<double>()));
  EXPECT_EQ(problem_of("1e400"), "is not JSON: number overflow parsing '1e400'");
  EXPECT_THROW(json[1].get<int32_t>(), JsonError);
  EXPECT_THROW(json[0].get<uint64_t>(), JsonError);
  EXPECT_EQ(Json(NAN).dump(), "null");
  EXPECT_EQ(Json(0.1F).dump(), ParsedJson(0.1F).dump());
  EXPECT_EQ(parsed("2"), parsed("2.0"));
}

TEST(Json, KeysKeepTheirOrder) {
  Json json = parsed(R"({"z":1,"a":2,"m":3})");
  json["b"] = 4;
  json["z"] = 5;
  EXPECT_EQ(json.dump(), R"({"z":5,"a":2,"m":3,"b":4})");
  json.erase("a");
  EXPECT_EQ(json.dump(), R"({"z":5,"m":3,"b":4})");
  EXPECT_EQ(json, parsed(R"({"b":4,"m":3,"z":5})"));
  EXPECT_NE(json, parsed(R"({"b":4,"m":3})"));
  json.sort_keys();
  EXPECT_EQ(json.dump(), R"({"b":4,"m":3,"z":5})");
}

TEST(Json, LargeObjectsFindTheirKeys) {
  Json json = parsed(object_of(1000));
  for (int i = 0; i < 1000; i += 2) json.erase("key" + std::to_string(i));
  json["new"] = 1;
  const Json copy = json;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(copy.contains("key" + std::to_string(i)), i % 2 == 1);
  EXPECT_EQ(copy.at("key999"), 999);
  EXPECT_EQ(copy.at("new"), 1);
  EXPECT_EQ(copy.size(), 501u);
}

TEST(Json, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(parsed(R"({"a":[1,2],"b":2,"a":{"c":3}})").dump(), R"({"a":{"c":3},"b":2})");
  const JsonLimits limits = JsonLimits::tables().with_unique_keys();
  EXPECT_EQ(problem_of(R"({"a":1,"\u0061":2})", limits), R"(names "a" twice)");
  EXPECT_EQ(problem_of(R"({"a":{"b":1},"b":{"a":1}})", limits), "");
}

// With time that grows with the square of the keys, this would take minutes.
TEST(Json, ReadingIsLinear) {
  constexpr int kCount = 300'000;
  EXPECT_EQ(parsed("[" + repeated("{}", kCount, ",") + "]").size(), size_t{kCount});
  EXPECT_EQ(parsed("{" + repeated("\"a\":{}", kCount, ",") + "}").size(), 1U);
  const Json json = parsed(object_of(kCount));
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(json.at("key" + std::to_string(i)), i);
}

TEST(Json, LimitsHold) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(problem_of(nested(64)), "");
  EXPECT_EQ(problem_of(nested(65)), "nests deeper than 64 levels");
  EXPECT_EQ(problem_of(nested(200)), "nests deeper than 64 levels");
  EXPECT_EQ(problem_of(repeated("{\"a\":", 200)), "nests deeper than 64 levels");
  EXPECT_EQ(problem_of("[" + repeated("{}", 99'999, ",") + "]"), "");
  EXPECT_EQ(problem_of("[" + repeated("{}", 1'000'000, ",") + "]"), "has more than 100000 values");
  EXPECT_EQ(problem_of("[1, 2]", {.bytes = 5, .depth = 1, .values = 9}), "has more than 5 bytes of JSON");
}

TEST(Json, SyntaxErrorsAreOneLine) {
  EXPECT_NE(problem_of("{\n  \"a\": }").find("is not JSON: parse error at line 2, column 8"), std::string::npos);
  for (const std::string& text : {std::string("{"), std::string("[1] 2"), std::string("\"\xff\""),
           std::string("[1\n\t\x01"), std::string("\0", 1), std::string(), "\"" + std::string(100'000, 'x')}) {
    const std::string message = problem_of(text);
    EXPECT_TRUE(message.starts_with("is not JSON: ")) << message;
    EXPECT_LT(message.size(), 400u);
    EXPECT_TRUE(std::ranges::none_of(message, [](unsigned char c) { return c < ' '; })) << message;
  }
  EXPECT_TRUE(Json::parse_or_null("[1,", JsonLimits::request()).is_null());
  const std::string named = problem([] { Json::parse("[", "'a.json'", JsonLimits::request()); });
  EXPECT_TRUE(named.starts_with("'a.json' is not JSON: ")) << named;
}

TEST(Json, BytesThatAreNotUtf8) {
  const Json json = std::string("a\xff");
  EXPECT_EQ(json.dump(), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(json.dump_ascii(), R"("a\ufffd")");
  EXPECT_THROW(json.dump_if_utf8(), JsonError);
}

TEST(Json, IsBuiltFromBracedLists) {
  const std::vector<double> row{1, 2.5};
  const Json inner{{"role", "user"}};
  Json json{
      {"name", "x"}, {"row", row}, {"pair", {"a", "b"}}, {"object", {{"k", nullptr}}}, {"list", Json::array({inner})}};
  json["more"].push_back(true);
  EXPECT_EQ(json.dump(),
      R"({"name":"x","row":[1.0,2.5],"pair":["a","b"],"object":{"k":null},"list":[{"role":"user"}],"more":[true]})");
  json.update({{"name", 1}, {"last", uint64_t{1} << 63}});
  EXPECT_EQ(json.at("name"), 1);
  EXPECT_EQ(json.at("last").dump(), "9223372036854775808");
  EXPECT_EQ(Json(std::map<std::string, int>{{"b", 1}, {"a", 2}}).dump(), R"({"a":2,"b":1})");
}

TEST(Json, GettersSayWhatIsWrong) {
  const Json json = parsed(R"({"n":1.5,"list":[1,"x"]})");
  EXPECT_EQ(problem([&] { json.at("m"); }), R"(has no "m")");
  EXPECT_EQ(problem([&] { json.at("n").get<int64_t>(); }), "is 1.5, expected an integer");
  EXPECT_EQ(problem([&] { json.at("n").at("x"); }), "is 1.5, expected an object");
  EXPECT_EQ(problem([&] { json.at("list").get<std::vector<int64_t>>(); }), "is \"x\", expected an integer");
  EXPECT_EQ(problem([&] { json.at("list")[2]; }), "has no element 3");
  EXPECT_EQ(json.value("m", 7), 7);
  EXPECT_EQ(json.value("n", 7.0), 1.5);
}
}  // namespace
}  // namespace linnet
