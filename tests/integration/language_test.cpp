// A language model through the command line: it learns a text, goes on from where it stopped, and is scored.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "integration/program.h"

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
    Arguments arguments{"train", "shakespeare"};
    for (const char* setting : {"d_model=32", "d_ff=88", "num_heads=2", "num_layers=1", "max_seq_len=32",
                                "batch_size=8", "max_steps=60", "warmup_steps=5", "learning_rate=0.01", "eval_every=20",
                                "save_every=20", "sample_length=0", "precision=fp32"}) {
      arguments.emplace_back("--set");
      arguments.emplace_back(setting);
    }
    for (const std::string& argument :
         {std::string("--set"), "data.dir=" + folder_.path(), std::string("--run"), folder_ / run_folder})
      arguments.push_back(argument);
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
  const auto json = nlohmann::json::parse(evaluated.out);
  std::string text = some_text();
  std::erase(text, '\r');
  EXPECT_EQ(json["tokens"], text.size() - static_cast<size_t>(static_cast<double>(text.size()) * 0.9));
  EXPECT_LT(json["loss"], 1.2);  // it starts from log(22) = 3.1
  EXPECT_NEAR(json["perplexity"], std::exp(json["loss"].get<double>()), 1e-9);
  const double per_word = json["loss"].get<double>() * json["tokens"].get<double>() / json["words"].get<double>();
  EXPECT_NEAR(json["word_perplexity"], std::exp(per_word), 1e-6 * std::exp(per_word));
  folder_.write("other.txt", "the cat sat\n");
  const Outcome other = run({"eval", folder_ / "a", "--data", folder_ / "other.txt", "--json"});
  ASSERT_EQ(other.exit_code, 0) << other.error;
  EXPECT_EQ(nlohmann::json::parse(other.out)["tokens"], 11);
  EXPECT_EQ(nlohmann::json::parse(other.out)["words"], 3);
}

TEST_F(Language, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train_language("straight").exit_code, 0);
  ASSERT_EQ(train_language("resumed", {"--set", "max_steps=40", "--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(train_language("constant", {"--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(train_language("resumed", {"--set", "schedule=constant", "--resume"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "resumed/model.safetensors"), contents(folder_ / "constant/model.safetensors"));
  EXPECT_NE(contents(folder_ / "resumed/model.safetensors"), contents(folder_ / "straight/model.safetensors"));
}

TEST_F(Language, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& more, const std::string& part) {
    const Outcome outcome = train_language("refused", more);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  refused({"--set", "data.text=missing.txt"}, "missing.txt");
  folder_.write("short.txt", "too short\n");
  refused({"--set", "data.text=short.txt"}, "one window takes 33");
  folder_.write("empty.txt", "");
  refused({"--set", "data.text=empty.txt"}, "holds no text");
  folder_.write("latin.txt", "caf\xE9\n");
  refused({"--set", "data.text=latin.txt"}, "latin.txt:1: invalid UTF-8");
  refused({"--set", "context=64"}, "context = 64 is above max_seq_len = 32");
  refused({"--set", "from=missing"}, "missing");
}

}  // namespace
}  // namespace linnet::testing
