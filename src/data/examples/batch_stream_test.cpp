#include "data/examples/batch_stream.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include "batch_testing.h"
#include "error_of.h"

// Counts what the whole program allocates, on every thread.
static std::atomic<int64_t> allocations{0};
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks this way, and gives back by the delete below.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace linnet {
namespace {
class BatchStreamTest : public ::testing::Test {
 protected:
  static constexpr int kPairs = 300;

  // Pair i has 1 + 7i mod 13 source and 1 + 5i mod 11 target words, the first of which says which pair it is.
  static ParallelText text() {
    ParallelText text;
    for (int i = 0; i < kPairs; ++i) {
      const auto line = [i](int words) {
        std::string line = "w" + std::to_string(i);
        while (--words > 0) line += " x";
        return line;
      };
      text.source.push_back(line(1 + i * 7 % 13));
      text.target.push_back(line(1 + i * 5 % 11));
    }
    return text;
  }
  static std::unique_ptr<Tokenizer> words() {
    TokenizerOptions options;
    options.kind = "word";
    options.vocab_size = 1000;
    return train_tokenizer(options, text().source);
  }

  // What a batch holds, copied.
  struct Copy {
    int64_t epoch, index;
    BatchShape shape;
    bool last;
    std::vector<int32_t> source, source_lengths, target_in, target_out, target_lengths, pairs;
    bool operator==(const Copy&) const = default;
  };
  Copy copy(const Batch& batch) const {
    const auto list = [&](const char* name) { return testing::copy_ids(batch, name); };
    return {batch.epoch, batch.index, buckets_.shapes()[batch.shape_index], batch.last_of_epoch, list("source"),
        list("source_lengths"), list("target_in"), list("target_out"), list("target_lengths"), pairs_of(batch)};
  }
  // Which pair each row is by the first word of its source; -1: none.
  std::vector<int32_t> pairs_of(const Batch& batch) const {
    const auto source = batch.ids("source"), lengths = batch.ids("source_lengths");
    std::vector<int32_t> pairs;
    for (size_t row = 0; row < lengths.size(); ++row)
      pairs.push_back(lengths[row] == 0
                          ? -1
                          : std::stoi(tokenizer_->piece(source[row * (source.size() / lengths.size())]).substr(1)));
    return pairs;
  }
  std::vector<Copy> take(BatchStream& stream, int64_t count) {
    std::vector<Copy> batches;
    for (int64_t i = 0; i < count; ++i) batches.push_back(copy(stream.next()));
    return batches;
  }
  static std::vector<int32_t> pair_order(const std::vector<Copy>& batches) {
    std::vector<int32_t> order;
    for (const Copy& batch : batches)
      std::copy_if(batch.pairs.begin(), batch.pairs.end(), std::back_inserter(order), [](int32_t p) { return p >= 0; });
    return order;
  }
  static void expect_every_pair_once(std::vector<int32_t> order) {
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), static_cast<size_t>(kPairs));
    for (int i = 0; i < kPairs; ++i) EXPECT_EQ(order[i], i);
  }
  void expect_rows_of_dataset(const Batch& batch) const;

  const std::unique_ptr<Tokenizer> tokenizer_ = words();
  const PairDataset data_{text(), *tokenizer_, *tokenizer_, {.max_seq_len = 32}};
  const Buckets buckets_ =
      Buckets::choose(data_.lengths(), {.batch_tokens = 0, .batch_size = 16, .num_buckets = 4, .max_seq_len = 32});
};

// Row by row: the ids of its pair, then padding; rows without a pair are empty.
void BatchStreamTest::expect_rows_of_dataset(const Batch& made) const {
  const Copy batch = copy(made);
  const auto expect_row = [](std::span<const int32_t> ids, int64_t row, int64_t length, std::span<const TokenId> pair) {
    ASSERT_LE(pair.size(), static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i)
      ASSERT_EQ(ids[row * length + i], i < static_cast<int64_t>(pair.size()) ? pair[i] : SpecialTokens{}.pad);
  };
  ASSERT_EQ(batch.pairs.size(), static_cast<size_t>(batch.shape.batch));
  for (int64_t row = 0; row < batch.shape.batch; ++row) {
    const int64_t pair = batch.pairs[row], s = batch.shape.source_length, t = batch.shape.target_length;
    const bool used = pair >= 0;
    using Ids = std::span<const TokenId>;
    expect_row(batch.source, row, s, used ? data_.source(pair) : Ids{});
    expect_row(batch.target_in, row, t, used ? data_.target_in(pair) : Ids{});
    expect_row(batch.target_out, row, t, used ? data_.target_out(pair) : Ids{});
    EXPECT_EQ(batch.source_lengths[row], used ? data_.source_length(pair) : 0);
    EXPECT_EQ(batch.target_lengths[row], used ? data_.target_length(pair) : 0);
  }
}

TEST_F(BatchStreamTest, EveryEpochHasEveryPairOnce) {
  BatchStream stream(data_, buckets_, 1);
  const int64_t count = stream.batches_per_epoch();
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<Copy> batches;
    for (int64_t index = 0; index < count; ++index) {
      const Batch& batch = stream.next();
      expect_rows_of_dataset(batch);
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.index, index);
      EXPECT_EQ(batch.last_of_epoch, index + 1 == count);
      batches.push_back(copy(batch));
    }
    expect_every_pair_once(pair_order(batches));
  }
}

TEST_F(BatchStreamTest, OrderIsAFunctionOfSeedAndEpoch) {
  BatchStream first(data_, buckets_, 1, 1), same(data_, buckets_, 1, 5), other(data_, buckets_, 2);
  const int64_t count = first.batches_per_epoch();
  const std::vector<Copy> epoch_0 = take(first, count), epoch_1 = take(first, count);
  EXPECT_EQ(take(same, count), epoch_0);
  EXPECT_EQ(take(same, count), epoch_1);
  EXPECT_NE(pair_order(epoch_0), pair_order(epoch_1));
  EXPECT_NE(pair_order(take(other, count)), pair_order(epoch_0));
}

// The order is part of what a checkpoint resumes: should this fail, saved runs no longer continue as they would have.
TEST_F(BatchStreamTest, OrderStaysTheSameForever) {
  const PairDataset data({text().source, text().source}, *tokenizer_, *tokenizer_, {.max_seq_len = 32});
  BatchStream stream(data, Buckets({{100, 16, 16}}), 42);
  const std::vector<int32_t> pairs = pairs_of(stream.next());
  EXPECT_EQ(std::vector<int32_t>(pairs.begin(), pairs.begin() + 6), (std::vector<int32_t>{255, 108, 263, 55, 142, 50}));
}

TEST_F(BatchStreamTest, SeekContinuesAsTheUninterruptedStream) {
  BatchStream whole(data_, buckets_, 3);
  const int64_t count = whole.batches_per_epoch();
  const std::vector<Copy> all = take(whole, 3 * count);
  BatchStream stream(data_, buckets_, 3);
  for (int64_t start : {2 * count - 1, int64_t{0}, count + 2, 2 * count, int64_t{5}, count - 1}) {
    stream.seek(start / count, start % count);
    const std::vector<Copy> expected(all.begin() + start, all.begin() + std::min(start + count, 3 * count));
    EXPECT_EQ(take(stream, static_cast<int64_t>(expected.size())), expected) << "from batch " << start;
  }
  for (int64_t i = 0; i < 200; ++i) stream.seek(i % 3, i % count);  // while the worker is at work
  EXPECT_EQ(copy(stream.next()), all[199 % 3 * count + 199 % count]);
}

TEST_F(BatchStreamTest, ABatchStaysAsItIsUntilTheNext) {
  BatchStream stream(data_, buckets_, 4, 1);
  for (int64_t i = 0; i < 3 * stream.batches_per_epoch(); ++i) {
    const Batch& batch = stream.next();
    const Copy before = copy(batch);
    for (int spin = 0; spin < 100; ++spin) std::this_thread::yield();  // time for the worker to overwrite it
    ASSERT_EQ(copy(batch), before);
  }
}

TEST_F(BatchStreamTest, NothingIsAllocatedAfterTheFirstEpoch) {
  BatchStream stream(data_, buckets_, 5);
  const int64_t count = stream.batches_per_epoch();
  int64_t tokens = 0;
  const auto add_tokens = [&](const Batch& batch) {
    for (const int32_t length : batch.ids("target_lengths")) tokens += length;
  };
  for (int64_t i = 0; i < count; ++i) add_tokens(stream.next());
  const int64_t before = allocations.load();
  for (int64_t i = 0; i < 2 * count; ++i) add_tokens(stream.next());
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(tokens, 3 * data_.report().target_tokens);
}

TEST_F(BatchStreamTest, ArraysHaveTheSizeOfTheLargestShape) {
  size_t sources = 0, targets = 0, rows = 0;
  for (const BatchShape& shape : buckets_.shapes()) {
    sources = std::max(sources, static_cast<size_t>(4 * shape.batch * shape.source_length));
    targets = std::max(targets, static_cast<size_t>(4 * shape.batch * shape.target_length));
    rows = std::max(rows, static_cast<size_t>(4 * shape.batch));
  }
  std::vector<size_t> bytes;
  for (const BatchInput& input : pair_inputs(buckets_.shapes())) bytes.push_back(input.bytes);
  EXPECT_EQ(bytes, (std::vector<size_t>{sources, rows, targets, targets, rows}));
}

TEST_F(BatchStreamTest, AnErrorOfTheWorkerReappearsInNext) {
  BatchStream stream(data_, buckets_, 1);
  const int64_t count = stream.batches_per_epoch();
  stream.seek(0, count);
  for (int i = 0; i < 2; ++i)
    EXPECT_PRED2(has_text, error_of([&] { stream.next(); }), "an epoch has " + std::to_string(count));
  stream.seek(0, count - 1);
  EXPECT_TRUE(stream.next().last_of_epoch);
}

TEST_F(BatchStreamTest, APairThatFitsNoBucketIsAnError) {
  const Buckets small({{4, 8, 8}});
  EXPECT_THROW(BatchStream(data_, small, 1), Error);
  EXPECT_THROW(EvaluationBatches(data_, small), Error);
}

TEST_F(BatchStreamTest, EvaluationHasEveryPairOnceInOrderWithinItsBucket) {
  EvaluationBatches batches(data_, buckets_);
  std::vector<int32_t> order;
  int bucket = 0;
  for (int64_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches.at(i);
    expect_rows_of_dataset(batch);
    EXPECT_GE(batch.shape_index, bucket);
    EXPECT_EQ(batch.last_of_epoch, i + 1 == batches.size());
    if (batch.shape_index == bucket && i > 0) {
      EXPECT_GT(pairs_of(batch)[0], order.back());
    }
    bucket = batch.shape_index;
    for (int32_t pair : pairs_of(batch))
      if (pair >= 0) order.push_back(pair);
  }
  expect_every_pair_once(order);
}
}  // namespace
}  // namespace linnet
