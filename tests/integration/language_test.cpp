// A language model through the command line: it learns a text, goes on from where it stopped, and is scored.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmath>
#include <fstream>
#include <thread>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
// Sentences of few words, so that a small model learns something in seconds.
std::string some_text() {
  const char* words[] = {"the", "cat", "sat", "on", "a", "mat", "and", "slept"};
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    random = random * 1664525 + 1013904223;
    text += words[random >> 29];
    text += i % 9 == 8 ? "\r\n" : " ";
  }
  return text;
}

class Language : public ::testing::Test {
 protected:
  Language() { folder_.write("input.txt", some_text()); }
  Outcome train_language(const std::string& run_folder, const Arguments& more = {}) const {
    Arguments arguments{"train", "shakespeare", "--run", folder_ / run_folder};
    add_settings(arguments, {"d_model=32", "d_ff=88", "num_heads=2", "num_layers=1", "max_seq_len=32", "batch_size=8",
                                "max_steps=60", "warmup_steps=5", "learning_rate=0.01", "eval_every=20",
                                "save_every=20", "sample_length=0", "precision=fp32", "data.dir=" + folder_.path()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(Language, LearnsAndScoresEveryCharacterOnce) {
  const Outcome trained = train_language("a");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome evaluated = run({"eval", folder_ / "a", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  const auto json = ParsedJson::parse(evaluated.out);
  std::string text = some_text();
  std::erase(text, '\r');
  EXPECT_EQ(json["tokens"], text.size() - static_cast<size_t>(static_cast<double>(text.size()) * 0.9));
  EXPECT_LT(json["loss"], 1.2);  // it starts from log(22) = 3.1
  EXPECT_NEAR(json["perplexity"], std::exp(json["loss"].get<double>()), 1e-9);
  const double per_word = json["loss"].get<double>() * json["tokens"].get<double>() / json["words"].get<double>();
  EXPECT_NEAR(json["word_perplexity"], std::exp(per_word), 1e-6 * std::exp(per_word));
  folder_.write("other.txt", "the cat sat\n");
  folder_.write("list.JSON", R"([{"text": "the cat"}, {"text": "sat"}])");
  const Outcome list = run({"eval", folder_ / "a", "--data", folder_ / "list.JSON", "--json"});
  ASSERT_EQ(list.exit_code, 0) << list.error;
  EXPECT_EQ(ParsedJson::parse(list.out)["tokens"], 12);  // and the end of each
  const Outcome other = run({"eval", folder_ / "a", "--data", folder_ / "other.txt", "--json"});
  ASSERT_EQ(other.exit_code, 0) << other.error;
  EXPECT_EQ(ParsedJson::parse(other.out)["tokens"], 11);
  EXPECT_EQ(ParsedJson::parse(other.out)["words"], 3);
}

TEST_F(Language, ReadingThatTakesLongSaysSo) {
  ASSERT_EQ(train_language("a").exit_code, 0);
  const std::string pipe = folder_ / "pipe.txt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream text(pipe);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    text << "the cat sat\n";
  });
  const Outcome evaluated = run({"eval", folder_ / "a", "--data", pipe}, {.log = "info"});
  const int end = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // of a program that did not open it
  writer.join();
  ::close(end);
  EXPECT_EQ(evaluated.exit_code, 0);
  EXPECT_NE(evaluated.error.find("linnet: reading '" + pipe + "' ...\n"), std::string::npos) << evaluated.error;
}

TEST_F(Language, ScoresTextsAsTheyAreEvaluated) {
  ASSERT_EQ(train_language("a", {"--steps", "10"}).exit_code, 0);
  // Texts begin after a line end, so that one in front makes eval score the same characters.
  const std::string likely = "the cat sat on the mat the cat sat on the mat", odd = "tac eht";
  folder_.write("likely.txt", "\n" + likely);
  const auto json = ParsedJson::parse(run({"eval", folder_ / "a", "--data", folder_ / "likely.txt", "--json"}).out);
  const Outcome scored = run({"score", folder_ / "a", "--json"}, {.input = likely + "\r\n" + odd + "\n"});
  ASSERT_EQ(scored.exit_code, 0) << scored.error;
  const auto first = ParsedJson::parse(lines(scored.out)[0]), second = ParsedJson::parse(lines(scored.out)[1]);
  EXPECT_EQ(first["text"], likely);
  EXPECT_EQ(first["tokens"], json["tokens"]);
  EXPECT_NEAR(first["log_probability"].get<double>(), -json["loss"].get<double>() * json["tokens"].get<double>(), 1e-3);
  EXPECT_EQ(second["tokens"], odd.size());
  EXPECT_LT(second["log_probability"].get<double>() / 7, first["log_probability"].get<double>() / 45);
  folder_.write("texts.txt", odd + "\n");
  const Outcome plain = run({"score", folder_ / "a", folder_ / "texts.txt"});
  EXPECT_TRUE(plain.out.ends_with("\t7\t" + odd + "\n")) << plain.out;
  EXPECT_NE(run({"predict", folder_ / "a"}).error.find("linnet score"), std::string::npos);
}

TEST_F(Language, LearnsAByteLevelVocabularyThatIsExportedWithTheModel) {
  const Arguments bytes{"--set", "tokenizer=byte_bpe", "--set", "vocab_size=270"};
  ASSERT_EQ(train_language("a", bytes).exit_code, 0);
  const Outcome again = train_language(
      "a", {"--set", "tokenizer=byte_bpe", "--set", "vocab_size=270", "--set", "max_steps=70", "--resume"});
  ASSERT_EQ(again.exit_code, 0) << again.error;  // the tokenizer of the run, not a new one
  const Outcome evaluated = run({"eval", folder_ / "a", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "model"}).exit_code, 0);
  const auto encode = [&](const std::string& folder) {
    const Outcome outcome = run({"tokenizer", "encode", folder}, {.input = "the cat slept \xF0\x9F\x91\x8D\n"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  };
  const std::string ids = encode(folder_ / "model");
  EXPECT_EQ(ids, encode(folder_ / "a/tokenizer"));
  EXPECT_EQ(run({"tokenizer", "decode", folder_ / "model"}, {.input = ids}).out, "the cat slept \xF0\x9F\x91\x8D\n");
  const auto config = ParsedJson::parse(contents(folder_ / "model/config.json"));
  EXPECT_EQ(config["vocab_size"], 270);
  EXPECT_EQ(config["eos_token_id"], 269);
  const Outcome small = train_language("b", {"--set", "tokenizer=byte_bpe", "--set", "vocab_size=200"});
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_NE(small.error.find("vocab_size = 200 tokens"), std::string::npos) << small.error;
}

TEST_F(Language, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train_language("straight").exit_code, 0);
  Arguments constant{"--set", "schedule=constant", "--set", "sample_length=20"};
  ASSERT_EQ(train_language("constant", constant).exit_code, 0);
  constant.insert(constant.end(), {"--set", "max_steps=40"});
  ASSERT_EQ(train_language("resumed", constant).exit_code, 0);
  constant.back() = "max_steps=60", constant.push_back("--resume");
  ASSERT_EQ(train_language("resumed", constant).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "resumed/model.safetensors"), contents(folder_ / "constant/model.safetensors"));
  EXPECT_EQ(contents(folder_ / "resumed/samples.jsonl"), contents(folder_ / "constant/samples.jsonl"));
  EXPECT_NE(contents(folder_ / "resumed/model.safetensors"), contents(folder_ / "straight/model.safetensors"));
}

TEST_F(Language, WritesOnFromAPromptWithAndWithoutTheCache) {
  ASSERT_EQ(train_language("a").exit_code, 0);
  const auto generate = [&](const Arguments& more, const std::string& input = "") {
    Arguments arguments{"generate", folder_ / "a", "--max-tokens", "60"};  // past the model's 32 positions
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments, {.input = input});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  };
  const std::string greedy = generate({"--prompt", "the cat ", "--temperature", "0"});
  EXPECT_GT(greedy.size(), 55u);
  EXPECT_EQ(generate({"--prompt", "the cat ", "--temperature", "0", "--no-cache"}), greedy);
  EXPECT_EQ(generate({"--temperature", "0"}, "the cat \r\n"), greedy);
  const std::string sampled = generate({"--prompt", "the cat ", "--seed", "3"});
  EXPECT_EQ(generate({"--prompt", "the cat ", "--seed", "3"}), sampled);
  EXPECT_NE(generate({"--prompt", "the cat ", "--seed", "4"}), sampled);
  EXPECT_EQ(generate({"--prompt", "the cat ", "--seed", "3", "--samples", "2"}).substr(0, sampled.size()), sampled);
  EXPECT_FALSE(generate({"--prompt", "the cat ", "--beam", "3"}).empty());
  const Outcome refused = run({"generate", folder_ / "a", "--prompt", "a", "--top-p", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(run({"generate", folder_ / "missing", "--prompt", "a"}).exit_code, 2);
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  EXPECT_TRUE(exists(folder_ / "out/model.safetensors"));
}

TEST_F(Language, PacksDocumentsAndMapsTokenFiles) {
  std::string json, numbers;
  for (const std::string& line : lines(some_text()))
    json += ParsedJson{{"text", line.substr(0, line.find('\r'))}}.dump() + "\n";
  folder_.write("input.jsonl", json);
  const Outcome packed = train_language("packed", {"--set", "data.text=input.jsonl"});
  ASSERT_EQ(packed.exit_code, 0) << packed.error;
  const Outcome evaluated = run({"eval", folder_ / "packed", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  EXPECT_LT(ParsedJson::parse(evaluated.out)["loss"], 1.5);
  for (int i = 0; i < 5000; ++i) numbers += {static_cast<char>(i % 7), '\0'};
  folder_.write("input.bin", numbers);
  const Outcome mapped = train_language("mapped", {"--set", "data.text=input.bin", "--set", "vocab_size=7"});
  ASSERT_EQ(mapped.exit_code, 0) << mapped.error;
  const Outcome scored = run({"eval", folder_ / "mapped", "--json"});
  ASSERT_EQ(scored.exit_code, 0) << scored.error;
  EXPECT_EQ(ParsedJson::parse(scored.out)["tokens"], 500);
  EXPECT_LT(ParsedJson::parse(scored.out)["loss"], 0.2);
}

TEST_F(Language, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& more, const std::string& part) {
    const Outcome outcome = train_language("refused", more);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  refused({"--set", "data.text=missing.txt"}, "missing.txt");
  folder_.write("short.txt", "too short\n");
  refused({"--set", "data.text=short.txt"}, "one chunk takes 33");
  folder_.write("empty.txt", "");
  refused({"--set", "data.text=empty.txt"}, "holds no text");
  folder_.write("latin.txt", "caf\xE9\n");
  refused({"--set", "data.text=latin.txt"}, "latin.txt:1: invalid UTF-8");
  refused({"--set", "context=64"}, "context = 64 is above max_seq_len = 32");
  refused({"--set", "from=missing"}, "missing");
}
}  // namespace
}  // namespace linnet::testing
