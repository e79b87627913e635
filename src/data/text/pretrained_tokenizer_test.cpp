#include "data/text/pretrained_tokenizer.h"
#include <gtest/gtest.h>
#include <malloc.h>
#include <cstring>
#include <fstream>
#include <thread>
#include "base/files.h"
#include "base/process.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/trained_tokenizers.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Ids = std::vector<TokenId>;

const std::string kFolder = "tests/golden/tokenizers/";

TEST(Pretrained, ByteLevelBpeKeepsAnyBytes) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "gpt2.json");
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (const std::string& text : {bytes, bytes + " text \xC3" + bytes, std::string(3000, 'x'), std::string(500, ' '),
           std::string("\xED\xA0\x80 \xF4\x90\x80\x80"), std::string()})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), false), text);
}

// Where a pre-tokenizer joins pieces, and another one follows, words of a long text are handed over in batches.
TEST(Pretrained, ALongTextHasTheTokensOfItsParts) {
  const testing::TemporaryFolder folder;
  const std::string line = "ab1 cd22  ef\n";
  for (const char* behavior : {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    folder.write("tokenizer.json", std::string(R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[
        {"type":"Split","pattern":{"Regex":"\\s"},"behavior":")") +
                                       behavior + R"("},
        {"type":"Split","pattern":{"Regex":"[0-9]"},"behavior":")" +
                                       behavior + R"("},
        {"type":"ByteLevel","add_prefix_space":false}]},
        "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3,"d":4,"e":5,"f":6,"1":7,"2":8,"\u0120":9,"\u010a":10,
        "\u0120c":11,"\u0120\u0120":12,"22":13},"merges":["a b","\u0120 c","\u0120 \u0120","2 2"]}})");
    const auto tokenizer = load_pretrained_tokenizer(folder.path());
    std::string text;
    Ids ids;
    const Ids of_line = tokenizer->encode(line);
    while (text.size() < (size_t{3} << 20)) text += line, ids.insert(ids.end(), of_line.begin(), of_line.end());
    EXPECT_EQ(tokenizer->encode(text), ids) << behavior;
  }
}

#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
TEST(Pretrained, ALongTextTakesLittleAndLeavesItsMemory) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "gpt2.json");
  std::string text;
  while (text.size() < (16 << 20)) text += "a of in ";
  tokenizer->encode(text.substr(0, 1000));
  const uint64_t before = own_bytes();
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const bool is_new = peak_resident_bytes() < resident_bytes() + (1 << 20);
  EXPECT_GT(tokenizer->encode(text).size(), size_t{1} << 20);
  if (is_new) EXPECT_LT(peak_resident_bytes(), resident_bytes() + (128 << 20));
  malloc_trim(0);
  EXPECT_LT(own_bytes(), before + (16 << 20));
}
#endif

TEST(Pretrained, OthersTakeAnyBytesToo) {
  for (const char* name : {"bert.json", "llama.json", "unigram.json", "steps.json", "t5.model", "spbpe.model"}) {
    const auto tokenizer = load_pretrained_tokenizer(kFolder + name);
    for (const std::string& text : {std::string("a\xFF\xC3 b"), std::string("\x80"), std::string(2000, '\xE2')}) {
      const Encoding encoding = tokenizer->encode(text, {});
      for (const TokenId id : encoding.ids) EXPECT_TRUE(id >= 0 && id < tokenizer->vocab_size());
      for (const TextRange& range : encoding.offsets) EXPECT_TRUE(range.begin <= range.end && range.end <= text.size());
    }
  }
}

TEST(Pretrained, SpecialTokensAreFoundAndSkipped) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "gpt2.json");
  const TokenId end = tokenizer->roles().end;
  EXPECT_EQ(tokenizer->piece(end), "<|endoftext|>");
  const Ids ids = tokenizer->encode("the<|endoftext|>word");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  EXPECT_EQ(tokenizer->decode(ids), "theword");
  EXPECT_EQ(tokenizer->decode(ids, false), "the<|endoftext|>word");
  EXPECT_EQ(tokenizer->decode(Ids{-1, 1 << 20}), "");
  EXPECT_EQ(tokenizer->special().pad, kNoToken);
}

TEST(Pretrained, TruncationCutsTheEndAsTokenizersDoes) {
  const auto bert = load_pretrained_tokenizer(kFolder + "bert.json");
  EncodeOptions options;
  options.max_length = 5;
  const Encoding cut = bert->encode("the of and to in a is", options);
  EXPECT_EQ(cut.ids.size(), 5u);
  EXPECT_EQ(cut.ids.front(), bert->id_of("[CLS]"));
  EXPECT_EQ(cut.ids.back(), bert->id_of("[SEP]"));
  EXPECT_EQ(cut.special, (std::vector<uint8_t>{1, 0, 0, 0, 1}));
  options.max_length = 8;  // room for 5: the shorter text has half
  const Encoding pair = bert->encode_pair("the of and to in", "the of and to in a is", options);
  EXPECT_EQ(pair.segments, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  options.truncation = Truncation::kOnlySecond;
  EXPECT_EQ(bert->encode_pair("a", "a a a a a a a", options).segments, (std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 1, 1}));
  options.max_length = 2;
  EXPECT_NE(error_of([&] { bert->encode_pair("a", "b", options); }), "no error");
}

TEST(Pretrained, AStreamIsTheTextPieceByPiece) {
  for (const char* name : {"gpt2.json", "bert.json", "llama.json", "t5.model"}) {
    const auto tokenizer = load_pretrained_tokenizer(kFolder + name);
    std::string text = "the way 日本語 naïve 👩‍🚀";
    for (int i = 0; i < 7; ++i) text += " " + text.substr(0, 40);
    const Ids ids = tokenizer->encode(text);
    TextStream stream(*tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    EXPECT_EQ(streamed, tokenizer->decode(ids)) << name;
  }
}

// Byte tokens that turn out to be no character change the text before them too, which is told already.
TEST(Pretrained, AStreamOfBrokenBytesIsStillText) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "llama.json");
  TextStream stream(*tokenizer, false);
  std::string text;
  for (const char* piece : {"<0x6D>", "<0x7D>", "<0x8D>", "\u2581the"}) {
    ASSERT_NE(tokenizer->id_of(piece), kNoToken) << piece;
    text += stream.push(tokenizer->id_of(piece));
  }
  EXPECT_EQ(text + stream.finish(), "m}\uFFFD the");
}

// A byte that belongs to no character must not break the characters after it.
TEST(Pretrained, AStreamHoldsHalfCharactersBackAfterABrokenByte) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "gpt2.json");
  TextStream stream(*tokenizer);
  std::vector<std::string> pieces;
  for (const char* byte : {"\xB2", "\xDC", "\x99", "\xF0", "\x9F", "\x98", "\x80"}) {
    ASSERT_NE(tokenizer->id_of(spelt(byte)), kNoToken);
    pieces.push_back(stream.push(tokenizer->id_of(spelt(byte))));
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"\xB2", "", "\xDC\x99", "", "", "", "\xF0\x9F\x98\x80"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(Pretrained, OnlyABeginThatCanGoOnIsHeldBack) {
  EXPECT_EQ(whole_size("a\xF0\x9F\x98"), 1U);
  EXPECT_EQ(whole_size("\xC3T@"), 3U);  // no character any more, whatever follows
  EXPECT_EQ(whole_size("a\xE2\x82\xAC"), 4U);
}

TEST(Pretrained, ThreadsShareOneTokenizer) {
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "llama3.json");
  const std::string text = "Tokenizer don't 12345 世界 foo_bar <s> ...";
  const Ids want = tokenizer->encode(text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(tokenizer->encode(text), want);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Pretrained, BadFilesAreErrorsOfOneLine) {
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/tokenizer.json";
  const auto load = [&](const std::string& text) {
    write_file_atomically(path, text);
    return error_of([&] { load_pretrained_tokenizer(folder.path()); });
  };
  EXPECT_PRED2(has_text, error_of([&] { load_pretrained_tokenizer(folder.path()); }), "holds no tokenizer");
  EXPECT_EQ(error_of([] { load_pretrained_tokenizer("/no/such"); }), "there is no tokenizer '/no/such'");
  EXPECT_PRED2(has_text, load("{\"model\":"), "is not JSON");
  EXPECT_EQ(load("{}"), "'" + path + "': has no \"model\"");
  EXPECT_PRED2(has_text, load("[1]"), "is not an object");
  EXPECT_PRED2(has_text, load(R"({"model":{"type":"Magic"}})"), "has the type 'Magic'");
  EXPECT_PRED2(has_text, load(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"), "merge 1");
  EXPECT_PRED2(has_text, load(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})"), "out of range");
  EXPECT_PRED2(has_text,
      load(R"({"model":{"type":"BPE","byte_fallback":true,"end_of_word_suffix":"</w>","vocab":{},"merges":[]}})"),
      "has byte_fallback beside a prefix or suffix");
  EXPECT_PRED2(has_text, load(R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}})"), "unk_id");
  EXPECT_PRED2(has_text, load(std::string(200, '[') + std::string(200, ']')), "deeper");
  EXPECT_PRED2(has_text,
      load(R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},"model":{}})"),
      path + "': pre_tokenizer.pattern: the regular expression '('");
}

// What tokenizers gives, whose expressions are Oniguruma's.
TEST(Pretrained, ExpressionsMeanWhatTheyMeanInTokenizers) {
  using Pieces = std::vector<std::string>;
  const testing::TemporaryFolder folder;
  const auto load = [&](const std::string& regex, const std::string& behavior, const Pieces& pieces) {
    std::string vocabulary = "\"?\":0";
    for (size_t i = 0; i < pieces.size(); ++i) vocabulary += "," + quote_json(pieces[i]) + ":" + std::to_string(i + 1);
    folder.write("tokenizer.json",
        R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":)" + quote_json(regex) + R"(},"behavior":")" + behavior +
            R"("},"model":{"type":"WordLevel","unk_token":"?","vocab":{)" + vocabulary + "}}}");
    return load_pretrained_tokenizer(folder.path());
  };
  const auto check = [&](const std::string& regex, const std::string& text, const Pieces& pieces,
                         const std::string& behavior = "Isolated") {
    const auto tokenizer = load(regex, behavior, pieces);
    Pieces found;
    for (const TokenId id : tokenizer->encode(text)) found.push_back(tokenizer->piece(id));
    EXPECT_EQ(found, pieces) << regex << " " << behavior;
  };
  // Combining marks are parts of words.
  check(R"(\w+)", "हिन्दी x", {"हिन्दी", " ", "x"});
  check(R"(\w+)", "½x²-y", {"½x²", "-", "y"});
  check(R"([^\w\s]+)", "a\u0301-b", {"a\u0301", "-", "b"});
  check(R"(\W+)", "a\u0301-b", {"a\u0301", "-", "b"});
  check(R"(\bb)", "a\u0301b-b", {"a\u0301b-", "b"});
  check("[[:alpha:]]+", "สวัสดี1", {"สวัสดี", "1"});
  check(R"(\h+)", "a-f0 g", {"a", "-", "f0", " g"});
  check(R"([\h_]+)", "a_g", {"a_", "g"});
  check(R"(\H+)", "a-f0 g", {"a", "-", "f0", " g"});
  check(R"([\H0]+)", "a-0f", {"a", "-0", "f"});
  check(R"(\B)", "a\u0301b", {"a", "\u0301", "b"});
  check("[]a]", "]b", {"]", "b"});
  // A script has only its own characters, not those that it shares with others.
  for (const char* regex : {R"(\p{Han}+)", R"([^\p{Han}]+)", R"(\p{^Han}+)", R"(\P{Han}+)"})
    check(regex, "日」b", {"日", "」b"});
  check("^b", "a\nb", {"a\n", "b"});
  // Matches without text cut, too.
  for (const char* behavior : {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
    check("(?=[A-Z])", "fooBar x² Cd", {"foo", "Bar x² ", "Cd"}, behavior);
  check(R"(\s*)", "ab c", {"a", "b", " c"}, "MergedWithNext");
  check(R"(\s*)", "ab c", {"a", "b ", "c"}, "MergedWithPrevious");
  check(R"(\s*)", "ab c", {"a", "b", " ", "c"}, "Contiguous");
  for (const char* regex : {"[a-z&&[^b]]", "[a[bc]]"})
    EXPECT_PRED2(has_text, error_of([&] { load(regex, "Isolated", {}); }), "has '&&' or a class within a class")
        << regex;
}

TEST(Pretrained, ReplacePutsItsContentWhereNoTextIsReplaced) {
  const testing::TemporaryFolder folder;
  const auto tokenize = [&](const char* pattern, const char* text) {
    folder.write("tokenizer.json",
        std::string(R"({"normalizer":{"type":"Replace","content":"_-","pattern":)") + pattern +
            R"(},"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"a_-1b_-2_-2":1,"_-ab":2,"ab":3}}})");
    return load_pretrained_tokenizer(folder.path())->encode(text, EncodeOptions{}).ids;
  };
  EXPECT_EQ(tokenize(R"x({"Regex":"(?=\\d)"})x", "a1b22"), (Ids{1}));
  EXPECT_EQ(tokenize(R"({"Regex":"^"})", "ab"), (Ids{2}));
  EXPECT_EQ(tokenize(R"({"String":""})", "ab"), (Ids{3}));
}

// As in tokenizers, for which a text whose first character is dropped does not begin at its first.
TEST(Pretrained, AFirstSpaceIsPutBeforeTextsThatKeepTheirFirstCharacter) {
  const testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
      R"({"normalizer":{"type":"Strip","strip_left":true,"strip_right":false},
          "pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"},
          "model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"\u2581ab":1,"ab":2}}})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{1}));
  EXPECT_EQ(tokenizer->encode(" ab"), (Ids{2}));
}

// As in tokenizers, which looks for all tokens before white space becomes a part of one.
TEST(Pretrained, TokensInTheWhiteSpaceThatAnotherTakesAlongAreFound) {
  const testing::TemporaryFolder folder;
  folder.write("tokenizer.json",
      R"({"added_tokens":[{"id":1,"content":"<e>","special":true,"rstrip":true,"normalized":false},
          {"id":2,"content":"\n","normalized":false},
          {"id":3,"content":"  ","normalized":false}],
          "model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"<e>":1,"\n":2,"  ":3,"x":4," x":5}}})");
  const auto tokenizer = load_pretrained_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("<e>\nx"), (Ids{1, 2, 4}));
  EXPECT_EQ(tokenizer->encode("<e>    x"), (Ids{1, 3, 3, 4}));
  EXPECT_EQ(tokenizer->encode("<e>   x"), (Ids{1, 3, 5}));
  EXPECT_EQ(tokenizer->encode("<e> x"), (Ids{1, 4}));
}

TEST(Pretrained, DamagedSentencePieceModelsAreRefused) {
  testing::TemporaryFolder folder;
  const std::string good = read_file(kFolder + "spbpe.model"), path = folder.path() + "/tokenizer.model";
  for (size_t i = 0; i < good.size(); i += 97) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
    for (const std::string& damaged : {bytes, good.substr(0, i)}) {
      write_file_atomically(path, damaged);
      error_of([&] { load_pretrained_tokenizer(path)->encode("any text …½ 世界"); });  // which may only be a user error
    }
  }
}

// What sentencepiece 0.2.3 says: the user's piece adds a tenth a byte less one to the sum, whose rounding then decides
// between two ways that are equally good.
TEST(Pretrained, AUsersPieceCountsInSentencePiecesSumsAsThere) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string{static_cast<char>(number * 8 + 2), static_cast<char>(bytes.size())} + bytes;
  };
  const auto piece = [&](const std::string& text, float score, char type) {
    std::string bytes = field(1, text) + "\x15" + std::string(4, '\0') + "\x18" + type;
    std::memcpy(bytes.data() + bytes.size() - 6, &score, 4);
    return field(1, bytes);
  };
  const std::string unigram("\x18\x01", 2), no_dummy_prefix("\x18\0", 2);
  testing::TemporaryFolder folder;
  write_file_atomically(folder.path() + "/tokenizer.model",
      piece("<unk>", 0, 2) + piece("the", 0, 4) + piece("\xE2\x96\x81", -2.94F, 1) + piece("-", -5.37F, 1) +
          piece("--", -6.71F, 1) + piece("a", -4.1F, 1) + field(2, unigram) + field(3, no_dummy_prefix));
  const auto tokenizer = load_pretrained_tokenizer(folder.path() + "/tokenizer.model");
  EXPECT_EQ(tokenizer->encode("the -----"), (Ids{1, 2, 3, 4, 4}));
  EXPECT_EQ(tokenizer->encode("a the"), (Ids{5, 2, 1}));
}

TEST(Pretrained, RunFoldersKeepThem) {
  testing::TemporaryFolder folder;
  const auto tokenizer = load_pretrained_tokenizer(kFolder + "gpt2.json");
  tokenizer->save(folder.path(), "source");
  const auto again = load_tokenizer(folder.path(), "source");
  Ids ids;
  again->encode("the way", ids);
  EXPECT_EQ(ids, tokenizer->encode("the way"));
}

TEST(Pretrained, Base64) {
  std::string bytes;
  for (const char* text : {"", "f", "fo", "foo", "foob"}) {
    EXPECT_TRUE(decode_base64(encode_base64(text), bytes));
    EXPECT_EQ(bytes, text);
  }
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  for (const char* bad : {"Z", "Zm8", "Zm9=", "Z===", "Zm 8"}) EXPECT_FALSE(decode_base64(bad, bytes)) << bad;
}
}  // namespace
}  // namespace linnet
