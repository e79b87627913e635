// Masked language models through the command line: from a text, and from a model folder.
#include <gtest/gtest.h>
#include <cmath>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
constexpr const char* kWords[] = {"the", "cat", "sat", "down", "a", "mat", "can", "sleep"};

// Documents of two kinds of four words: the kind is known by the other words, the word by its place.
std::string some_documents(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (int k = 0; k < 8 + i % 40; ++k) line += std::string(kWords[i % 7 % 2 * 4 + k % 4]) + " ";
    text += ParsedJson{{"text", line}}.dump() + "\r\n";
  }
  return text;
}

std::string vocabulary() {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (const char* word : kWords) text += std::string(word) + "\n";
  return text;
}

class Masked : public ::testing::Test {
 protected:
  Masked() {
    folder_.write("input.jsonl", some_documents(300));
    folder_.write("vocab.txt", vocabulary());
  }
  Outcome train_masked(const std::string& run_folder, const Arguments& settings, const Arguments& more = {}) const {
    Arguments arguments{"train", "bert-base", "--run", folder_ / run_folder};
    Arguments small{"batch_size=8", "max_steps=120", "warmup_steps=10", "learning_rate=1e-2", "eval_every=40",
        "save_every=40", "precision=fp32", "text=input.jsonl", "data.dir=" + folder_.path()};
    if (!starts_from_folder(settings))
      small.insert(
          small.end(), {"d_model=32", "d_ff=64", "num_heads=2", "num_layers=1", "dropout=0.0", "max_seq_len=64"});
    small.insert(small.end(), settings.begin(), settings.end());
    add_settings(arguments, small);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string tokenizer() const { return "tokenizer_dir=" + (folder_ / "vocab.txt"); }
  ParsedJson evaluate(const Arguments& more) const {
    Arguments arguments{"eval", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  }
  TemporaryFolder folder_;
};

TEST_F(Masked, LearnsFromTextAndGoesOnFromItsModelFolder) {
  const Outcome trained = train_masked("a", {tokenizer()});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const auto json = evaluate({folder_ / "a"});
  EXPECT_LT(json["loss"], 0.5);  // the words' entropy is log(8) = 2.1
  EXPECT_GT(json["masked_accuracy"], 0.9);
  EXPECT_NEAR(json["perplexity"], std::exp(json["loss"].get<double>()), 1e-9);
  EXPECT_GT(json["tokens"], 400);
  EXPECT_NEAR(json["masked"].get<double>() / json["tokens"].get<double>(), 0.15, 0.01);
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "model"}).exit_code, 0);
  const auto same = evaluate({folder_ / "model", "--data", folder_.write("valid.jsonl", some_documents(50))});
  EXPECT_LT(same["loss"], 0.5);
  const Surroundings sentences{.input = "the cat sat\na mat\n"};
  const Outcome of_run = run({"embed", folder_ / "a"}, sentences);
  EXPECT_EQ(of_run.exit_code, 0) << of_run.error;
  EXPECT_EQ(lines(of_run.out).size(), 2u);
  EXPECT_EQ(of_run.out, run({"embed", folder_ / "model"}, sentences).out);
  const Outcome more = train_masked("b", {"model.from=" + (folder_ / "model"), "max_steps=1", "learning_rate=1e-6"});
  ASSERT_EQ(more.exit_code, 0) << more.error;
  EXPECT_NEAR(evaluate({folder_ / "b"})["loss"], json["loss"].get<double>(), 0.02);
}

TEST_F(Masked, AResumedRunIsTheSameBitForBit) {
  const Arguments base{tokenizer(), "schedule=constant", "dropout=0.1"};
  const auto with = [&](const char* setting) {
    Arguments all = base;
    all.emplace_back(setting);
    return all;
  };
  ASSERT_EQ(train_masked("straight", with("max_steps=90")).exit_code, 0);
  ASSERT_EQ(train_masked("resumed", with("max_steps=55")).exit_code, 0);
  const Outcome resumed = train_masked("resumed", with("max_steps=90"), {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  EXPECT_EQ(losses("resumed"), losses("straight"));
  EXPECT_EQ(contents(folder_ / "resumed/model.safetensors"), contents(folder_ / "straight/model.safetensors"));
}

TEST_F(Masked, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& settings, const std::string& part) {
    expect_user_error(train_masked("refused", settings), part);
  };
  refused({}, "needs a tokenizer with a mask token");
  refused({tokenizer(), "text=missing.jsonl"}, "missing.jsonl");
  refused({tokenizer(), "context=99"}, "context = 99 is above max_seq_len = 64");
  refused({"tokenizer_dir=" + folder_.write("plain.txt", "[UNK]\n[CLS]\n[SEP]\nthe\n")}, "no mask token");
  refused({tokenizer(), "metric=\"bleu\""}, "has no metric \"bleu\"");
}
}  // namespace
}  // namespace linnet::testing
