#include <gtest/gtest.h>
#include <vector>
#include "base/files.h"
#include "base/json.h"
#include "data/metrics/text_scores.h"

namespace linnet {
namespace {
// tests/golden/make_squad.py has the scripts' own functions.
TEST(Squad, ScoresAnswersAsTheEvaluationScriptsDo) {
  const Json cases = Json::parse(read_file("tests/golden/squad.json"), JsonLimits::tables());
  ASSERT_GT(cases.size(), 200u);
  for (const Json& one : cases) {
    const std::string& found = one["found"].text();
    const auto wanted = one["wanted"].get<std::vector<std::string>>();
    EXPECT_EQ(normalized_answer(found), one["normalized"].text()) << found;
    for (const bool may_lack : {false, true}) {
      const auto expected = one[may_lack ? "v2" : "v1"].get<std::vector<double>>();
      const AnswerScore score = score_answer(found, wanted, may_lack);
      EXPECT_EQ(score.exact, expected[0]) << one.dump();
      EXPECT_EQ(score.f1, expected[1]) << one.dump();
    }
  }
}
}  // namespace
}  // namespace linnet
