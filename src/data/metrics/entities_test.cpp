#include <gtest/gtest.h>
#include <vector>
#include "data/metrics/class_report.h"

namespace linnet {
namespace {
using Tags = std::vector<std::string>;

// The figures of seqeval 1.2.
TEST(Entities, AreCountedAsSeqevalCountsThem) {
  const std::vector<Tags> there{{"B-PER", "I-LOC", "I-LOC", "B-PER", "I-PER", "I-LOC", "B-LOC", "E-PER", "I-LOC"},
      {"O", "I-LOC", "O", "S-LOC", "B-LOC", "I-PER", "I-LOC", "B-PER", "B-PER"},
      {"E-PER", "B-LOC", "I-LOC", "S-LOC", "I-LOC", "B-LOC", "B-LOC", "E-PER", "S-LOC"},
      {"B-PER", "B-PER", "E-PER", "B-PER", "S-LOC", "I-LOC", "B-LOC", "E-PER", "O"}};
  const std::vector<Tags> predicted{{"B-PER", "I-LOC", "I-LOC", "B-PER", "S-LOC", "B-LOC", "B-LOC", "B-LOC", "B-LOC"},
      {"O", "B-LOC", "B-PER", "O", "B-LOC", "I-PER", "I-LOC", "B-PER", "S-LOC"},
      {"E-PER", "B-LOC", "I-LOC", "S-LOC", "I-LOC", "B-LOC", "E-PER", "O", "I-LOC"},
      {"B-PER", "B-PER", "I-LOC", "I-LOC", "S-LOC", "I-LOC", "B-LOC", "I-PER", "O"}};
  EntityCounts by_label;
  for (size_t i = 0; i < there.size(); ++i) count_entities(predicted[i], there[i], by_label);
  DecisionCounts counts;
  for (const auto& [label, of_label] : by_label) counts += of_label;
  EXPECT_NEAR(counts.f1(), 0.7241379310344829, 1e-15);
  EXPECT_NEAR(counts.precision(), 0.7241379310344828, 1e-15);
  EXPECT_NEAR(counts.recall(), 0.7241379310344828, 1e-15);
}

TEST(Entities, HaveTheirWords) {
  EXPECT_EQ(find_entities(Tags{"B-A", "I-A", "I-B", "O", "S-A", "I-A"}),
      (std::vector<Entity>{{0, 2, "A"}, {2, 3, "B"}, {4, 5, "A"}, {5, 6, "A"}}));
  EXPECT_TRUE(find_entities(Tags{"O", "O"}).empty());
  // Without prefixes, as parts of speech have none.
  EXPECT_EQ(find_entities(Tags{"NOUN", "NOUN", "VERB", "O", "ORG", "X"}),
      (std::vector<Entity>{{0, 2, "NOUN"}, {2, 3, "VERB"}, {4, 5, "ORG"}, {5, 6, "X"}}));
}
}  // namespace
}  // namespace linnet
