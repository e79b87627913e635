#include <gtest/gtest.h>
#include "base/error.h"
#include "data/metrics/text_scores.h"

namespace linnet {
namespace {
// Expected values are those of sacrebleu 2.6.0: CHRF().corpus_score(hypotheses, [references]).score.
TEST(Chrf, IsSacrebleus) {
  struct Case {
    const char* name;
    std::vector<std::string> hypotheses, references;
    double score;
  };
  const Case cases[] = {
      {"Sentences",
          {"Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
              "Zwei junge Männer sind im Freien."},
          {"Ein Mann in blauem Hemd steht auf einer Leiter und reinigt Fenster.",
              "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."},
          61.709526623742164},
      {"Same", {"日本語のテスト です。"}, {"日本語のテスト です。"}, 100},
      {"ShortLines", {"ab", "x", ""}, {"abc", "", "y z"}, 41.98473282442748},
      {"NothingShared", {"abc"}, {"xyz"}, 0},
      {"OrderMatters", {"a b c d e f g h"}, {"h g f e d c b a"}, 16.666666666666664},
      {"Spaces",
          {"a\u00A0b\u3000c\x1F"
           "d  e"},
          {"abcde"}, 100},
      {"AllEmpty", {"", ""}, {"a", "b c"}, 0},
      {"LongerHypothesis", {"the cat sat on the mat and then on the other mat"}, {"the cat sat on the mat"},
          78.2789392642038},
  };
  for (const Case& c : cases) EXPECT_NEAR(corpus_chrf(c.hypotheses, c.references), c.score, 1e-9) << c.name;
}

TEST(Chrf, UnequalListsAreAnError) {
  EXPECT_THROW(corpus_chrf({"a"}, {}), Error);
  EXPECT_EQ(corpus_chrf({}, {}), 0);
}
}  // namespace
}  // namespace linnet
