#include "data/metrics/class_report.h"
#include <gtest/gtest.h>
#include "base/files.h"

namespace linnet {
namespace {
std::vector<std::string> numbered(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

void expect_same(const ClassReport::Scores& scores, const Json& expected) {
  EXPECT_EQ(scores.precision, expected[0].get<double>());
  EXPECT_EQ(scores.recall, expected[1].get<double>());
  EXPECT_EQ(scores.f1, expected[2].get<double>());
}

// Every double is that of scikit-learn (tests/golden/make_class_report.py), also where it adds up many classes.
TEST(ClassReport, IsThatOfScikitLearn) {
  const Json cases = Json::parse(read_file("tests/golden/class_report.json"), JsonLimits::tables());
  for (const Json& one : cases) {
    const auto labels = one["labels"].get<std::vector<int64_t>>(),
               predicted = one["predicted"].get<std::vector<int64_t>>();
    ClassReport report(numbered(one["balanced"].size()));
    for (size_t i = 0; i < labels.size(); ++i)
      report.add(static_cast<size_t>(predicted[i]), static_cast<size_t>(labels[i]));
    for (size_t i = 0; i < one["classes"].size(); ++i) {
      const DecisionCounts& counts = report.counts[i];
      expect_same({counts.precision(), counts.recall(), counts.f1()}, one["classes"][i]);
    }
    expect_same(report.macro(), one["macro"]);
    expect_same(report.weighted(), one["weighted"]);
    EXPECT_EQ(report.metrics()[0].second, one["accuracy"].get<double>());
    if (one.contains("confusion")) EXPECT_TRUE(report.json()["confusion"] == one["confusion"]);
  }
}

TEST(ClassReport, F1OfTwoClassesIsThatOfTheSecond) {
  ClassReport two(numbered(2)), three(numbered(3));
  const size_t predicted[] = {1, 1, 0, 0, 1}, labels[] = {1, 0, 1, 0, 1};
  for (size_t i = 0; i < 5; ++i) two.add(predicted[i], labels[i]), three.add(predicted[i], labels[i]);
  EXPECT_DOUBLE_EQ(two.f1(), 2 * 2.0 / (3 + 3));
  EXPECT_DOUBLE_EQ(three.f1(), (two.counts[0].f1() + two.counts[1].f1()) / 3);
}

TEST(ClassReport, IsWrittenForPeople) {
  ClassReport classes({"spam", "größer"});
  classes.add(0, 0), classes.add(1, 0), classes.add(1, 1);
  EXPECT_EQ(classes.text(),
      "              precision  recall      F1  support\n"
      "spam             1.0000  0.5000  0.6667        2\n"
      "größer           0.5000  1.0000  0.6667        1\n"
      "macro avg        0.7500  0.7500  0.6667        3\n"
      "weighted avg     0.8333  0.6667  0.6667        3\n"
      "confusion matrix, a row for each class and a column for what was predicted:\n"
      "                spam  größer\n"
      "spam               1       1\n"
      "größer             0       1\n");
  ClassReport labels({"a", "b"}, false);
  labels.counts[0].add(true, true);
  EXPECT_NE(labels.text().find("micro avg"), std::string::npos);
  EXPECT_EQ(labels.text().find("confusion"), std::string::npos);
}

// A square of 100,000 classes would have 80 GB.
TEST(ClassReport, OfManyClassesHoldsThePairsThatOccur) {
  ClassReport report(numbered(100'000));
  for (int i = 0; i < 3; ++i) report.add(7, 99'999);
  report.add(5, 5);
  const Json json = report.json();
  EXPECT_EQ(json["confusion_pairs"].dump(), R"([["5","5",1],["99999","7",3]])");
  EXPECT_FALSE(json.contains("confusion") || json.contains("micro avg"));
  EXPECT_EQ(json["classes"].size(), 100'000u);
  EXPECT_EQ(ClassReport(numbered(100)).json()["confusion"].size(), 100u);
}

TEST(ClassReport, TellsAModelThatKnowsOneAnswer) {
  ClassReport report({"no", "yes"});
  report.add(1, 1);
  EXPECT_EQ(report.only_answer(), nullptr);  // all examples are of that class
  report.add(1, 0);
  ASSERT_NE(report.only_answer(), nullptr);
  EXPECT_EQ(*report.only_answer(), "yes");
  report.add(0, 0);
  EXPECT_EQ(report.only_answer(), nullptr);
}
}  // namespace
}  // namespace linnet
