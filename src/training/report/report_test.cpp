#include <gtest/gtest.h>
#include <algorithm>
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/layers.h"
#include "parsed_json.h"
#include "training/report/report_page.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
// The data within a page.
ParsedJson data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return ParsedJson::parse(page.substr(from, page.find("</script>", from) - from));
}

std::string metrics(int64_t steps) {
  std::string text;
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = step == steps / 3 ? 77.5 : 1.0 / static_cast<double>(step);
    text += R"({"step":)" + std::to_string(step) + R"(,"split":"train","loss":)" + std::to_string(loss) + "}\n";
  }
  return text + R"({"step":5,"split":"valid","loss":0.25,"bleu":11.5})" + "\n" + R"({"step":6,"spl)";
}

TEST(ReportPage, HoldsTheCurvesAndNothingThatEndsItsScript) {
  ReportRun run{.name = "</script><b>", .config = {{"train.seed", "1"}}, .metrics = metrics(10)};
  run.samples = R"({"step":5,"split":"valid","samples":["a </script> & b"]})"
                "\n";
  const std::string page = report_page({.title = "<mine>", .subtitle = "", .command = "report"}, std::span(&run, 1));
  EXPECT_NE(page.find("<title>&lt;mine&gt;</title>"), page.npos);
  const auto data = data_of(page)["runs"][0];
  EXPECT_EQ(data["name"], "</script><b>");
  EXPECT_EQ(data["train"]["step"].size(), 10u);
  EXPECT_EQ(data["train"]["loss"][1], 0.5);
  EXPECT_EQ(data["valid"]["bleu"][0], 11.5);
  EXPECT_EQ(data["samples"][0]["texts"][0], "a </script> & b");
  EXPECT_EQ(data["config"]["train.seed"], "1");
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg"));  // a name, not an address
  EXPECT_EQ(page.find("https://"), page.npos);
}

TEST(ReportPage, LongRunsAreThinnedAndKeepTheirSpikes) {
  const std::vector<ReportRun> runs(6, ReportRun{.name = "long", .metrics = metrics(30'000)});
  const std::string page = report_page({.title = "t", .subtitle = "", .command = "report"}, runs);
  EXPECT_LT(page.size(), 2'000'000u);
  const auto losses = data_of(page)["runs"][5]["train"]["loss"].get<std::vector<double>>();
  EXPECT_LE(losses.size(), 1500u);
  EXPECT_TRUE(std::ranges::find(losses, 77.5) != losses.end());
}

// Also of earlier versions, whose files have a square of any number of classes: 600 MB of values here if it were read.
TEST(ReportPage, ManyClassesHaveAPageOfTheirFirst) {
  constexpr size_t kClasses = 3000;
  std::string text = R"({"classes":{)", row = "[0", square;
  for (size_t i = 0; i < kClasses; ++i)
    text += (i > 0 ? ",\"c" : "\"c") + std::to_string(i) + R"(":{"precision":0.5,"recall":1,"f1":0.25,"support":1})";
  for (size_t i = 1; i < kClasses; ++i) row += ",0";
  for (size_t i = 0; i < kClasses; ++i) square += (i > 0 ? "," : "") + row + "]";
  text += R"(},"macro avg":{"precision":0.5,"recall":1,"f1":0.25,"support":3000})";
  for (const std::string& pairs :
      {",\"confusion\":[" + square + "]", std::string(R"(,"confusion_pairs":[["c1","c2",1]])")}) {
    const ReportRun run{.name = "many", .classes = text + pairs + "}"};
    const std::string page = report_page({.title = "t", .subtitle = "", .command = "report"}, std::span(&run, 1));
    EXPECT_LT(page.size(), 200'000u);
    const auto classes = data_of(page)["runs"][0]["classes"];
    EXPECT_EQ(classes["classes"].size(), 400u);
    EXPECT_EQ(classes["classes"]["c399"]["support"], 1);
    EXPECT_EQ(classes["left_out"], 2600);
    EXPECT_EQ(classes["macro avg"]["recall"], 1);
    EXPECT_FALSE(classes.contains("confusion") || classes.contains("confusion_pairs"));
  }
}

TEST(ReportPage, DamagedPartsAreLeftOut) {
  for (const char* profile : {"[]", "{\"rows\":[1]}"}) {
    const ReportRun run{.name = "r",
        .metrics = "{}\nnonsense\n[1]\n{\"step\":1,\"split\":3}\n",
        .samples = "{\"step\":1,\"samples\":3}\n",
        .memory = "{",
        .profile = profile,
        .system = "no"};
    const auto data = data_of(report_page({.title = "t", .subtitle = "", .command = "report"}, std::span(&run, 1)));
    EXPECT_FALSE(data["runs"][0].contains("memory"));
    EXPECT_FALSE(data["runs"][0].contains("profile"));
    EXPECT_EQ(data["runs"][0]["train"]["step"].size(), 0u);
    EXPECT_EQ(data["runs"][0]["valid"]["step"].size(), 0u);
  }
}

struct Net : Module {
  Linear first{this, "first", 64, 128}, second{this, "second", 128, 8};
};

TEST(MemoryPicture, ListsEveryTensorOfTheTrainingStep) {
  Net net;
  SingleShapeLearner learner(net, [&](Trace& trace) -> Loss {
    const Tensor x = trace.input("x", {DType::kF32, {32, 64}});
    return {sum_to(square(net.second(relu(net.first(x)))), {}), trace.number(32)};
  });
  const auto picture = ParsedJson::parse(memory_picture(learner.trainer(), learner.shared().arena));
  const Plan& plan = *learner.trainer().plans().by_name().at("train.0");
  EXPECT_EQ(picture["arena_bytes"], plan.arena_bytes);
  EXPECT_EQ(picture["nodes"].size(), static_cast<size_t>(plan.graph.node_count()));
  const size_t live = std::ranges::max(picture["live"].get<std::vector<size_t>>());
  EXPECT_LE(live, plan.arena_lower_bound);  // which counts whole cache lines
  EXPECT_GE(live + 64 * picture["tenants"].size(), plan.arena_lower_bound);
  bool found = false;
  for (const auto& tenant : picture["tenants"])
    if (tenant[0] == "f32[32, 128]" && picture["nodes"][tenant[3].get<size_t>()][2] == "first") found = true;
  EXPECT_TRUE(found);
}
}  // namespace
}  // namespace linnet
