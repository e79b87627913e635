#include "models/nn/parameter_layout.h"
#include <gtest/gtest.h>
#include "error_of.h"
#include "models/nn/layers.h"

namespace linnet {
namespace {
struct Net : Module {
  Linear body{this, "body", 3, 4}, head{this, "head", 4, 2};
};

std::vector<std::string> names(std::span<const ParameterSlot> slots) {
  std::vector<std::string> list;
  for (const ParameterSlot& slot : slots) list.push_back(slot.spec.name);
  return list;
}

TEST(ParameterGroups, PatternsAreOfWholeNames) {
  EXPECT_TRUE(matches("encoder.layers.0.weight", "encoder.*"));
  EXPECT_TRUE(matches("encoder.layers.0.weight", "*.0.*"));
  EXPECT_TRUE(matches("encoder.layers.10.weight", "*layers.1*.weight"));
  EXPECT_TRUE(matches("head", "head"));
  EXPECT_FALSE(matches("head.weight", "head"));
  EXPECT_FALSE(matches("a.head", "head*"));
  EXPECT_FALSE(matches("", "?"));
  EXPECT_TRUE(matches("", "*"));
}

TEST(ParameterGroups, TrainedRangesComeFirstAndTheFirstMatchWins) {
  const Net net;
  const std::vector<ParameterGroup> groups{
      {.patterns = {"head.weight"}, .rate_factor = 2}, {.patterns = {"head.*"}, .frozen = true}};
  const ParameterLayout layout(net, groups);
  EXPECT_EQ(
      names(layout.parameters()), (std::vector<std::string>{"body.weight", "body.bias", "head.weight", "head.bias"}));
  EXPECT_EQ(names(layout.frozen()), (std::vector<std::string>{"head.bias"}));
  ASSERT_EQ(layout.ranges().size(), 2u);
  EXPECT_EQ(layout.ranges()[0].suffix, "");
  EXPECT_EQ(layout.ranges()[0].count, 16);
  EXPECT_EQ(layout.ranges()[0].decay_count, 12);  // not the bias
  EXPECT_EQ(layout.ranges()[1].offset, 16);
  EXPECT_EQ(layout.ranges()[1].group.rate_factor, 2);
  EXPECT_EQ(layout.trained_count(), 24);
  EXPECT_EQ(layout.parameter_count(), 26);
}

TEST(ParameterGroups, APatternWithoutAParameterAndAFrozenModelAreUserErrors) {
  const Net net;
  const auto refused = [&](std::vector<ParameterGroup> groups, const std::string& text) {
    EXPECT_PRED2(has_text, error_of([&] { ParameterLayout(net, groups); }), text);
  };
  refused({{.patterns = {"haed.*"}, .frozen = true}}, "haed.*");
  refused({{.patterns = {"head.*, body.*"}}}, "\"head.*, body.*\" (several patterns are a list: [\"a\", \"b\"])");
  refused({{.patterns = {"*"}, .frozen = true}}, "nothing is left to train");
}
}  // namespace
}  // namespace linnet
