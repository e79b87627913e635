// `linnet inspect`: a page and JSON about a text, of runs and model folders.
#include <gtest/gtest.h>
#include <numeric>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

const std::string kGolden = "tests/golden/";

Json inspected(Arguments arguments) {
  arguments.insert(arguments.begin(), "inspect");
  arguments.emplace_back("--json");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  return Json::parse(outcome.out);
}

double sum_of(const Json& shares) {
  double sum = 0;
  for (const Json& sequence : shares)
    for (const double share : sequence) sum += share;
  return sum;
}

void expect_complete(const Json& answer, double tolerance) {
  const double gain = answer["log_probability"].get<double>() - answer["baseline_log_probability"].get<double>();
  EXPECT_NEAR(sum_of(answer["attributions"]), gain, tolerance) << answer["answer"];
}

TEST(Inspect, ARunOfTranslationIsAskedForEachTokenOfItsTranslation) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run", {"eval_every=5"}).exit_code, 0);
  const Json json = inspected({folder / "run", "May 2, 2014", "--answer", "2014-05-02", "--threads", "1"});
  EXPECT_EQ(json["kind"], "translation");
  EXPECT_EQ(json["sequences"][0]["tokens"].size(), 12u);  // a character each, and the end
  ASSERT_EQ(json["answers"].size(), 11u);
  for (const Json& answer : json["answers"]) expect_complete(answer, 0.02);
  ASSERT_EQ(json["attention"].size(), 3u);
  const Json& cross = json["attention"][2];
  EXPECT_EQ(cross["queries"], "target");
  EXPECT_EQ(cross["keys"], "source");
  for (const Json& head : cross["weights"]) {
    ASSERT_EQ(head.size(), 11u);
    for (const Json& row : head) {
      const std::vector<double> weights = row;
      ASSERT_EQ(weights.size(), 12u);
      EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-5);
    }
  }
  // Without an answer it is the model's own translation.
  const Outcome own = run({"inspect", folder / "run", "May 2, 2014", "-o", folder / "page.html"});
  EXPECT_EQ(own.exit_code, 0) << own.error;
  EXPECT_TRUE(own.out.ends_with(folder / "page.html\n")) << own.out;
  EXPECT_NE(contents(folder / "page.html").find("\"kind\":\"translation\""), std::string::npos);
}

TEST(Inspect, ALanguageModelGoesOnAsItIsTold) {
  const std::string model = kGolden + "pretrained/gpt2";
  const Json own = inspected({model, "3 5 7"});
  ASSERT_EQ(own["answers"].size(), 1u);
  expect_complete(own["answers"][0], 1e-3);
  EXPECT_EQ(own["answers"][0]["answer"], own["answers"][0]["likeliest"][0]["answer"]);
  EXPECT_EQ(own["answers"][0]["likeliest"].size(), 5u);
  const Json told = inspected({model, "3 5 7", "--answer", "9 11"});
  ASSERT_EQ(told["answers"].size(), 2u);
  EXPECT_EQ(told["answers"][1]["answer"], "11");
  EXPECT_EQ(told["sequences"][0]["tokens"], (Json{"3", "5", "7", "9"}));
  EXPECT_EQ(told["answers"][0]["attributions"]["text"][3], 0.0);  // it comes later
}

TEST(Inspect, AClassifierIsAskedForAClass) {
  const TemporaryFolder folder;
  const std::string model = kGolden + "pretrained/bert_classifier";
  copy_folder(model, folder / "model");
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n##ly\n";
  folder.write("model/vocab.txt", vocabulary);
  const Json json = inspected({folder / "model", "good badly"});
  EXPECT_EQ(json["sequences"][0]["tokens"], (Json{"[CLS]", "good", "bad", "##ly", "[SEP]"}));
  expect_complete(json["answers"][0], 1e-3);
  const Outcome wrong = run({"inspect", folder / "model", "good", "--answer", "splendid"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.error.find("there is no class 'splendid'; the model has "), std::string::npos) << wrong.error;
}

TEST(Inspect, AMaskedModelMayAnswerWithATokenThatItsTokenizerLacks) {
  const TemporaryFolder folder;
  copy_folder(kGolden + "pretrained/bert_masked", folder / "model");
  folder.write("model/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
  const Json json = inspected({folder / "model", "a [MASK] c [MASK]"});
  ASSERT_EQ(json["answers"].size(), 2u);
  for (const Json& answer : json["answers"]) {
    expect_complete(answer, 1e-3);
    for (const Json& likely : answer["likeliest"]) EXPECT_NE(likely["answer"], "");
  }
}

TEST(Inspect, MistakesAreOneLine) {
  const TemporaryFolder folder;
  const std::string model = kGolden + "pretrained/gpt2";
  std::string many;
  for (int i = 0; i < 30; ++i) many += "7 ";
  EXPECT_NE(run({"inspect", model, many}).error.find("the text has 30 tokens; at most 24 can be looked at"),
      std::string::npos);
  const Outcome nothing = run({"inspect", folder / "none", "a"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_EQ(lines(nothing.error).size(), 1u) << nothing.error;
  EXPECT_EQ(run({"inspect", model, "1", "--out", folder / "no/such/page.html"}).exit_code, 2);
  // A text from standard input, with the line end of another system.
  const Outcome piped = run({"inspect", model, "-o", folder / "page.html"}, {.input = "3 5 7\r\n"});
  EXPECT_EQ(piped.exit_code, 0) << piped.error;
  const Outcome again = run({"inspect", model, "1", "-o", folder / "page.html"}, {.log = "info"});
  EXPECT_TRUE(again.error.ends_with("linnet: replaces " + (folder / "page.html") + "\n")) << again.error;
}
}  // namespace
}  // namespace linnet::testing
