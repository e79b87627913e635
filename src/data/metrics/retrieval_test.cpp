#include <gtest/gtest.h>
#include <array>
#include <cmath>
#include "data/metrics/similarity.h"

namespace linnet {
namespace {
using Row = std::array<float, 2>;

TEST(Retrieval, RanksDocumentsByTheirCosine) {
  Retrieval retrieval(2);
  const Row east{1, 0}, north_east{3, 3}, north{0, 0.5f}, west{-1, 0};
  retrieval.add_pair("east", east, "near", north_east);  // first: rank 1 of near, north, west
  retrieval.add_pair("north", north, "far", west);       // "north itself" and "near" come before it
  retrieval.add_document("north itself", north);
  const auto metrics = retrieval.metrics();
  ASSERT_EQ(metrics.size(), 4u);
  EXPECT_EQ(metrics[0].first, "mrr_10");
  EXPECT_DOUBLE_EQ(metrics[0].second, (1 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(metrics[1].second, (1 + 1 / std::log2(4.0)) / 2);
  EXPECT_DOUBLE_EQ(metrics[2].second, 0.5);
  EXPECT_DOUBLE_EQ(metrics[3].second, 1);
}

// Two partners of one query, and one document of two queries, are not candidates against each other twice.
TEST(Retrieval, CountsEqualTextsOnce) {
  Retrieval retrieval(2);
  const Row east{1, 0}, north{0, 1}, both{1, 1};
  retrieval.add_pair("q", east, "a", east);
  retrieval.add_pair("q", east, "b", both);
  retrieval.add_pair("r", north, "b", both);
  retrieval.add_document("a", east);
  const auto metrics = retrieval.metrics();
  EXPECT_DOUBLE_EQ(metrics[0].second, 1);
  EXPECT_DOUBLE_EQ(metrics[1].second, 1);
  EXPECT_DOUBLE_EQ(metrics[2].second, (0.5 + 1) / 2);  // the best document is one of two
  EXPECT_DOUBLE_EQ(metrics[3].second, 1);
}

// Documents beyond the tenth count for nothing.
TEST(Retrieval, LooksAtTenDocuments) {
  Retrieval retrieval(2);
  const Row east{1, 0}, west{-1, 0};
  retrieval.add_pair("q", east, "wanted", west);
  for (int i = 0; i < 10; ++i) {
    const Row better{1, static_cast<float>(i)};
    retrieval.add_document(std::to_string(i), better);
  }
  for (const auto& [name, value] : retrieval.metrics()) EXPECT_EQ(value, 0) << name;
}
}  // namespace
}  // namespace linnet
