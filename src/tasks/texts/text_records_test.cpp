// Records of texts as their files have them.
#include "tasks/texts/text_records.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "error_of.h"
#include "tasks/texts/marked_texts.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_task.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Texts = std::vector<std::string>;

class TextFiles : public ::testing::Test {
 protected:
  Texts tagged(const std::string& text) {
    return mapped(read_tagged_texts(folder_.write("words.conll", text), {}).records,
        [](const TextRecord& record) { return record.text + " " + record.label["tags"].dump(); });
  }
  std::string problem_of(const std::string& name, const std::string& text) {
    return without_folder(error_of([&] { read_text_records(folder_.write(name, text), {}); }), folder_.path());
  }

  // Of labels, once the task sees all of them.
  std::string label_problem(const char* task, const std::string& name, const std::string& text) {
    Config config;
    config.data.task = task;
    const TextRecords records = read_text_records(folder_.write(name, text), {});
    return without_folder(error_of([&] { text_task(config).outputs(records, name); }), folder_.path());
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TextFiles, CommentsBeforeAnEntryOfConllAreNoWords) {
  const Texts two{R"(Anna sings ["B-PER","O"])", R"(# 1 ["O","O"])"};
  EXPECT_EQ(tagged("# newdoc\n#\n\n# text = Anna sings\n# one more\nAnna B-PER\nsings O\n\n# O\n1 O\n"), two);
  EXPECT_EQ(tagged("Anna NN X B-PER\nsings VB X O\n\n# id 2-a domain=x\n# NN X O\n1 CD X O\n"), two);
  EXPECT_EQ(tagged("a O\n# O\nb O\n"), Texts{R"(a # b ["O","O","O"])"});
  const std::string untagged = folder_.write("untagged.conll", "# a text of words\nAnna\n#\n");
  Texts found;
  for_each_text_of_words(untagged, {}, [&](const std::string& text) { found.push_back(text); });
  EXPECT_EQ(found, Texts{"Anna #"});
}

TEST_F(TextFiles, ColumnsThatCountWordsAreRefused) {
  const std::string sentence =
      "# text = Don't go\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_\n"
      "2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_\n3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n";
  const std::string path = folder_.write("a.conllu", sentence);
  for (const bool tagged : {true, false}) {
    const std::string message = error_of([&] {
      if (tagged) read_tagged_texts(path, {});
      else for_each_text_of_words(path, {}, [](const std::string&) {});
    });
    EXPECT_PRED2(has_text, message, "a.conllu:2: the first column counts the words");
  }
  EXPECT_EQ(tagged("1 O\n2 O\n\n1 2 3 4 5 6 7 8 9 O\nmile 2 3 4 5 6 7 8 9 O\n").size(), 2u);
}

TEST_F(TextFiles, AMissingValueIsNotANull) {
  EXPECT_EQ(problem_of("a.jsonl", R"({"text": "a", "label": null})"), "a.jsonl:1: \"label\" is null");
  EXPECT_EQ(problem_of("b.jsonl", R"({"text": null, "label": "x"})"), "b.jsonl:1: \"text\" is null");
  EXPECT_EQ(problem_of("c.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n"),
      "c.jsonl:2: there is no \"label\"");
}

TEST_F(TextFiles, ListsAndObjectsAreNoClass) {
  for (const std::string label : {R"(["x"])", R"({"x":1})"})
    EXPECT_EQ(label_problem("classification", "a.jsonl", R"({"text":"a","label":)" + label + "}\n"),
        "a.jsonl:1: the label " + label + " is not one class; --set data.task=several_labels learns several");
}

TEST_F(TextFiles, ANumberForEachClassIsNoListOfLabels) {
  const auto problem = [&](const std::string& labels) {
    return label_problem("several_labels", "a.jsonl", "{\"text\":\"a\",\"labels\":" + labels + "}\n");
  };
  const std::string why =
      " twice; labels are a list of names such as [\"a\", \"b\"], or --label-column A,B names a field for each";
  EXPECT_EQ(problem("[1.0,0.0,0.0]"), "a.jsonl:1: the labels [1.0,0.0,0.0] have 0.0" + why);
  EXPECT_EQ(problem("[1,0,1]"), "a.jsonl:1: the labels [1,0,1] have 1" + why);
  EXPECT_EQ(problem("[true,false,false]"), "a.jsonl:1: the labels [true,false,false] have false" + why);
  EXPECT_EQ(label_problem("several_labels", "b.tsv", "a\t0 | 1 | 0\n"), "b.tsv:1: the labels 0 | 1 | 0 have 0" + why);
  for (const char* names : {"[\"a\",\"b\"]", "[3,17]", "[\"a\",\"a\"]", "\"a|b\"", "5"})
    EXPECT_EQ(problem(names), "no error");
}

// The outputs that a task finds in a table with a field for each label, and the first row as it learns it.
TEST_F(TextFiles, SeveralFieldsMayHaveTheLabels) {
  const auto read = [&](const char* task, const std::string& name, const std::string& text) {
    Config config;
    config.data.task = task, config.data.label_column = "toxic, insult";
    const TextRecords records = read_text_records(folder_.write(name, text), config.data);
    const Names outputs = text_task(config).outputs(records, name);
    return std::pair(outputs, text_task(config).label(records.records.at(0), {}, outputs));
  };
  using Found = std::pair<Names, std::vector<float>>;
  const std::string rows = "text,toxic,more,insult\na,1,x,0\nb,0,y,0\n";
  EXPECT_EQ(read("several_labels", "a.csv", rows), Found({"insult", "toxic"}, {0, 1}));
  EXPECT_EQ(
      read("several_labels", "b.tsv", "insult\ttext\ttoxic\nTrue\ta\tFALSE\n"), Found({"insult", "toxic"}, {1, 0}));
  EXPECT_EQ(read("regression", "a.csv", rows), Found({"toxic", "insult"}, {1, 0}));
  EXPECT_EQ(read("regression", "c.jsonl", R"({"insult": 2.5, "text": "a", "toxic": -1})"),
      Found({"toxic", "insult"}, {-1, 2.5}));
  const auto problem = [&](const char* task, const std::string& text) {
    return error_of([&] { read(task, "d.csv", text); });
  };
  EXPECT_PRED2(has_text, problem("several_labels", "text,toxic,insult\na,0.5,0\n"),
      "d.csv:2: the label '0.5' is neither 0 nor 1");
  EXPECT_PRED2(has_text, problem("several_labels", "text,toxic,insult\na,1,\n"), "d.csv:2: the label '' is no number");
  EXPECT_PRED2(has_text, problem("regression", "text,toxic,insults\na,1,1\n"),
      "d.csv:1: there is no field \"insult\", which label_column names (did you mean \"insults\"?) (there are text, "
      "toxic, "
      "insults; --label-column NAME names another)");
  EXPECT_PRED2(has_text, problem("classification", "text,toxic,insult\na,1,0\n"), "is not one class");
}

TEST_F(TextFiles, ANameWithACommaIsAFieldsName) {
  Config config;
  config.data.text_column = "Text, raw", config.data.label_column = "Mood, now";
  const TextRecords found = read_text_records(folder_.write("a.tsv", "Text, raw\tMood, now\na\tgood\n"), config.data);
  EXPECT_EQ(found.records.at(0).label, Json("good"));
  EXPECT_PRED2(has_text, error_of([&] { read_text_records(folder_.write("b.csv", "Text,Mood\na,b\n"), config.data); }),
      "there is no field \"Text, raw\", which text_column names");
}

// An object in the file does the same.
TEST_F(TextFiles, ALabelMayBeAnObject) {
  const auto outputs = [&](const char* task, const std::string& text) { return label_problem(task, "a.jsonl", text); };
  EXPECT_EQ(outputs("several_labels", R"({"text": "a", "labels": {"x": true, "y": 0}})"), "no error");
  EXPECT_EQ(outputs("regression",
                "{\"text\":\"a\",\"label\":{\"x\":1,\"y\":2}}\n{\"text\":\"b\",\"label\":{\"x\":1,\"z\":2}}\n"),
      "a.jsonl:2: the label has no \"y\", which the model gives");
}

TEST_F(TextFiles, MissingColumnsAreNamedTogetherAtTheHeading) {
  const std::string end = "--text-column NAME and --label-column NAME say which";
  EXPECT_EQ(problem_of("a.csv", "txet,kind\na,x\n"),
      "a.csv:1: no field is called \"text\" (did you mean \"txet\"?) or \"label\" (there are txet, kind; the first "
      "line "
      "of a .csv file is its heading); " +
          end);
  EXPECT_EQ(problem_of("b.jsonl", "{\"text\": \"a\", \"lable\": 1}\n"),
      "b.jsonl:1: no field is called \"label\" (did you mean \"lable\"?) (there are text, lable); " + end);
}

TEST_F(TextFiles, UsualNamesMayHaveAnyLetterCase) {
  const std::string path = folder_.write("a.tsv", "Text\tLABEL\na dog\tx\n");
  const TextRecords read = read_text_records(path, {});
  ASSERT_EQ(read.records.size(), 1u);
  EXPECT_EQ(read.records[0].text, "a dog");
  EXPECT_EQ(label_text(read.records[0].label), "x");
  // An exact name comes first.
  folder_.write("b.jsonl", R"({"Text": "no", "sentence": "yes", "label": 1})");
  EXPECT_EQ(read_text_records(folder_ / "b.jsonl", {}).records[0].text, "yes");
  folder_.write("c.tsv", "Anchor\tPositive\tNegative\na\tb\tc\n");
  EXPECT_EQ(read_related_texts(folder_ / "c.tsv", {}).records.at(0).others, Texts{"c"});
}

// Only a table without a heading has fields "1", "2", ...
TEST_F(TextFiles, ALabelThatIsANumberIsNoFieldNumber) {
  EXPECT_TRUE(problem_of("a.csv", "a good film,1\na bad film,0\n")
                  .starts_with("a.csv:1: no field is called \"text\" or \"label\" (there are a good film, 1; the first "
                               "line of a .csv file is its heading)"));
  EXPECT_EQ(problem_of("a.tsv", "a good film\t1\na bad film\t0\n"), "no error");
}

TEST_F(TextFiles, ANumberThatIsNoneInLine1MayBeAHeading) {
  const auto problem = [](const char* label, const std::string& where) {
    return error_of([&] { number_of(Json(label), where); });
  };
  EXPECT_EQ(number_of(Json("+2.5"), "a.tsv:1"), 2.5);
  for (const char* none : {"+", "+-2", "++2"}) EXPECT_PRED2(has_text, problem(none, "a.tsv:2"), "is no number");
  EXPECT_EQ(problem("stars", "a.tsv:1"),
      "a.tsv:1: the label 'stars' is no number; if line 1 is a heading, --label-column NAME says so");
  EXPECT_EQ(problem("low", "a.tsv:21"), "a.tsv:21: the label 'low' is no number");
  EXPECT_EQ(problem("low", "a.jsonl:1"), "a.jsonl:1: the label 'low' is no number");
}

TEST(FirstNames, AreFewWhereTheyAreLong) {
  EXPECT_EQ(first_names({"ham", "spam"}), "ham, spam");
  EXPECT_EQ(first_names({"ham", "spam"}, 1), "ham, ...");
  const std::string sentence(150, 'x');
  EXPECT_EQ(first_names({sentence, sentence, sentence}), sentence + ", " + sentence + ", ...");
}
}  // namespace
}  // namespace linnet
