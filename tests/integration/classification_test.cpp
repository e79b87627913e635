// A classifier through the command line, from a tiny BERT folder and texts that are easily told apart.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "integration/program.h"

namespace linnet::testing {
namespace {

const std::string kGolden = LINNET_GOLDEN;

// One word says which label it is. Lines end as Windows ends them.
std::string labelled(int count, int shift) {
  const char *animals[] = {"dog", "cat"}, *others[] = {"tax", "law"},
             *fillers[] = {"the", "runs", "sleeps", "a 7", "b"};
  std::string text = "sentence\tlabel\r\n";
  for (int i = 0; i < count; ++i) {
    const bool animal = (i + shift) % 2 == 0;
    text += std::string(fillers[i % 5]) + " " + (animal ? animals : others)[i / 2 % 2] + " " +
            fillers[(i + shift) % 4] + (i % 3 == 0 ? " the b" : "") + "\t" + (animal ? "animal" : "state") + "\r\n";
  }
  return text;
}

class Classification : public ::testing::Test {
 protected:
  Classification() {
    folder_.write("train.tsv", labelled(120, 0));
    folder_.write("dev.tsv", labelled(40, 1));
    folder_.write("test.tsv", labelled(30, 3));
  }
  Outcome train_classifier(const std::string& run_folder, const Arguments& settings = {},
                           const Arguments& more = {}) const {
    Arguments arguments{"train", "sst2", "--run", folder_ / run_folder};
    const Arguments small{"model.from=" + kGolden + "/bert_model",
                          "data.dir=" + folder_.path(),
                          "context=16",
                          "batch_size=8",
                          "max_steps=60",
                          "warmup_steps=5",
                          "learning_rate=3e-3",
                          "eval_every=20",
                          "save_every=10",
                          "schedule=constant"};
    for (const Arguments* list : {&small, &settings})
      for (const std::string& setting : *list) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(Classification, LearnsToTellTextsApartAndIsExported) {
  const Outcome trained = train_classifier("a");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome evaluated = run({"eval", folder_ / "a", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  const auto json = nlohmann::json::parse(evaluated.out);
  EXPECT_EQ(json["texts"], 30);
  EXPECT_GT(json["accuracy"], 0.95);
  EXPECT_GT(json["f1"], 0.95);
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  const auto config = nlohmann::json::parse(contents(folder_ / "out/config.json"));
  EXPECT_EQ(config["architectures"][0], "BertForSequenceClassification");
  EXPECT_EQ(config["id2label"]["1"], "state");
  EXPECT_TRUE(exists(folder_ / "out/tokenizer.json"));
}

TEST_F(Classification, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train_classifier("straight").exit_code, 0);
  ASSERT_EQ(train_classifier("resumed", {"max_steps=35"}).exit_code, 0);
  ASSERT_EQ(train_classifier("resumed", {}, {"--resume"}).exit_code, 0);
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  EXPECT_EQ(losses("resumed"), losses("straight"));
}

TEST_F(Classification, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& settings, const std::string& part) {
    const Outcome outcome = train_classifier("refused", settings);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  folder_.write("odd.tsv", "the dog\tanimal\r\nthe law\tplant\r\n");
  refused({"valid_tsv=odd.tsv"}, "the label 'plant' is none of the 2 the model was trained on");
  folder_.write("one.tsv", "the dog\tanimal\r\nthe cat\tanimal\r\n");
  refused({"train_tsv=one.tsv"}, "has one label only");
  folder_.write("tabs.tsv", "the dog\tanimal\r\nno label here\r\n");
  refused({"train_tsv=tabs.tsv"}, "tabs.tsv:2");
  refused({"model.from="}, "starts from a BERT folder");
}

}  // namespace
}  // namespace linnet::testing
