#include "data/examples/text/labelled_batches.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace linnet {
namespace {

LabelledSequences sequences(int32_t count) {
  LabelledSequences data;
  for (int32_t i = 0; i < count; ++i) {
    data.tokens.emplace_back(static_cast<size_t>(1 + i * 7 % 20), i);
    data.labels.push_back(i % 3);
  }
  return data;
}

struct Rows {
  std::vector<int32_t> tokens = std::vector<int32_t>(4 * 20), lengths = std::vector<int32_t>(4), labels = lengths;
  // Copies what a source made.
  const Batch& take(const Batch& batch) {
    const auto copy = [&](const char* name, std::vector<int32_t>& to) {
      const auto ids = batch.ids(name);
      to.assign(ids.begin(), ids.end());
    };
    copy("tokens", tokens);
    copy("lengths", lengths);
    copy("labels", labels);
    return batch;
  }
};

const std::vector<int64_t> kLengths{8, 20};

TEST(LabelledBatches, AnEpochHoldsEveryExampleOnceInAnotherOrder) {
  const LabelledSequences data = sequences(50);
  LabelledBatches batches(data, 4, kLengths, 1);
  Rows rows;
  std::vector<std::vector<int32_t>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> seen;
    for (int64_t i = 0; i < 13; ++i) {
      const Batch& location = rows.take(batches.next());
      EXPECT_EQ(location.last_of_epoch, i == 12);
      const int64_t length = kLengths[static_cast<size_t>(location.shape_index)];
      for (int64_t row = 0; row < 4; ++row) {
        if (rows.labels[static_cast<size_t>(row)] < 0) continue;
        const int32_t id = rows.tokens[static_cast<size_t>(row * length)];
        EXPECT_EQ(rows.labels[static_cast<size_t>(row)], id % 3);
        EXPECT_EQ(rows.lengths[static_cast<size_t>(row)], 1 + id * 7 % 20);
        seen.push_back(id);
      }
    }
    EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), 50u);
    EXPECT_EQ(seen.size(), 50u);
    epochs.push_back(seen);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(LabelledBatches, GoOnFromAnyBatch) {
  const LabelledSequences data = sequences(50);
  LabelledBatches straight(data, 4, kLengths, 1), resumed(data, 4, kLengths, 1);
  Rows a, b;
  for (int i = 0; i < 20; ++i) a.take(straight.next());
  const Batch& location = a.take(straight.next());
  resumed.seek(location.epoch, location.index);
  EXPECT_EQ(b.take(resumed.next()).shape_index, location.shape_index);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_THROW(resumed.seek(0, 13), Error);
}

TEST(LabelNames, NumbersStandForThemselves) {
  EXPECT_EQ(label_names({"1", "0", "1"}), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(label_names({"pos", "neg", "pos"}), (std::vector<std::string>{"neg", "pos"}));
  EXPECT_EQ(label_names({"1", "2"}), (std::vector<std::string>{"1", "2"}));
}

TEST(LabelledText, LabelsThatAreNoClassesAreRefused) {
  const auto error_of = [](const std::vector<std::string>& labels) -> std::string {
    try {
      check_are_classes(labels, "f.tsv");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of({"0.00", "3.25", "5.00"}).find("'f.tsv' has numbers such as 3.25 as labels"), std::string::npos);
  EXPECT_NE(error_of({"joy", "fear", "joy, fear"}).find("several labels in one, such as 'joy, fear'"), std::string::npos);
  EXPECT_NE(error_of({"1", "2", "1|2"}).find("'1|2'"), std::string::npos);
  EXPECT_EQ(error_of({"0", "1", "2", "10"}), "");
  EXPECT_EQ(error_of({"0.0", "1.0"}), "");
  EXPECT_EQ(error_of({"1.5", "other"}), "");
  EXPECT_EQ(error_of({"Paris, France", "Rome, Italy", "Paris"}), "");
}

}  // namespace
}  // namespace linnet
