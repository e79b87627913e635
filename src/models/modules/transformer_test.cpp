#include "models/modules/transformer.h"
#include <gtest/gtest.h>
#include <cmath>
#include "base/error.h"
#include "translation_fixture.h"

namespace linnet {
namespace {
using testing::make_batch;
using testing::small_config;
using testing::TokenBatch;
using testing::Training;

TEST(Transformer, MorePaddingNeverChangesASentencesLoss) {
  for (bool pre : {false, true}) {
    TransformerConfig config = small_config();
    config.norm_first = config.final_norm = pre;
    for (const auto& lengths : {std::pair<int32_t, int32_t>{1, 1}, {3, 7}, {7, 4}}) {
      std::vector<TokenBatch> padded;
      for (int64_t extra : {0, 1, 9, 24})
        padded.push_back(make_batch({lengths}, std::min<int64_t>(32, lengths.first + extra),
            std::min<int64_t>(32, lengths.second + extra), 50));
      // And beside longer sentences.
      std::vector<BatchShape> shapes;
      for (const TokenBatch& batch : padded) shapes.push_back(batch.shape);
      Training training(config, shapes);
      training.load(padded[0]);
      const double loss = training.trainer->evaluate(0).sum;
      for (size_t i = 1; i < padded.size(); ++i) {
        training.load(padded[i]);
        EXPECT_NEAR(training.trainer->evaluate(static_cast<int>(i)).sum, loss, 1e-6 * loss);
      }
    }
  }
}

TEST(Transformer, ASentencesLossDoesNotDependOnItsNeighbors) {
  const TokenBatch alone = make_batch({{5, 6}}, 8, 8, 50), both = make_batch({{5, 6}, {8, 8}}, 8, 8, 50),
                   other = make_batch({{8, 8}}, 8, 8, 50, 1);
  Training training(small_config(), {alone.shape, both.shape});
  const auto loss = [&](const TokenBatch& batch, int shape) {
    training.load(batch);
    return training.trainer->evaluate(shape).sum;
  };
  EXPECT_NEAR(loss(alone, 0) + loss(other, 0), loss(both, 1), 1e-4);
}

TEST(Transformer, RowsWithoutASentenceCountForNothing) {
  const TokenBatch full = make_batch({{5, 6}, {0, 0}, {0, 0}}, 8, 8, 50), alone = make_batch({{5, 6}}, 8, 8, 50);
  Training training(small_config(), {full.shape, alone.shape});
  training.load(full);
  const LossTotal with_empty = training.trainer->evaluate(0);
  const StepReport report = training.trainer->step(0, 0, 1);
  training.load(alone);
  EXPECT_EQ(with_empty.tokens, 6);
  EXPECT_NEAR(with_empty.sum, training.trainer->evaluate(1).sum, 1e-5);
  EXPECT_TRUE(report.finite);
}

TEST(Transformer, SharedEmbeddingsNeedOneVocabulary) {
  TransformerConfig config = small_config();
  config.target_vocab = 40;
  config.share_embeddings = true;
  EXPECT_THROW(Transformer{config}, Error);
}

TEST(Transformer, TheReferenceShapeHasItsParameters) {
  Transformer model(TransformerConfig{});
  // Two tables of 256 x 256, the head, 2 encoder and 2 decoder layers of d 256 and ff 1024.
  EXPECT_EQ(model.parameter_count(), 3 * 256 * 256 + 256 + 2 * (4 * 256 * 257 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256) +
                                         2 * (8 * 256 * 257 + 2 * 256 * 1024 + 1024 + 256 + 6 * 256));
}
}  // namespace
}  // namespace linnet
