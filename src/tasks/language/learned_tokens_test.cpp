// Which tokens of a conversation are learned.
#include <gtest/gtest.h>
#include <cstdio>
#include "base/protobuf.h"
#include "tasks/language/tuned_language_task.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
constexpr int kFirstByte = 9;

std::string model_with_bytes() {
  ProtoWriter model, trainer, normalizer;
  const auto add = [&](const std::string& text, int type) {
    ProtoWriter piece;
    piece.text(1, text);
    piece.real(2, 0);
    piece.integer(3, type);
    model.message(1, piece);
  };
  add("<unk>", 2);
  for (const char* control : {"<s>", "</s>", "<user>", "<bot>"}) add(control, 3);
  for (const char* normal : {"\u2581", "a", "b", "\u2581b"}) add(normal, 1);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    add(text, 6);
  }
  trainer.integer(3, 2);  // BPE
  trainer.integer(35, 1);
  normalizer.text(1, "identity");
  normalizer.integer(3, 1);
  normalizer.integer(4, 0);
  normalizer.integer(5, 1);
  model.message(2, trainer), model.message(3, normalizer);
  return model.bytes();
}

TEST(LearnedTokens, OfSentencePieceAreControlTokensAndAllBytes) {
  const testing::TemporaryFolder folder;
  folder.write("tokenizer.model", model_with_bytes());
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  ASSERT_EQ(tokenizer->kind(), "sentencepiece");
  const std::string prompt = "<user>a<bot>", text = prompt + "\u00e9 b</s>";
  const TargetedTokens found = learned_tokens({text, {{prompt.size(), text.size()}}}, *tokenizer);
  constexpr int kC3 = kFirstByte + 0xC3, kA9 = kFirstByte + 0xA9;  // the letter's bytes
  EXPECT_EQ(found.tokens, (std::vector<int32_t>{3, 5, 6, 4, 5, kC3, kA9, 8, 2}));
  EXPECT_EQ(found.targets, (std::vector<int32_t>{-1, -1, -1, 5, kC3, kA9, 8, 2, -1}));
}

// As in Llama 3, whose tokens for spaces alone, such as an indentation, have no range of their own.
TEST(LearnedTokens, AreSpacesOfTheAnswerWhereOffsetsAreTrimmed) {
  const testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
      R"({"model": {"type": "BPE", "merges": [["\u0120", "\u0120"], ["a", "a"], ["b", "b"], ["\u0120", "aa"]],
      "vocab": {"a": 0, "b": 1, "\u0120": 2, "\u0120\u0120": 3, "<e>": 4, "\u0120aa": 5, "aa": 6, "bb": 7}},
      "added_tokens": [{"id": 4, "content": "<e>", "special": true}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
      "post_processor": {"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"}})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  const std::string prompt = "a ", text = prompt + "b  a  <e>";
  const TargetedTokens found = learned_tokens({text, {{prompt.size(), text.size()}}}, *tokenizer);
  EXPECT_EQ(found.tokens, (std::vector<int32_t>{0, 2, 1, 3, 0, 3, 4}));
  EXPECT_EQ(found.targets, (std::vector<int32_t>{-1, 1, 3, 0, 3, 4, -1}));
  // A word whose token begins with the prompt's last space is learned.
  EXPECT_EQ(learned_tokens({"bb aa<e>", {{3, 8}}}, *tokenizer).targets, (std::vector<int32_t>{5, 4, -1}));
}
}  // namespace
}  // namespace linnet
