#include <gtest/gtest.h>
#include <optional>
#include "base/json.h"

namespace linnet {
namespace {
struct Problem {
  std::string what, key;
};

template <class Call> Problem problem_of(const Call& call) {
  try {
    call();
  } catch (const JsonError& error) {
    return {error.what(), error.key};
  }
  return {};
}

TEST(JsonObject, ReadsFields) {
  const Json json = Json::parse(R"({"text":"a","on":true,"count":5.0,"rate":0.5,"none":null,"one":"x","two":["x","y"],
                                    "list":[{"a":1},{"a":2}]})",
      JsonLimits::settings());
  const JsonObject object(json, "'file':");
  EXPECT_EQ(object.text("text"), "a");
  EXPECT_TRUE(object.flag("on", false));
  EXPECT_EQ(object.integer("count"), 5);
  EXPECT_EQ(object.integer("count", 1, 5), 5);
  EXPECT_EQ(object.number(
                "rate", [](double x) { return x > 0; }, "above 0"),
      0.5);
  EXPECT_EQ(object.texts("one"), std::vector<std::string>{"x"});
  EXPECT_EQ(object.texts("two"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(object.objects("list")[1].integer("a"), 2);
  EXPECT_EQ(object.objects("list")[1].where(), "'file': list[1]");
  // What is null is absent.
  EXPECT_FALSE(object.has("none"));
  EXPECT_EQ(object.text("none", "other"), "other");
  EXPECT_EQ(object.integer("none", 1, 2), std::nullopt);
  EXPECT_TRUE(object.texts("none").empty());
}

TEST(JsonObject, ErrorsNameTheObjectAndTheKey) {
  const Json json = Json::parse(R"({"n":7,"half":0.5,"mixed":["a",1],"inner":{"k":[]}})", JsonLimits::settings());
  const JsonObject object(json, "'file':");
  EXPECT_EQ(problem_of([&] { object.text("m"); }).what, R"('file': has no "m")");
  EXPECT_EQ(problem_of([&] { object.text("n"); }).what, R"('file': "n" is not a string)");
  EXPECT_EQ(problem_of([&] { object.text("n"); }).key, "n");
  EXPECT_EQ(problem_of([&] { object.integer("half"); }).what, R"('file': "half" is not an integer)");
  EXPECT_EQ(problem_of([&] { object.integer("n", 8, 9); }).what, R"('file': "n" is not a whole number from 8 to 9)");
  EXPECT_EQ(
      problem_of([&] { object.texts("mixed"); }).what, R"('file': "mixed" is neither a string nor a list of strings)");
  EXPECT_EQ(problem_of([&] { object.object("n"); }).what, R"('file': "n" is not an object)");
  EXPECT_EQ(problem_of([&] { object.object("inner").flag("k", true); }).what,
      R"('file': inner "k" is neither true nor false)");
  EXPECT_EQ(problem_of([&] { JsonObject(json, "").text("n"); }).what, R"("n" is not a string)");
  EXPECT_EQ(problem_of([&] { JsonObject(json.at("n"), "the body"); }).what, "the body is not an object");
}

TEST(JsonObject, RefusesNamesThatNobodyAskedFor) {
  const Json json = Json::parse(R"({"a":1,"b":2,"c":3})", JsonLimits::settings());
  const JsonObject object(json, "");
  const auto first = [](std::string_view, std::span<const std::string> known) { return known[0]; };
  object.integer("a");
  object.ignore({"c"});
  EXPECT_EQ(problem_of([&] { object.check_names(first); }).what, R"(there is no setting "b" (did you mean "a"?))");
  EXPECT_EQ(problem_of([&] { object.check_names(first); }).key, "b");
  const auto told = [&](const std::string& where) {
    const JsonObject other(json, where);
    other.ignore({"a", "c"});
    return problem_of([&] { other.check_names(first); }).what;
  };
  EXPECT_EQ(told("line 1:"), R"(line 1: there is no setting "b" (did you mean "a"?))");
  EXPECT_EQ(told("parameters"), R"(parameters: there is no setting "b" (did you mean "a"?))");
  object.find("b");
  EXPECT_EQ(problem_of([&] { object.check_names(first); }).what, "");
  const Json empty = Json::parse(R"({"z":null})", JsonLimits::settings());  // as if it were absent
  EXPECT_EQ(problem_of([&] { JsonObject(empty, "").check_names(first); }).what, "");
}
}  // namespace
}  // namespace linnet
