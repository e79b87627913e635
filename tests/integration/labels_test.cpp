// Tasks on texts with labels through the command line, from a tiny BERT folder and texts that are easily told apart:
// pairs, several labels, numbers, tags of words.
#include <gtest/gtest.h>
#include <filesystem>
#include <tuple>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
const std::string kModel = std::string(LINNET_GOLDEN) + "/bert_model";
const char* const kAnimals[] = {"dog", "cat"};
const char* const kStates[] = {"tax", "law"};
const char* const kFillers[] = {"the", "runs", "sleeps", "a 7", "b"};

class Labels : public ::testing::Test {
 protected:
  Outcome train(const std::string& preset, const std::string& data, const Arguments& settings = {}) const {
    Arguments arguments{"train", preset, "--run", folder_ / preset, "--data", folder_ / data};
    add_settings(arguments, {"model.from=" + kModel, "context=16", "batch_size=8", "max_steps=160", "warmup_steps=5",
                                "learning_rate=5e-3", "eval_every=80", "save_every=80", "schedule=constant"});
    add_settings(arguments, settings);
    return run(arguments, {.log = "warning"});
  }
  ParsedJson evaluate(const std::string& run_folder, const std::string& data) const {
    const Outcome outcome = run({"eval", folder_ / run_folder, "--data", folder_ / data, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  }
  ParsedJson predict(const std::string& model, const std::string& text) const {
    const Outcome outcome = run({"predict", model, "--json"}, {.input = text + "\n"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  }
  void expect_checked(const std::string& preset, const std::string& data) const {
    const Outcome checked =
        run({"check", preset, "--data", folder_ / data, "--set", "model.from=" + kModel, "--set", "context=16"});
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.error;
    EXPECT_NE(checked.out.find("pass  padded length"), std::string::npos) << checked.out;
  }
  // Trains, evaluates the training data, and exports.
  void learn(const std::string& preset, const std::string& data, const std::string& metric, double least) {
    const Outcome planned = run({"plan", preset, "--data", folder_ / data, "--set", "model.from=" + kModel});
    EXPECT_EQ(planned.exit_code, 0) << planned.error;
    const Outcome trained = train(preset, data);
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_GT(evaluate(preset, data)[metric].get<double>(), least);
    const Outcome exported = run({"export", folder_ / preset, "--out", folder_ / "out"});
    ASSERT_EQ(exported.exit_code, 0) << exported.error;
  }
  TemporaryFolder folder_;
};

TEST_F(Labels, PairsOfTextsAreToldApart) {
  std::string rows = "label,question1,question2\r\n";
  for (int i = 0; i < 160; ++i) {
    const bool same = i % 2 == 0;
    const char* first = kAnimals[i / 2 % 2];
    const char* second = same ? first : kStates[i / 4 % 2];
    rows += std::string(same ? "same" : "other") + ",\"" + kFillers[i % 5] + ", " + first + "\"," + second + " " +
            kFillers[i % 3] + "\r\n";
  }
  folder_.write("pairs.csv", rows);
  learn("classify", "pairs.csv", "accuracy", 0.95);
  const auto same = predict(folder_ / "classify", "the, dog\tdog runs"),
             other = predict(folder_ / "out", "b, cat\ttax the");
  EXPECT_EQ(same["label"], "same");
  EXPECT_EQ(other["label"], "other");
  // Of a table or JSON lines the columns with texts are read, with labels or without.
  folder_.write("asked.csv", "id,question1,question2\n1,\"the, dog\",dog runs\n2,\"b, cat\",tax the\n");
  folder_.write("asked.jsonl", "{\"left\":\"the, dog\",\"right\":\"dog runs\"}\n");
  const Outcome table = run({"predict", folder_ / "classify", folder_ / "asked.csv", folder_ / "pairs.csv"});
  EXPECT_EQ(table.out.substr(0, 5), "same\t") << table.error;
  EXPECT_EQ(lines(table.out).size(), 162u);
  EXPECT_EQ(lines(table.out)[1].substr(0, 6), "other\t");
  const Outcome named = run({"predict", folder_ / "classify", folder_ / "asked.jsonl", "--text-column", "left",
      "--pair-column", "right", "--json"});
  EXPECT_EQ(ParsedJson::parse(named.out)["probability"], same["probability"]) << named.error;
  const Outcome unknown = run({"predict", folder_ / "classify", folder_ / "asked.jsonl"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.error.find("--text-column NAME says which"), std::string::npos) << unknown.error;
  const Outcome single = run({"predict", folder_ / "classify"}, {.input = "the dog\n"});
  EXPECT_EQ(single.exit_code, 2);
  EXPECT_NE(single.error.find("takes two texts with a tab between them"), std::string::npos) << single.error;
}

// Without model.from, the other three tasks too. Names are told by their capitals.
TEST_F(Labels, NothingIsNeededToStartFrom) {
  std::string several, numbers, tags;
  for (int i = 0; i < 120; ++i) {
    const std::string animal = kAnimals[i / 2 % 2], state = kStates[i % 2], number = std::to_string(i);
    several += animal + " " + state + " " + number + "\t" + animal + "|" + state + "\n";
    numbers += animal + " " + number + "\t" + (i / 2 % 2 ? "1.5" : "-0.5") + "\n";
    tags += number + " O\n" + (i % 2 ? "Cat B-PER" : "cat O") + "\n\n";
  }
  folder_.write("several.tsv", several), folder_.write("numbers.tsv", numbers), folder_.write("tags.conll", tags);
  for (const auto& [preset, data, metric, layers] : {std::tuple{"label", "several.tsv", "f1_macro", "num_layers=0"},
           {"regress", "numbers.tsv", "pearson", "num_layers=1"}, {"tag", "tags.conll", "f1", "num_layers=1"}}) {
    const Outcome trained = run({"train", preset, "--data", folder_ / data, "--run", folder_ / preset, "--steps", "200",
        "--set", "d_model=32", "--set", "d_ff=64", "--set", layers, "--set", "context=16", "--set", "warmup_steps=5",
        "--set", "learning_rate=4e-3"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_GT(evaluate(preset, data)[metric].get<double>(), 0.9) << preset;
  }
  EXPECT_EQ(evaluate("tag", "tags.conll")["classes"]["PER"]["support"], 60);
  folder_.write("asked.jsonl", R"({"tokens":["7","Cat"]})"
                               "\n"
                               R"({"text":"7 Cat"})"
                               "\n");
  const std::string found = run({"predict", folder_ / "tag", folder_ / "tags.conll", folder_ / "asked.jsonl"}).out;
  ASSERT_EQ(lines(found).size(), 122u);
  EXPECT_EQ(lines(found)[7], "PER: Cat\t7 Cat");
  EXPECT_EQ(lines(found)[120], lines(found)[7]);
  EXPECT_EQ(lines(found)[121], lines(found)[7]);
}

TEST_F(Labels, SeveralLabelsOfATextAreFound) {
  std::string rows;
  for (int i = 0; i < 160; ++i) {
    const bool animal = i % 2 == 0, state = i % 4 < 2;
    ParsedJson labels = ParsedJson::array();
    if (animal) labels.push_back("animal");
    if (state) labels.push_back("state");
    const std::string text = std::string(animal ? kAnimals[i / 4 % 2] : "b") + " " + (state ? kStates[i / 8 % 2] : "b");
    rows += ParsedJson{{"text", text}, {"labels", labels}}.dump() + "\n";
  }
  folder_.write("labels.jsonl", rows);
  learn("label", "labels.jsonl", "f1", 0.95);
  EXPECT_EQ(predict(folder_ / "label", "dog law")["labels"], (ParsedJson{"animal", "state"}));
  EXPECT_EQ(predict(folder_ / "out", "b b")["labels"], ParsedJson::array());
  EXPECT_EQ(ParsedJson::parse(contents(folder_ / "out/config.json"))["problem_type"], "multi_label_classification");
  const Outcome line = run({"predict", folder_ / "out"}, {.input = "dog law\n"});
  EXPECT_EQ(line.out.substr(0, line.out.find('\t')), "animal|state");
  const Outcome top = run({"predict", folder_ / "out", "--top", "2", "--json"}, {.input = "dog law\n"});
  EXPECT_EQ(top.exit_code, 2);
  EXPECT_NE(top.error.find("--top 2: the model does not choose one of several classes"), top.error.npos) << top.error;

  // A folder's head keeps its rows for its labels, whatever their order, and those that the data lack.
  auto config = ParsedJson::parse(contents(folder_ / "out/config.json"));
  config["id2label"] = {{"0", "state"}, {"1", "animal"}};
  folder_.write("out/config.json", config.dump());
  folder_.write("fewer.jsonl", "{\"text\":\"dog b\",\"labels\":[\"animal\"]}\n{\"text\":\"b b\",\"labels\":[]}\n");
  std::filesystem::remove_all(folder_ / "label");
  const Outcome again = train("label", "fewer.jsonl",
      {"model.from=" + (folder_ / "out"), "max_steps=1", "learning_rate=1e-30",
          "data.valid_tsv=" + (folder_ / "fewer.jsonl")});
  ASSERT_EQ(again.exit_code, 0) << again.error;
  EXPECT_EQ(predict(folder_ / "label", "dog b")["labels"], ParsedJson{"state"});
  EXPECT_EQ(predict(folder_ / "label", "b law")["labels"], ParsedJson{"animal"});
  EXPECT_EQ(again.error.find("its classes are called"), again.error.npos) << again.error;

  // The same in another letter case; other names of as many classes are told.
  const auto go_on = [&](const ParsedJson& names, const std::string& data) {
    config["id2label"] = names;
    folder_.write("out/config.json", config.dump());
    std::filesystem::remove_all(folder_ / "label");
    const Outcome trained = train("label", data,
        {"model.from=" + (folder_ / "out"), "max_steps=1", "learning_rate=1e-30",
            "data.valid_tsv=" + (folder_ / data)});
    EXPECT_EQ(trained.exit_code, 0) << trained.error;
    return trained.error;
  };
  EXPECT_EQ(go_on({{"0", "State"}, {"1", "ANIMAL"}}, "fewer.jsonl").find("its classes are called"), again.error.npos);
  EXPECT_EQ(predict(folder_ / "label", "b law")["labels"], ParsedJson{"animal"});
  const std::string told = go_on({{"0", "x"}, {"1", "y"}}, "labels.jsonl");
  EXPECT_NE(told.find("its classes are called x, y; they are taken for animal, state"), told.npos) << told;
}

TEST_F(Labels, NumbersArePredicted) {
  std::string rows = "text\tscore\n";
  for (int i = 0; i < 160; ++i) {
    const bool animal = i % 2 == 0;
    const char* word = animal ? kAnimals[i / 2 % 2] : kStates[i / 2 % 2];
    rows += std::string(kFillers[i % 5]) + " " + word + " " + kFillers[i / 3 % 4] + (animal ? "\t4.5\n" : "\t1.25\n");
  }
  folder_.write("numbers.tsv", rows);
  expect_checked("regress", "numbers.tsv");
  learn("regress", "numbers.tsv", "pearson", 0.95);
  EXPECT_GT(predict(folder_ / "regress", "the dog runs")["number"].get<double>(), 3.5);
  EXPECT_LT(predict(folder_ / "out", "the law runs")["number"].get<double>(), 2.5);
  const auto config = ParsedJson::parse(contents(folder_ / "out/config.json"));
  EXPECT_EQ(config["problem_type"], "regression");
  const Outcome scored = run({"score", folder_ / "regress"}, {.input = "the dog\n"});
  EXPECT_EQ(scored.exit_code, 2);
  EXPECT_NE(scored.error.find("learned to label or embed texts"), std::string::npos) << scored.error;
}

TEST_F(Labels, ARunThatLearnsNothingSaysSo) {
  std::string words, numbers;
  for (int i = 0; i < 40; ++i) {
    words += std::string("the O\ndog ") + (i % 10 == 0 ? "B-X" : "O") + "\n\n";
    numbers += std::string(kAnimals[i % 2]) + " " + kFillers[i % 5] + "\t2.5\n";
  }
  folder_.write("rare.conll", words), folder_.write("valid.conll", "the O\ndog B-X\n\nthe O\n");
  folder_.write("constant.tsv", numbers);
  const Outcome tagged =
      train("tag", "rare.conll", {"data.valid_tsv=" + (folder_ / "valid.conll"), "max_steps=60", "eval_every=60"});
  EXPECT_NE(
      tagged.error.find("finds no label of the validation examples: it has learned nothing yet"), std::string::npos)
      << tagged.error;
  const Outcome constant = train("regress", "constant.tsv", {"max_steps=1"});
  EXPECT_NE(constant.error.find("all labels are 2.5: there is nothing to learn"), std::string::npos) << constant.error;
  folder_.write("one.conll", "the O\ndog B-X\n");
  std::filesystem::remove_all(folder_ / "tag");
  const Outcome one = train("tag", "one.conll");
  EXPECT_NE(one.error.find("a blank line ends each sentence of a CoNLL file"), std::string::npos) << one.error;
}

TEST_F(Labels, WordsAreTagged) {
  std::string rows = "-DOCSTART- -X- O\n\n";
  for (int i = 0; i < 120; ++i) {
    const auto word = [&](const std::string& text, const char* tag) { rows += text + " X " + tag + "\n"; };
    word(kFillers[i % 3], "O");
    word(kAnimals[i % 2], "B-ANIMAL");
    if (i % 3 == 0) word(kAnimals[(i + 1) % 2], "I-ANIMAL");
    word(kStates[i / 2 % 2], "B-STATE");
    word(kFillers[i % 2], "O");
    rows += "\n";
  }
  folder_.write("words.conll", rows);
  expect_checked("tag", "words.conll");
  learn("tag", "words.conll", "f1", 0.95);
  for (const char* model : {"tag", "out"}) {
    const auto found = predict(folder_ / model, "runs dog law the")["entities"];
    ASSERT_EQ(found.size(), 2u) << found;
    EXPECT_EQ(found[0]["label"], "ANIMAL");
    EXPECT_EQ(found[0]["text"], "dog");
    EXPECT_EQ(found[0]["start"], 5);
    EXPECT_EQ(found[0]["end"], 8);
    EXPECT_EQ(found[1]["label"], "STATE");
  }
  const auto config = ParsedJson::parse(contents(folder_ / "out/config.json"));
  EXPECT_EQ(config["architectures"][0], "BertForTokenClassification");
  EXPECT_EQ(config["id2label"]["0"], "O");
}

// Adapters say what their head is for: beside the base they predict as the run does.
TEST_F(Labels, AdaptersOfAnyTaskPredictBesideTheBase) {
  std::string words, labels;
  for (int i = 0; i < 60; ++i) {
    words += std::string(kFillers[i % 3]) + " O\n" + kAnimals[i % 2] + " B-ANIMAL\n\n";
    labels +=
        ParsedJson{{"text", kAnimals[i % 2]}, {"text2", kStates[i % 2]}, {"labels", {"x", i % 2 ? "y" : "z"}}}.dump() +
        "\n";
  }
  folder_.write("words.conll", words);
  folder_.write("labels.jsonl", labels);
  for (const auto& [preset, data, text] :
      {std::tuple{"tag", "words.conll", "the dog"}, {"label", "labels.jsonl", "dog\ttax"}}) {
    const Outcome trained = train(preset, data, {"lora.rank=4", "max_steps=80"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    const std::string adapter = folder_ / (std::string(preset) + "-adapter");
    ASSERT_EQ(run({"export", folder_ / preset, "--adapter", adapter}).exit_code, 0);
    const Outcome beside = run({"predict", kModel, "--adapter", adapter}, {.input = std::string(text) + "\n"});
    ASSERT_EQ(beside.exit_code, 0) << beside.error;
    EXPECT_EQ(beside.out, run({"predict", folder_ / preset}, {.input = std::string(text) + "\n"}).out) << preset;
  }
  EXPECT_EQ(run({"export", folder_ / "tag", "--onnx", folder_ / "onnx"}).exit_code, 0);
}

TEST_F(Labels, WhatDoesNotFitTheTaskIsOneLine) {
  folder_.write("fraction.tsv", "a\t0.5\nb\t1.25\nthe\t2\n");
  folder_.write("several.tsv", "a\tjoy\nb\tfear\nthe\tjoy, fear\n");
  folder_.write("words.tsv", "a\t1\nb\tlow\nthe\thigh\n");
  folder_.write("columns.csv", "body,kind\na,x\nb,y\n");
  folder_.write("span.jsonl", R"({"text": "a dog", "entities": [{"start": 2, "end": 9, "label": "X"}]})");
  folder_.write("tags.jsonl", R"({"tokens": ["a", "dog"], "tags": ["O"]})");
  folder_.write("quote.csv", "text,label\n\"a,x\n");
  folder_.write("empty.csv", "text,label\n,x\n ,y\n");
  for (const auto& [preset, data, part] :
      {std::tuple{"classify", "fraction.tsv", "--set data.task=regression learns numbers"},
          {"classify", "several.tsv", "several labels in one, such as 'joy, fear'"},
          {"regress", "words.tsv", "words.tsv:2: the label 'low' is no number"},
          {"classify", "columns.csv",
              "columns.csv:1: no field is called \"text\" or \"label\" (there are body, kind; the first line of a .csv "
              "file is "
              "its heading)"},
          {"tag", "span.jsonl", "\"end\" of an entity is 9, and the text has 5 characters"},
          {"tag", "tags.jsonl", "tags.jsonl:1: 2 tokens and 1 tags"},
          {"classify", "quote.csv", "quote.csv:2: a quote is not closed"},
          {"classify", "empty.csv", "empty.csv': the field \"text\" is empty in every record"}}) {
    const Outcome outcome = train(preset, data);
    EXPECT_EQ(outcome.exit_code, 2) << data;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  folder_.write("named.csv", "body,kind\na dog,x\nb tax,y\nthe dog,x\na law,y\nb cat,x\na tax,y\n");
  const Outcome named =
      train("classify", "named.csv", {"data.text_column=body", "data.label_column=kind", "max_steps=1"});
  EXPECT_EQ(named.exit_code, 0) << named.error;
  // Other files have columns of other names.
  folder_.write("other.csv", "sentence2,kinds\na dog,x\nb tax,y\n");
  const Outcome other = run({"eval", folder_ / "classify", "--data", folder_ / "other.csv", "--text-column",
      "sentence2", "--label-column", "kinds"});
  EXPECT_EQ(other.exit_code, 0) << other.error;
  EXPECT_EQ(other.out.substr(0, 7), "2 texts");
}

// As pandas writes lists, and as JSON does.
TEST_F(Labels, TablesHaveListsOfLabels) {
  std::string rows = "text,labels\n";
  for (int i = 0; i < 8; ++i)
    rows +=
        "a dog,\"['red', 'blue']\"\nb cat,\"[\"\"green\"\"]\"\na law,[]\nb tax,red|green\nthe dog,\"[\"\"it's\"\", "
        "'red']\"\n";
  folder_.write("lists.csv", rows);
  const Outcome trained = run({"train", "label", "--data", folder_ / "lists.csv", "--run", folder_ / "lists", "--set",
                                  "num_layers=0", "--steps", "2"},
      {.log = "info"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_NE(trained.error.find("4 labels, up to 2 at once: blue, green, it's, red"), std::string::npos)
      << trained.error;
  folder_.write("bad.csv", "text,labels\na dog,\"['red' 'blue']\"\nb cat,red\n");
  const Outcome refused = train("label", "bad.csv");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.error.find("bad.csv:2: the labels"), std::string::npos) << refused.error;
  EXPECT_NE(refused.error.find("are no list; write a|b or [\"a\", \"b\"]"), std::string::npos) << refused.error;
}

TEST_F(Labels, EachOfSeveralNumbersHasANameInTheHeading) {
  std::string rows;
  for (int i = 0; i < 16; ++i)
    rows += ParsedJson{{"text", i % 2 ? "a dog" : "b tax"}, {"score", {i % 2, 0.5}}}.dump() + "\n";
  folder_.write("two.jsonl", rows), folder_.write("one.tsv", "a dog\t1\nb tax\t0\nthe dog\t1\na tax\t0\n");
  for (const auto& [data, heading] : {std::pair{"two.jsonl", "LABEL_0,LABEL_1,text"}, {"one.tsv", "number,text"}}) {
    const Outcome trained = run({"train", "regress", "--data", folder_ / data, "--run", folder_ / heading, "--set",
        "num_layers=0", "--set", "data.valid_tsv=" + folder_ / data, "--steps", "2"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_EQ(lines(run({"predict", folder_ / heading, "--csv"}, {.input = "a dog\n"}).out).at(0), heading);
  }
}
}  // namespace
}  // namespace linnet::testing
