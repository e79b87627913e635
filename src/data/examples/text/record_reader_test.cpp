#include "data/examples/text/record_reader.h"
#include <gtest/gtest.h>
#include "base/process.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
constexpr std::string_view kHeading[] = {"label"};

class Records : public ::testing::Test {
 protected:
  // The records of a file with that name and text, one JSON text each.
  std::vector<std::string> read(const std::string& name, const std::string& text) {
    folder_.write(name, text);
    RecordReader reader(folder_ / name, kHeading);
    std::vector<std::string> found;
    for (Json record; reader.next(record);) found.push_back(record.dump());
    return found;
  }
  std::string problem(const std::string& name, const std::string& text) {
    return error_of([&] { read(name, text); });
  }
  testing::TemporaryFolder folder_;
};

using Texts = std::vector<std::string>;

TEST_F(Records, TabsWithAndWithoutAHeading) {
  EXPECT_EQ(read("a.tsv", "text\tlabel\r\na b\tx\r\n\r\nc\ty"),
      (Texts{R"({"text":"a b","label":"x"})", R"({"text":"c","label":"y"})"}));
  EXPECT_EQ(read("c.tsv", "Text\t LABEL\na\tx\n"), (Texts{R"({"Text":"a","LABEL":"x"})"}));
  EXPECT_EQ(read("b.txt", "a\tx\nb\ty\n"), (Texts{R"({"1":"a","2":"x"})", R"({"1":"b","2":"y"})"}));
}

TEST_F(Records, MoreThanTheMemoryIsRefused) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "many words of a text\tx\n";
  EXPECT_EQ(read("a.tsv", text).size(), 100000U);
  const MemoryLimit limit(1 << 20);
  EXPECT_PRED2(has_text, problem("a.tsv", text), "reading the data takes more than the 1 MB");
}

TEST_F(Records, CommasAndQuotes) {
  EXPECT_EQ(read("a.csv", "label,text\nx,\"a, \"\"b\"\"\nc\"\ny,\n\"z\",\"\"\n"),
      (Texts{R"({"label":"x","text":"a, \"b\"\nc"})", R"({"label":"y","text":""})", R"({"label":"z","text":""})"}));
}

TEST_F(Records, SemicolonsWhereTheHeadingHasNoComma) {
  EXPECT_EQ(read("a.csv", "text;label\r\n\"a;b\";1\r\nc, d;2\r\n"),
      (Texts{R"({"text":"a;b","label":"1"})", R"({"text":"c, d","label":"2"})"}));
  EXPECT_EQ(read("a.csv", "text\tlabel\na, b\t1\n"), (Texts{R"({"text":"a, b","label":"1"})"}));
  EXPECT_EQ(read("a.csv", "text,a;b\nc,d;e\n"), (Texts{R"({"text":"c","a;b":"d;e"})"}));
}

TEST_F(Records, LinesThatEndInCarriageReturnsAloneAreAnError) {
  for (const char* name : {"a.csv", "a.tsv"})
    EXPECT_PRED2(has_text, problem(name, "text,label\ra,x\rb,y\r"), "end in carriage returns alone");
  EXPECT_EQ(read("b.tsv", "a\rb\tx\n"), (Texts{R"({"1":"a\rb","2":"x"})"}));
}

TEST_F(Records, TwoColumnsOfOneNameAreAnError) {
  EXPECT_PRED2(has_text, problem("a.csv", "text,label, text\na,b,c\n"), "a.csv:1: the heading names \"text\" twice");
  EXPECT_PRED2(has_text, problem("b.tsv", "label\tid\tlabel\na\tb\tc\n"), "b.tsv:1: the heading names \"label\" twice");
  EXPECT_EQ(read("c.csv", "text,,\na,,\n"), (Texts{R"({"text":"a","":""})"}));  // empty columns of a spreadsheet
}

TEST_F(Records, JsonLines) {
  EXPECT_EQ(read("a.jsonl", "{\"text\": \"a\", \"label\": [1, 2]}\n\n{\"x\": 1}\n"),
      (Texts{R"({"text":"a","label":[1,2]})", R"({"x":1})"}));
}

TEST_F(Records, AJsonFileIsAListOrOneObjectOrLines) {
  const Texts two{R"({"a":1})", R"({"a":2})"};
  EXPECT_EQ(read("a.json", "\n[\n  {\"a\": 1},\n  {\"a\":\n   2}\n]\n"), two);
  EXPECT_EQ(read("b.json", R"([{"a": 1}, {"a": 2}])"), two);
  EXPECT_EQ(read("c.json", "{\"a\": 1}\n{\"a\": 2}\n"), two);
  EXPECT_EQ(read("d.json", "{\n\"a\": 1\n}\n"), Texts{two[0]});
  EXPECT_EQ(read("e.json", "[]\n"), Texts{});
  EXPECT_PRED2(has_text, problem("f.json", R"([{"a": 1}, 2])"), "f.json: entry 2 is no JSON object");
  EXPECT_PRED2(has_text, problem("g.json", "[\n{},\n"), "g.json' is not JSON");
}

TEST_F(Records, WhatIsNoRecordIsAnErrorThatNamesTheLine) {
  EXPECT_PRED2(has_text, problem("a.csv", "a,b\n\"c,d\n"), "a.csv:2: a quote is not closed");
  EXPECT_PRED2(has_text, problem("b.csv", "a,\"b\"c\n"), "b.csv:1: text behind a closing quote");
  EXPECT_PRED2(has_text, problem("c.tsv", "text\tlabel\na\n"), "c.tsv:2: 1 field, where the heading has 2");
  EXPECT_PRED2(has_text, problem("d.tsv", "a\tb\na\tb\tc\n"), "d.tsv:2: 3 fields, where the first line has 2");
  EXPECT_PRED2(has_text, problem("e.jsonl", "{}\n[1]\n"), "e.jsonl:2: the line is no JSON object");
  EXPECT_PRED2(has_text, problem("f.jsonl", "{\"a\"\n"), "f.jsonl:1: the line is not JSON");
  EXPECT_PRED2(has_text, problem("g.jsonl", "{\"a\":1,\"b\":2,\"a\":3}\n"), "g.jsonl:1: the line names \"a\" twice");
}
}  // namespace
}  // namespace linnet
