#include "data/examples/text/token_chunks.h"
#include <gtest/gtest.h>
#include <filesystem>
#include <numeric>
#include <set>
#include "batch_testing.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

struct Rows {
  // Copies what a source made.
  const Batch& take(const Batch& batch) {
    tokens = testing::copy_ids(batch, "tokens");
    targets = testing::copy_ids(batch, "targets");
    if (batch.arrays.size() > 2)
      positions = testing::copy_ids(batch, "positions"), starts = testing::copy_ids(batch, "starts");
    return batch;
  }
  void score(const TokenStream& stream, const ChunkOptions& options, int64_t index, bool packed) {
    OwnedBatch owned(token_inputs(options, packed));
    fill_scoring_batch(stream, options, index, owned);
    take(owned.batch);
  }
  std::vector<int32_t> tokens, targets, positions, starts;
};

TEST(ShuffledIndex, IsABijectionAndAnotherOneForAnotherKey) {
  for (int64_t count : {1, 2, 3, 7, 64, 1000}) {
    const ShuffledIndex a(count, 1), b(count, 2);
    std::set<int64_t> seen;
    int64_t same = 0;
    for (int64_t i = 0; i < count; ++i) {
      seen.insert(a(i));
      same += a(i) == b(i);
      EXPECT_TRUE(a(i) >= 0 && a(i) < count);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    if (count == 1000) {
      EXPECT_LT(same, 20);
    }
  }
}

TEST(TrainingChunks, CoverAnEpochOnceAndAreCutElsewhereInTheNext) {
  const TokenStream stream(counting(1000), 1000);
  const ChunkOptions options{.rows = 4, .length = 10};
  TrainingChunks chunks(stream, options, 3);
  ASSERT_EQ(chunks.batches_per_epoch(), 24);  // 99 chunks
  Rows rows;
  std::set<int32_t> offsets;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> firsts;
    for (int64_t i = 0; i < 24; ++i) {
      const Batch& location = rows.take(chunks.next());
      EXPECT_EQ(location.epoch, epoch);
      EXPECT_EQ(location.index, i);
      EXPECT_EQ(location.last_of_epoch, i == 23);
      for (size_t at = 0; at < rows.tokens.size(); ++at) EXPECT_EQ(rows.targets[at], rows.tokens[at] + 1);
      for (size_t row = 0; row < 4; ++row) firsts.insert(rows.tokens[row * 10]);
    }
    EXPECT_EQ(firsts.size(), 96u);
    offsets.insert(*firsts.begin() % 10);
    for (int32_t first : firsts) EXPECT_EQ(first % 10, *firsts.begin() % 10);
  }
  EXPECT_GT(offsets.size(), 1u);
}

TEST(TrainingChunks, GoOnFromAnyBatch) {
  const TokenStream stream(counting(300), 300);
  const ChunkOptions options{.rows = 3, .length = 7};
  TrainingChunks straight(stream, options, 9), resumed(stream, options, 9);
  Rows a, b;
  for (int i = 0; i < 20; ++i) a.take(straight.next());
  const Batch& location = a.take(straight.next());
  resumed.seek(location.epoch, location.index);
  b.take(resumed.next());
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_PRED2(has_text, error_of([&] { resumed.seek(0, 1000); }), "does not exist");
}

TEST(TrainingChunks, AShortTextFillsTheRowsThereAre) {
  const TokenStream stream(counting(11), 11);
  const ChunkOptions options{.rows = 3, .length = 10};
  TrainingChunks chunks(stream, options, 1);
  Rows rows;
  EXPECT_TRUE(rows.take(chunks.next()).last_of_epoch);
  EXPECT_EQ(rows.targets[9], 10);
  for (size_t at = 10; at < 30; ++at) EXPECT_EQ(rows.targets[at], -1);
  const TokenStream shorter(counting(10), 11);
  EXPECT_PRED2(has_text, error_of([&] { TrainingChunks(shorter, options, 1); }), "one chunk takes 11");
}

TEST(ScoringChunks, ScoreEveryTokenButTheFirstOnce) {
  for (int64_t size : {2, 20, 21, 22, 57}) {
    const TokenStream stream(counting(size), size);
    const ChunkOptions options{.rows = 2, .length = 10};
    Rows rows;
    std::vector<int32_t> scored;
    for (int64_t i = 0; i < scoring_batches(stream, options); ++i) {
      rows.score(stream, options, i, false);
      for (size_t at = 0; at < rows.targets.size(); ++at)
        if (rows.targets[at] >= 0) {
          EXPECT_EQ(rows.targets[at], rows.tokens[at] + 1);
          scored.push_back(rows.targets[at]);
        }
    }
    std::vector<int32_t> want = counting(size);
    want.erase(want.begin());
    EXPECT_EQ(scored, want);
  }
}

TEST(PackedRows, ADocumentBeginsWithItsSeparator) {
  const TokenStream stream({9, 1, 2, 9, 3, 9, 4, 5, 6, 9}, 10);
  const ChunkOptions options{.rows = 1, .length = 9, .separator = 9};
  Rows rows;
  rows.score(stream, options, 0, true);
  EXPECT_EQ(rows.starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 5, 5, 5}));
  EXPECT_EQ(rows.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(rows.targets, (std::vector<int32_t>{1, 2, 9, 3, 9, 4, 5, 6, 9}));
}

TEST(PackedRows, ATokenThatOnlyBeginsDocumentsIsNoTarget) {
  const TokenStream stream({8, 1, 2, 9, 8, 3, 9, 8, 4, 9}, 10);  // <s> 1 2 </s> <s> 3 </s> <s> 4 </s>
  const ChunkOptions options{.rows = 1, .length = 9, .separator = 8, .separator_ends = false};
  Rows rows;
  rows.score(stream, options, 0, true);
  EXPECT_EQ(rows.starts, (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 4, 7, 7}));
  EXPECT_EQ(rows.targets, (std::vector<int32_t>{1, 2, 9, -1, 3, 9, -1, 4, 9}));
}

TEST(TokenStream, AMappedFileIsTheSameAsMemory) {
  const std::vector<int32_t> tokens{0, 1, 65535, 300, 7};
  std::string two, four;
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 16; shift += 8) two += static_cast<char>(token >> shift & 255);
    for (int shift = 0; shift < 32; shift += 8) four += static_cast<char>(token >> shift & 255);
  }
  const testing::TemporaryFolder folder;
  const std::string two_path = folder.write("2.bin", two), four_path = folder.write("4.bin", four);
  for (const TokenStream& stream : {TokenStream(tokens, 65536), TokenStream(tokens, 70000),
           TokenStream(two_path, 2, 65536), TokenStream(four_path, 4, 65536)}) {
    ASSERT_EQ(stream.size(), 5);
    std::vector<int32_t> out(3);
    stream.part(1, 4).read(1, 3, out.data());
    EXPECT_EQ(out, (std::vector<int32_t>{65535, 300, 7}));
    stream.drop_pages();
  }
  const TokenStream small(two_path, 2, 400);
  std::vector<int32_t> out(5);
  EXPECT_PRED2(has_text, error_of([&] { small.part(1, 4).read(0, 4, out.data()); }), "token 2 is 65535");
  EXPECT_PRED2(has_text, error_of([&] { TokenStream(two_path, 4, 400); }), "no whole number");
}

TEST(TextDocuments, PlainTextKeepsItsEndAndJsonLinesNameTheirLine) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> texts;
  const auto read = [&](const char* name, const std::string& bytes) {
    texts.clear();
    read_documents(folder.write(name, bytes), "text", [&](std::string text) { texts.push_back(std::move(text)); });
  };
  read("a.txt", "one\r\ntwo\n\nthree");
  EXPECT_EQ(texts, std::vector<std::string>{"one\ntwo\n\nthree"});
  read("b.txt", "one\n");
  EXPECT_EQ(texts, std::vector<std::string>{"one\n"});
  read("c.jsonl", "{\"text\": \"a\\nb\"}\r\n\n{\"id\": 1, \"text\": \"\"}\n");
  EXPECT_EQ(texts, (std::vector<std::string>{"a\nb", ""}));
  EXPECT_PRED2(has_text, error_of([&] { read("d.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n"); }),
      ":2: no string \"text\"; --text-column names");
  EXPECT_PRED2(has_text, error_of([&] { read("g.jsonl", "{\"messages\": []}\n"); }), "chats need a run");
  read("f.csv", "id,text\n1,\"a, b\"\n2,c\n");
  EXPECT_EQ(texts, (std::vector<std::string>{"a, b", "c"}));
  EXPECT_PRED2(has_text, error_of([&] { read("e.jsonl", "[1]\n"); }), ":1: the line is no JSON object");
}

TEST(TextDocuments, AFolderHasThoseOfItsFilesByName) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "below");
  EXPECT_PRED2(has_text, error_of([&] { read_documents(folder.path(), "text", [](const std::string&) {}); }),
      "folder without texts");
  folder.write("b.txt", "two\n"), folder.write("picture.png", "\x89PNG"), folder.write(".hidden.txt", "none");
  folder.write("a.md", "one"), folder.write("below/c.jsonl", "{\"text\": \"three\"}\n{\"text\": \"four\"}\n");
  std::vector<std::string> texts;
  read_documents(folder.path(), "text", [&](std::string text) { texts.push_back(std::move(text)); });
  EXPECT_EQ(texts, (std::vector<std::string>{"one", "two\n", "three", "four"}));
  EXPECT_TRUE(has_documents(folder.path()));
}
}  // namespace
}  // namespace linnet
