// Tables of a tokenizer: the same tokens as from its JSON, and damage is an error of one line.
#include "data/text/pipeline/tokenizer_tables.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <random>
#include "base/files.h"
#include "base/json.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "error_of.h"

namespace linnet {
namespace {
const std::string kFolder = "tests/golden/tokenizers/";
using Ids = std::vector<TokenId>;

PipelineTokenizer from_json(const std::string& name) {
  const std::string path = kFolder + name + ".json";
  return PipelineTokenizer(read_tokenizer_json(read_file(path), path));
}

PipelineTokenizer from_tables(std::string_view bytes) {
  return PipelineTokenizer(read_tokenizer_tables(bytes, "a.linnet/tokenizer.tables"));
}

// What a program asks of a tokenizer, of one text.
struct Answers {
  Answers(const PipelineTokenizer& tokenizer, const std::string& text) {
    tokenizer.encode(text, ids);
    const Encoding whole = tokenizer.encode(text, EncodeOptions{});
    by_template = whole.ids, offsets = whole.offsets;
    decoded = tokenizer.decode(ids, false);
  }
  bool operator==(const Answers&) const = default;
  Ids ids, by_template;
  std::vector<TextRange> offsets;
  std::string decoded;
};

std::vector<std::string> texts() {
  auto texts = Json::parse(read_file(kFolder + "golden.json"), "golden.json", JsonLimits::tables())
                   .at("lines")
                   .get<std::vector<std::string>>();
  texts.push_back(read_file("README.md"));
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (i % 2 ? 256 : 128));
    texts.push_back(bytes);
  }
  return texts;
}

class TokenizerTablesOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerTablesOf,
    ::testing::Values("gpt2", "roberta", "llama3", "bert", "llama", "unigram", "steps", "words"),
    [](const auto& test) { return std::string(test.param); });

TEST_P(TokenizerTablesOf, GiveTheTokensOfTheJson) {
  const PipelineTokenizer json = from_json(GetParam());
  const std::string bytes = format_tokenizer_tables(json);
  EXPECT_EQ(bytes.size() % 16, 0u);
  const PipelineTokenizer tables = from_tables(bytes);
  EXPECT_EQ(tables.to_json(), json.to_json());
  EXPECT_EQ(tables.vocab_size(), json.vocab_size());
  for (TokenId id = 0; id < json.vocab_size(); ++id) {
    ASSERT_EQ(tables.piece(id), json.piece(id));
    ASSERT_EQ(tables.id_of(json.piece(id)), json.id_of(json.piece(id)));
    ASSERT_EQ(tables.is_special(id), json.is_special(id));
  }
  for (const std::string& text : texts()) ASSERT_EQ(Answers(tables, text), Answers(json, text)) << text;
  EXPECT_EQ(format_tokenizer_tables(tables), bytes);
}

TEST(TokenizerTables, MayLieAtAnyAddress) {
  const PipelineTokenizer json = from_json("gpt2");
  const std::string bytes = format_tokenizer_tables(json);
  for (const size_t shift : {1, 4, 8, 15}) {
    const std::string shifted = std::string(shift, 'x') + bytes;
    const PipelineTokenizer tables = from_tables(std::string_view(shifted).substr(shift));
    EXPECT_EQ(Answers(tables, "the way 日本語 naïve"), Answers(json, "the way 日本語 naïve"));
  }
}

TEST(TokenizerTables, NeedTheFileOnlyWhileTheyAreRead) {
  for (const char* name : {"gpt2", "bert", "unigram"}) {
    const PipelineTokenizer json = from_json(name);
    std::string bytes = format_tokenizer_tables(json);
    const PipelineTokenizer tables(read_tokenizer_tables(bytes, "t"));
    std::ranges::fill(bytes, '\0');  // as a file that is cut short reads
    EXPECT_EQ(Answers(tables, "the way"), Answers(json, "the way"));
  }
}

// Any bytes are refused or safe to use: sanitizers watch what the tokenizer then does.
TEST(TokenizerTables, DamageIsOneLineOrHarmless) {
  int refused = 0;
  const auto try_with = [&](const std::string& bytes) {
    const std::string message = error_of([&] {
      const PipelineTokenizer tokenizer = from_tables(bytes);
      const Answers answers(tokenizer, "the way <|endoftext|> 日本語\xFF naïve...");
      for (const TokenId id : answers.ids) EXPECT_LT(id, tokenizer.vocab_size());
    });
    if (message == "no error") return;
    EXPECT_PRED2(has_text, message, "tokenizer.tables");
    ++refused;
  };
  for (const char* name : {"gpt2", "bert", "unigram"}) {
    const std::string good = format_tokenizer_tables(from_json(name));
    for (size_t i = 0; i < good.size(); i += i < 400 ? 1 : 1 + good.size() / 400) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ 0xFF);
      try_with(bytes);
      try_with(good.substr(0, i));
    }
    // Numbers of every table at their extremes.
    std::mt19937 random(5);
    for (int i = 0; i < 300; ++i) {
      std::string bytes = good;
      const size_t at = random() % (good.size() / 8) * 8;
      for (size_t k = at; k < at + 8; ++k) bytes[k] = i % 2 ? '\xFF' : '\x7F';
      try_with(bytes);
    }
  }
  try_with("");
  try_with("linnet.tokenizer");
  EXPECT_GT(refused, 1000);
}

// Tables in which a search would find no end, or a merge no piece.
TEST(TokenizerTables, TablesWithoutAnEmptySlotAreRefused) {
  const std::vector<Vocabulary::Location> locations = {{0, 1}, {1, 1}};
  const std::vector<Vocabulary::Slot> full = {{0, 0}, {1, 0}}, three(3), outside = {{2, 0}, {-1, 0}};
  const std::string text = "ab";
  const auto problem = [&](const std::vector<Vocabulary::Slot>& slots, const std::vector<Vocabulary::Location>& where) {
    return error_of([&] { Vocabulary({text, where, slots}, "'t'"); });
  };
  EXPECT_PRED2(has_text, problem(full, locations), "taken");
  EXPECT_PRED2(has_text, problem(three, locations), "power of two");
  EXPECT_PRED2(has_text, problem(outside, locations), "no piece");
  EXPECT_PRED2(has_text, problem(std::vector<Vocabulary::Slot>(4), {{0, 1}, {1, 2}}), "outside");
  EXPECT_EQ(problem(std::vector<Vocabulary::Slot>(4), locations), "no error");
}
}  // namespace
}  // namespace linnet
