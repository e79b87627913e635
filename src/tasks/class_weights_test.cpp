#include <gtest/gtest.h>
#include <algorithm>
#include "base/files.h"
#include "base/json.h"
#include "error_of.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
TEST(ClassWeights, BalancedOnesAreThoseOfScikitLearn) {
  const Json cases = Json::parse(read_file("tests/golden/class_report.json"), JsonLimits::tables());
  for (const Json& one : cases) {
    const auto labels = one["labels"].get<std::vector<int64_t>>();
    const auto expected = one["balanced"].get<std::vector<double>>();
    std::vector<int64_t> counts(expected.size());
    for (const int64_t label : labels) ++counts[static_cast<size_t>(label)];
    const std::vector<float> weights =
        class_weights("balanced", std::vector<std::string>(expected.size(), "x"), counts, std::ssize(labels));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(weights[i], static_cast<float>(expected[i]));
  }
}

TEST(ClassWeights, NamedOnesHaveTheMeanOne) {
  const std::vector<std::string> names{"ham", "spam"};
  const std::vector<float> weights = class_weights("spam = 4", names, {6, 2}, 8);
  EXPECT_FLOAT_EQ(weights[1], 4 * weights[0]);
  EXPECT_FLOAT_EQ(6 * weights[0] + 2 * weights[1], 8);
  EXPECT_TRUE(class_weights("", names, {6, 2}, 8).empty());
  // Of labels: how much it counts where a label is there; balanced, as much as where it is not.
  EXPECT_EQ(class_weights("balanced", names, {6, 2}, 8, true), (std::vector<float>{1.0f / 3, 3}));
  const auto problem = [&](const char* asked) { return error_of([&] { class_weights(asked, names, {6, 2}, 8); }); };
  for (const auto& [asked, part] : {std::pair{"spam", "no CLASS=WEIGHT"}, {"spam=x", "no CLASS=WEIGHT"},
           {"spam=-1", "no CLASS=WEIGHT"}, {"spm=2", "did you mean \"spam\""}})
    EXPECT_PRED2(has_text, problem(asked), part) << asked;
}
}  // namespace
}  // namespace linnet
