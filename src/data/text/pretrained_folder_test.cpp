#include <gtest/gtest.h>
#include "base/files.h"
#include "data/text/pretrained_tokenizer.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Ids = std::vector<TokenId>;

TEST(PretrainedFolder, MergesMayHaveWindowsLineEnds) {
  testing::TemporaryFolder folder;
  write_file_atomically(folder.path() + "/vocab.json", R"({"a":0,"b":1,"c":2,"ab":3,"abc":4})");
  write_file_atomically(folder.path() + "/merges.txt", "#version: 0.2\r\na b\r\nab c");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("abcab"), (Ids{4, 3}));
  write_file_atomically(folder.path() + "/merges.txt", "#version: 0.2\na b c\n");
  EXPECT_PRED2(has_text, error_of([&] { load_pretrained_tokenizer(folder.path()); }), "line 2");
}

// The class of a folder decides what vocab.json and merges.txt leave open.
TEST(PretrainedFolder, SettingsBesideVocabularyAndMerges) {
  const auto tokenizer_of = [](const std::string& vocabulary, const std::string& config, const std::string& model) {
    testing::TemporaryFolder folder;
    folder.write("vocab.json", vocabulary);
    folder.write("merges.txt", "#version: 0.2\n");
    folder.write("tokenizer_config.json", config);
    folder.write("config.json", model);
    return load_pretrained_tokenizer(folder.path());
  };
  const std::string roberta = R"({"<s>":0,"</s>":1,"a":2,"Ġ":3,"1":4,"Ã":5,"©":6})", none = "{}";
  const auto ids = [](const PretrainedTokenizer& tokenizer, const char* text) {
    return tokenizer.encode(text, EncodeOptions{}).ids;
  };
  EXPECT_EQ(ids(*tokenizer_of(roberta, none, none), "a"), (Ids{2}));
  EXPECT_EQ(ids(*tokenizer_of(roberta, none, R"({"model_type":"bart"})"), "a"), (Ids{0, 2, 1}));
  EXPECT_EQ(ids(*tokenizer_of(roberta, R"({"tokenizer_class":"RobertaTokenizer","add_prefix_space":true})", none), "a"),
      (Ids{0, 3, 2, 1}));
  EXPECT_EQ(ids(*tokenizer_of(roberta, R"({"add_prefix_space":true})", none), "a"), (Ids{3, 2}));
  // Qwen and GPT-NeoX compose characters first.
  for (const char* kind : {"qwen2", "gpt_neox"})
    EXPECT_EQ(
        ids(*tokenizer_of(roberta, none, std::string(R"({"model_type":")") + kind + "\"}"), "e\u0301"), (Ids{5, 6}));
  // Qwen cuts numbers into digits, GPT-2 does not.
  const std::string digits = R"({"1":0,"11":1})";
  testing::TemporaryFolder folder;
  folder.write("vocab.json", digits);
  folder.write("merges.txt", "1 1\n");
  EXPECT_EQ(ids(*load_pretrained_tokenizer(folder.path()), "111"), (Ids{1, 0}));
  folder.write("config.json", R"({"model_type":"qwen2"})");
  EXPECT_EQ(ids(*load_pretrained_tokenizer(folder.path()), "111"), (Ids{0, 0, 0}));
  // Tokens that only the settings name.
  folder.write("tokenizer_config.json",
      R"({"added_tokens_decoder":{"7":{"content":"<|im_end|>","special":true,"rstrip":true}}})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(ids(*tokenizer, "1<|im_end|> 1"), (Ids{0, 7, 0}));
  EXPECT_TRUE(tokenizer->is_special(7));
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{"7x":{"content":"a"}}})");
  EXPECT_PRED2(has_text, error_of([&] { load_pretrained_tokenizer(folder.path()); }), "has the id '7x'");
}

// MPNet has BERT's pieces and RoBERTa's special tokens.
TEST(PretrainedFolder, VocabularyOfMpnet) {
  testing::TemporaryFolder folder;
  folder.write("vocab.txt", "<s>\n<pad>\n</s>\n[UNK]\n<mask>\nfoo\n##s\n");
  folder.write("config.json", R"({"model_type":"mpnet"})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("Foos <mask>", EncodeOptions{}).ids, (Ids{0, 5, 6, 4, 2}));
  EXPECT_EQ(tokenizer->encode_pair("foo", "foo", EncodeOptions{}).ids, (Ids{0, 5, 2, 2, 5, 2}));
}

// What ByT5Tokenizer of transformers gives. Its special tokens take white space beside them along.
TEST(PretrainedFolder, BytesOfByt5) {
  testing::TemporaryFolder folder;
  EXPECT_FALSE(has_pretrained_tokenizer(folder.path()));
  folder.write("config.json", R"({"model_type": "t5", "tokenizer_class": "ByT5Tokenizer"})");
  ASSERT_TRUE(has_pretrained_tokenizer(folder.path()));
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("hé <extra_id_0> </s> x <extra_id_124><pad>", EncodeOptions{}).ids,
      (Ids{107, 198, 172, 35, 259, 1, 123, 35, 383, 0, 1}));
  EXPECT_EQ(tokenizer->encode_pair("a", "b", EncodeOptions{}).ids, (Ids{100, 1, 101, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{107, 198, 172, 35, 259, 1}), "hé ");
  EXPECT_EQ(tokenizer->vocab_size(), 384);
  EXPECT_EQ(tokenizer->roles().end, 1);
  tokenizer->save_pretrained(folder.path());
  EXPECT_EQ(load_pretrained_tokenizer(folder.path())->encode("hé", EncodeOptions{}).ids, (Ids{107, 198, 172, 1}));
}

// Accents go; marks of other kinds stay, in the order of their classes: U+1D165 (216) before U+302E (224).
TEST(PretrainedFolder, MarksThatBertKeepsAreInTheOrderOfDecomposition) {
  testing::TemporaryFolder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##\U0001D165\n##\u302E\n##b\n");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  const auto ids = [&](const char* text) { return tokenizer->encode(text, EncodeOptions{.add_special = false}).ids; };
  EXPECT_EQ(ids("A\u302E\u0301\U0001D165b"), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(ids("a\U0001D165\u302Eb a\u302E"), (Ids{4, 5, 6, 7, 4, 6}));
  EXPECT_EQ(ids("a\u302E\u0E31\U0001D165b"), (Ids{4, 6, 5, 7}));  // not across a mark of no class, which is dropped
}

// XLM-RoBERTa's files hold the ids of SentencePiece, and its models those of fairseq: one more, or four in CamemBERT.
TEST(PretrainedFolder, FairseqIdsOfASentencePieceModel) {
  const std::string model = "tests/golden/sentencepiece/unigram_own.model", text = "was he bad";
  const std::vector<TokenId> plain =
      load_pretrained_tokenizer(model)->encode(text, EncodeOptions{.add_special = false}).ids;
  ASSERT_FALSE(plain.empty());
  for (const TokenId offset : {1, 4}) {
    testing::TemporaryFolder folder;
    folder.write("sentencepiece.bpe.model", read_file(model));
    folder.write(
        "config.json", std::string(R"({"model_type": ")") + (offset == 1 ? "xlm-roberta" : "camembert") + "\"}");
    const auto tokenizer = load_pretrained_tokenizer(folder.path());
    const TokenRoles& roles = tokenizer->roles();
    std::vector<TokenId> expected{roles.begin};
    for (const TokenId id : plain) expected.push_back(id == 0 ? 3 : id + offset);
    expected.push_back(roles.end);
    EXPECT_EQ(tokenizer->encode(text, EncodeOptions{}).ids, expected);
    EXPECT_EQ(roles.begin, offset == 1 ? 0 : 5);
    EXPECT_EQ(roles.end, offset == 1 ? 2 : 6);
    EXPECT_EQ(roles.pad, 1);
    EXPECT_EQ(roles.unknown, 3);
    EXPECT_EQ(roles.mask, tokenizer->vocab_size() - 1);
  }
}

// NLLB's ids are fairseq's, with languages behind the model's pieces.
TEST(PretrainedFolder, IdsAndLanguagesOfNllb) {
  const std::string model = "tests/golden/sentencepiece/unigram_own.model", text = "was he bad";
  const auto original = load_pretrained_tokenizer(model);
  testing::TemporaryFolder folder;
  folder.write("sentencepiece.bpe.model", read_file(model));
  folder.write("config.json", R"({"model_type": "m2m_100"})");
  folder.write("tokenizer_config.json", R"({"additional_special_tokens": ["eng_Latn", "deu_Latn"]})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  std::vector<TokenId> expected;
  for (const TokenId id : original->encode(text, EncodeOptions{.add_special = false}).ids)
    expected.push_back(id == 0 ? 3 : id + 1);
  EXPECT_EQ(tokenizer->encode(text, EncodeOptions{.add_special = false}).ids, expected);
  const TokenId size = static_cast<TokenId>(original->vocab_size());
  EXPECT_EQ(tokenizer->id_of("deu_Latn"), size + 2);
  EXPECT_TRUE(tokenizer->is_special(size + 2));
  EXPECT_EQ(tokenizer->roles().mask, size + 3);
  // As a run keeps it, without config.json.
  testing::TemporaryFolder run;
  tokenizer->save_pretrained(run.path());
  const auto again = load_pretrained_tokenizer(run.path());
  EXPECT_EQ(again->encode(text, EncodeOptions{}).ids, tokenizer->encode(text, EncodeOptions{}).ids);
  EXPECT_EQ(again->id_of("deu_Latn"), size + 2);
  EXPECT_TRUE(again->is_special(size + 2));
}

// transformers 5 saves the tokenizer of M2M100 without them.
TEST(PretrainedFolder, M2m100HasItsLanguagesWhereAFolderDoesNotListThem) {
  testing::TemporaryFolder folder;
  folder.write("sentencepiece.bpe.model", read_file("tests/golden/sentencepiece/unigram_own.model"));
  folder.write("vocab.json", R"({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3})");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "M2M100Tokenizer"})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->id_of("__af__"), 4);
  EXPECT_EQ(tokenizer->id_of("__zu__"), 103);
  EXPECT_TRUE(tokenizer->is_special(103));
  EXPECT_EQ(tokenizer->encode("foo", EncodeOptions{}).ids.back(), 2);
  testing::TemporaryFolder run;
  tokenizer->save_pretrained(run.path());
  EXPECT_EQ(load_pretrained_tokenizer(run.path())->id_of("__zu__"), 103);
  // transformers numbers them from the end of the file on, and would do so twice.
  EXPECT_EQ(read_file(run / "vocab.json"), read_file(folder / "vocab.json"));
}
}  // namespace
}  // namespace linnet
