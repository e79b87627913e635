// Tasks on texts that belong together, through the command line and from a tiny BERT folder: embeddings of pairs,
// triplets and scored pairs, and answers to questions.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
const std::string kModel = std::string(LINNET_GOLDEN) + "/bert_model";
const char* const kWords[] = {"dog", "cat", "law", "tax", "sun", "rain", "red", "blue"};
const char* const kOthers[] = {"bark", "purr", "court", "money", "hot", "wet", "rose", "sky"};

class Related : public ::testing::Test {
 protected:
  Outcome train(const std::string& preset, const std::string& data, const Arguments& settings = {}) const {
    Arguments arguments{"train", preset, "--run", folder_ / preset, "--data", folder_ / data};
    add_settings(
        arguments, {"model.from=" + kModel, "context=24", "batch_size=8", "max_steps=160", "max_epochs=0",
                       "warmup_steps=5", "learning_rate=3e-3", "eval_every=80", "save_every=80", "schedule=constant"});
    add_settings(arguments, settings);
    return run(arguments);
  }
  ParsedJson evaluate(const std::string& model, const std::string& data) const {
    const Outcome outcome = run({"eval", model, "--data", folder_ / data, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  }
  ParsedJson predict(const std::string& model, const std::string& text, const Arguments& more = {}) const {
    Arguments arguments{"predict", model, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments, {.input = text + "\n"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.exit_code == 0 ? ParsedJson::parse(outcome.out) : ParsedJson();
  }
  // Words with what goes with them, 8 of each; `third`: a column behind them.
  void write_pairs(const std::string& name, const std::string& third = "") {
    std::string rows;
    for (int i = 0; i < 64; ++i) {
      rows += std::string(kWords[i % 8]) + " " + std::to_string(i / 8) + "\t" + kOthers[i % 8] + " " +
              std::to_string(i / 8 % 3);
      if (third == "negative") rows += std::string("\t") + kOthers[(i + 1) % 8];
      if (third == "score") rows += i % 8 < 4 ? "\t0.9" : "\t0.1";
      rows += "\r\n";  // as Windows writes lines
    }
    folder_.write(name, rows);
  }
  void expect_checked(const std::string& preset, const std::string& data) const {
    Arguments arguments{
        "check", preset, "--data", folder_ / data, "--set", "model.from=" + kModel, "--set", "context=24"};
    if (preset == "answers") arguments.insert(arguments.end(), {"--set", "answers.stride=4"});
    const Outcome checked = run(arguments);
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.error;
  }
  // The model as a folder of sentence-transformers.
  void write_sentence_folder(const std::string& pooling) {
    copy_folder(kModel, folder_ / "model");
    std::filesystem::create_directories(folder_ / "model/1_Pooling");
    folder_.write("model/modules.json",
        R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
    folder_.write(
        "model/1_Pooling/config.json", "{\"word_embedding_dimension\": 16, \"pooling_mode_" + pooling + "\": true}");
  }
  TemporaryFolder folder_;
};

double mean_loss(const std::string& run, size_t first, size_t count) {
  double sum = 0;
  size_t step = 0;
  for (const std::string& line : lines(contents(run + "/metrics.jsonl")))
    if (const auto json = ParsedJson::parse(line); json.contains("loss") && step++ >= first && step <= first + count)
      sum += json["loss"].get<double>() / static_cast<double>(count);
  return sum;
}

TEST_F(Related, PairsFindEachOther) {
  write_pairs("pairs.tsv");
  const Outcome planned = run({"plan", "embeddings", "--data", folder_ / "pairs.tsv", "--set", "model.from=" + kModel});
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
  expect_checked("embeddings", "pairs.tsv");
  write_sentence_folder("mean_tokens");
  const double before = evaluate(folder_ / "model", "pairs.tsv")["mrr_10"].get<double>();
  const Outcome trained = train("embeddings", "pairs.tsv");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const ParsedJson after = evaluate(folder_ / "embeddings", "pairs.tsv");
  EXPECT_GT(after["mrr_10"].get<double>(), before + 0.2);
  EXPECT_GT(predict(folder_ / "embeddings", "dog 7\tbark 1")["cosine"].get<double>(),
      predict(folder_ / "embeddings", "dog 7\tmoney 1")["cosine"].get<double>() + 0.2);

  ASSERT_EQ(run({"export", folder_ / "embeddings", "--out", folder_ / "out"}).exit_code, 0);
  const auto modules = ParsedJson::parse(contents(folder_ / "out/modules.json"));
  EXPECT_EQ(modules[1]["type"], "sentence_transformers.models.Pooling");
  EXPECT_EQ(ParsedJson::parse(contents(folder_ / "out/1_Pooling/config.json"))["pooling_mode_mean_tokens"], true);
  EXPECT_EQ(evaluate(folder_ / "out", "pairs.tsv")["mrr_10"], after["mrr_10"]);
  // One embedding, however it is asked for.
  const auto embedding = predict(folder_ / "embeddings", "dog 7")["embedding"].get<std::vector<double>>();
  for (const char* model : {"embeddings", "out"}) {
    const Outcome embedded = run({"embed", folder_ / model, "--json"}, {.input = "dog 7\n"});
    ASSERT_EQ(embedded.exit_code, 0) << embedded.error;
    const auto numbers = ParsedJson::parse(embedded.out)["embedding"].get<std::vector<double>>();
    ASSERT_EQ(numbers.size(), embedding.size());
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], embedding[i], 1e-5);
  }
}

// The pooling of the folder that training began from is kept, and what is exported embeds as the run does.
TEST_F(Related, ThePoolingOfTheFolderIsKept) {
  write_pairs("triplets.tsv", "negative");
  for (const char* pooling : {"cls_token", "max_tokens", "lasttoken", "mean_sqrt_len_tokens"}) {
    write_sentence_folder(pooling);
    const Outcome trained = train(
        "embeddings", "triplets.tsv", {"model.from=" + folder_ / "model", "embeddings.loss=triplet", "max_steps=20"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_LT(mean_loss(folder_ / "embeddings", 15, 5), mean_loss(folder_ / "embeddings", 0, 5)) << pooling;
    ASSERT_EQ(run({"export", folder_ / "embeddings", "--out", folder_ / "out"}).exit_code, 0);
    EXPECT_EQ(contents(folder_ / "out/1_Pooling/config.json"), contents(folder_ / "model/1_Pooling/config.json"));
    const Outcome ours = run({"embed", folder_ / "embeddings"}, {.input = "the dog runs\n"}),
                  theirs = run({"embed", folder_ / "out"}, {.input = "the dog runs\n"});
    EXPECT_EQ(ours.out, theirs.out) << ours.error << theirs.error;
    EXPECT_FALSE(ours.out.empty());
    const Outcome packed = run({"pack", folder_ / "embeddings", "-o", folder_ / "one.linnet", "--overwrite"});
    EXPECT_EQ(packed.exit_code, 0) << packed.error;
    EXPECT_EQ(run({"embed", folder_ / "one.linnet"}, {.input = "the dog runs\n"}).out, ours.out);
    std::filesystem::remove_all(folder_ / "embeddings"), std::filesystem::remove_all(folder_ / "out");
    std::filesystem::remove_all(folder_ / "model");
  }
}

TEST_F(Related, ScoresAreLearned) {
  write_pairs("scored.tsv", "score");
  for (const char* loss : {"cosent", "cosine"}) {
    const Outcome trained = train("embeddings", "scored.tsv",
        {"embeddings.loss=" + std::string(loss), "metric=spearman", "embeddings.dimensions=16,8"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_GT(evaluate(folder_ / "embeddings", "scored.tsv")["spearman"].get<double>(), 0.8) << loss;
    std::filesystem::remove_all(folder_ / "embeddings");
  }
}

// Triplets to learn from and scored pairs to choose by, as is usual; adapters; and a run that is taken up again.
TEST_F(Related, ExamplesToChooseByMayBeOthers) {
  write_pairs("triplets.tsv", "negative");
  write_pairs("scored.tsv", "score");
  const Arguments settings{"data.valid_tsv=" + folder_ / "scored.tsv", "metric=spearman", "lora.rank=4", "max_steps=20",
      "eval_every=10", "save_every=10"};
  ASSERT_EQ(train("embeddings", "triplets.tsv", settings).exit_code, 0);
  const Outcome resumed = run({"train", "--resume", folder_ / "embeddings", "--steps", "30"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  EXPECT_TRUE(evaluate(folder_ / "embeddings", "scored.tsv").contains("spearman"));
  EXPECT_TRUE(evaluate(folder_ / "embeddings", "triplets.tsv").contains("ndcg_10"));
  ASSERT_EQ(run({"export", folder_ / "embeddings", "--adapter", folder_ / "adapter"}).exit_code, 0);
  const Outcome beside = run({"embed", kModel, "--adapter", folder_ / "adapter"}, {.input = "dog\n"}),
                whole = run({"embed", folder_ / "embeddings"}, {.input = "dog\n"});
  EXPECT_EQ(beside.out, whole.out) << beside.error;
  EXPECT_EQ(whole.error.find("not read"), std::string::npos) << whole.error;
  std::string long_text;
  for (int i = 0; i < 5000; ++i) long_text += "dog ";
  const Outcome cut = run({"embed", folder_ / "embeddings"}, {.input = "dog\n" + long_text + "\n"});
  EXPECT_EQ(cut.exit_code, 0);
  EXPECT_NE(cut.error.find("1 of these texts fills the"), std::string::npos) << cut.error;
}

// Micro-batches, and batches that are accumulated, learn as one batch: losses and gradients are those of the whole.
TEST_F(Related, ALargeBatchIsLearnedInParts) {
  std::string rows, scores;
  for (int i = 0; i < 16; ++i) {
    rows += std::string(kWords[i % 8]) + " " + std::to_string(i) + "\t" + kOthers[i % 8] + (i % 3 ? " a b" : "") +
            "\t" + kOthers[(i + 3) % 8] + "\n";
    scores += std::string(kWords[i % 8]) + "\t" + kOthers[i / 2] + "\t0." + std::to_string(i * 7 % 10) + "\n";
  }
  folder_.write("triplets.tsv", rows), folder_.write("scored.tsv", scores);
  for (const std::string data : {"triplets.tsv", "scored.tsv"}) {
    std::vector<ParsedJson> whole;
    for (const Arguments& parts : {Arguments{"batch_size=16"}, Arguments{"batch_size=16", "micro_batches=4"},
             Arguments{"batch_size=4", "accumulate_steps=4"},
             Arguments{"batch_size=8", "micro_batches=4", "accumulate_steps=2"}}) {
      Arguments settings{"max_steps=6", "eval_every=6", "embeddings.dimensions=16,8", "learning_rate=1e-3",
          "data.valid_tsv=" + folder_ / data};
      settings.insert(settings.end(), parts.begin(), parts.end());
      const Outcome trained = train("embeddings", data, settings);
      ASSERT_EQ(trained.exit_code, 0) << trained.error;
      std::vector<ParsedJson> steps;
      for (const std::string& line : lines(contents(folder_ / "embeddings/metrics.jsonl")))
        if (const auto step = ParsedJson::parse(line); step["split"] == "train") steps.push_back(step);
      ASSERT_EQ(steps.size(), 6u);
      if (whole.empty()) whole = steps;
      for (size_t i = 0; i < steps.size(); ++i) {
        EXPECT_NEAR(steps[i]["loss"].get<double>(), whole[i]["loss"].get<double>(), 1e-5) << data << parts.back();
        EXPECT_NEAR(steps[i]["grad_norm"].get<double>() / whole[i]["grad_norm"].get<double>(), 1, 1e-5)
            << data << parts.back();
      }
      std::filesystem::remove_all(folder_ / "embeddings");
    }
  }
}

// Shards learn apart, and a warning says so; but examples are judged among those of the whole batch, as by `linnet
// eval`.
TEST_F(Related, ShardsAreJudgedByWholeBatches) {
  for (const char* third : {"", "score"}) {
    write_pairs("data.tsv", third);
    Arguments arguments{"train", "embeddings", "--run", folder_ / "run", "--data", folder_ / "data.tsv"};
    add_settings(arguments, {"model.from=" + kModel, "context=24", "batch_size=8", "data_shards=4", "max_steps=4",
                                "eval_every=4", "data.valid_tsv=" + folder_ / "data.tsv"});
    const Outcome trained = run(arguments, {.log = "warning"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_EQ(lines(trained.error).size(), 1u) << trained.error;
    EXPECT_NE(trained.error.find("the 2 of its shard, not with the batch's 8"), std::string::npos) << trained.error;
    const Metrics judged = of_split(read_metrics(folder_ / "run"), "valid").back();
    EXPECT_NEAR(std::stod(judged.loss), evaluate(folder_ / "run", "data.tsv")["loss"].get<double>(), 1e-4);
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(Related, WhatDoesNotFitEmbeddingsIsOneLine) {
  write_pairs("pairs.tsv"), write_pairs("scored.tsv", "score");
  folder_.write("single.tsv", "one text\nanother\n");
  folder_.write("high.csv", "sentence1,sentence2,score\na,b,4.5\nc,d,1\ne,f,2\n");
  folder_.write("some.jsonl",
      "{\"anchor\": \"a\", \"positive\": \"b\", \"negatives\": [\"c\"]}\n{\"anchor\": \"a\", \"positive\": \"b\"}\n");
  folder_.write("blank.tsv", "a\tb\nc\t \n");
  folder_.write("empty.tsv", "");
  std::string equal = "sentence1,sentence2,score\n";
  for (int i = 0; i < 20; ++i) equal += std::string(kWords[i % 8]) + "," + kOthers[i % 8] + ",1\n";
  folder_.write("equal.csv", equal);
  for (const auto& [data, setting, part] :
      {std::tuple{"single.tsv", "seed=1", "single.tsv:1: no field is called \"positive\" (there are 1)"},
          {"high.csv", "embeddings.loss=cosine", "high.csv:2: the score 4.5 is no cosine, from -1 to 1"},
          {"some.jsonl", "seed=1", "some.jsonl:2: 0 negative texts, and 1 in the first record"},
          {"blank.tsv", "seed=1", "blank.tsv:2: a text is empty"},
          {"empty.tsv", "seed=1", "empty.tsv' has no pairs of texts"},
          {"pairs.tsv", "embeddings.loss=cosent", "learns of pairs with scores"},
          {"equal.csv", "seed=1", "learns of pairs with different scores, and all scores are equal"},
          {"pairs.tsv", "batch_size=1", "batch_size = 1 has none"},
          {"pairs.tsv", "embeddings.loss=triplet", "learns of triplets, and the examples have two texts"},
          {"scored.tsv", "embeddings.loss=in_batch", "the pairs have scores (use cosent or cosine)"},
          {"pairs.tsv", "metric=spearman", "metric = \"spearman\" is of pairs with scores"},
          {"pairs.tsv", "embeddings.dimensions=8,64", "embeddings.dimensions: \"64\" is no number from 1 to"},
          {"pairs.tsv", "embeddings.dimensions=sixteen", "embeddings.dimensions: \"sixteen\" is no number"}})
    expect_user_error(train("embeddings", data, {setting}), part);
}

std::string words_between(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += i % 2 ? " q" : " z";
  return text;
}

// "Where is the dog?" has the word behind "dog is" as its answer.
std::string squad(int count, bool lacking) {
  ParsedJson paragraphs = ParsedJson::array();
  for (int i = 0; i < count; ++i) {
    const std::string animal = kWords[i % 2], place = kWords[2 + i % 6];
    const bool has = !lacking || i % 4 != 3;
    std::string context =
        "\xC3\xA9 " + std::string(kOthers[i % 5]) + (has ? " " + animal + " in " + place : " none of it");
    if (lacking && i % 3 == 0) context += words_between(i % 9 * 6);
    ParsedJson answers = ParsedJson::array();
    // Starts count code points: the first character has two bytes.
    if (has) answers.push_back({{"text", place}, {"answer_start", context.find(" in ") + 4 - 1}});
    paragraphs.push_back(
        {{"context", context}, {"qas", {{{"id", std::to_string(i)}, {"question", " where is " + animal},
                                           {"answers", answers}, {"is_impossible", !has}}}}});
  }
  return ParsedJson{{"version", "v2.0"}, {"data", {{{"title", "t"}, {"paragraphs", paragraphs}}}}}.dump();
}

TEST_F(Related, AnswersAreFoundInTexts) {
  folder_.write("train.json", squad(120, false));
  const Outcome planned = run({"plan", "answers", "--data", folder_ / "train.json", "--set", "model.from=" + kModel});
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
  expect_checked("answers", "train.json");
  const Outcome trained = train("answers", "train.json", {"context=48", "answers.stride=4", "max_steps=240"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const ParsedJson measured = evaluate(folder_ / "answers", "train.json");
  EXPECT_GT(measured["exact_match"].get<double>(), 0.9);
  EXPECT_GE(measured["f1"].get<double>(), measured["exact_match"].get<double>());
  ASSERT_EQ(run({"export", folder_ / "answers", "--out", folder_ / "out"}).exit_code, 0);
  EXPECT_EQ(ParsedJson::parse(contents(folder_ / "out/config.json"))["architectures"][0], "BertForQuestionAnswering");
  for (const char* model : {"answers", "out"}) {
    const auto found = predict(folder_ / model, "where is dog\t\xC3\xA9 bark dog in law", {"--top", "2"});
    EXPECT_EQ(found["answer"], "law");
    EXPECT_EQ(found["start"], 14);
    EXPECT_EQ(found["end"], 17);
    ASSERT_EQ(found["top"].size(), 2u);
    EXPECT_EQ(found["top"][0]["score"], found["score"]);
    EXPECT_GT(found["score"].get<double>(), found["top"][1]["score"].get<double>());
  }
  EXPECT_EQ(evaluate(folder_ / "out", "train.json")["f1"], measured["f1"]);
  const Outcome two = run({"predict", folder_ / "out", folder_ / "train.json", "--top", "2"});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_NE(two.error.find("--top 2: --json lists several answers"), two.error.npos) << two.error;
  const Outcome file = run({"predict", folder_ / "out", folder_ / "train.json"});
  ASSERT_EQ(file.exit_code, 0) << file.error;
  ASSERT_EQ(lines(file.out).size(), 120u);
  EXPECT_EQ(lines(file.out)[0].substr(0, 4), "law\t");
}

// In windows of a few tokens a text's answer is in some of them, and where none has one there is none.
TEST_F(Related, ThereMayBeNoAnswer) {
  folder_.write("train.json", squad(120, true));
  const Outcome trained =
      train("answers", "train.json", {"context=40", "answers.stride=8", "max_steps=300", "learning_rate=2e-3"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const ParsedJson measured = evaluate(folder_ / "answers", "train.json");
  EXPECT_GT(measured["answered_f1"].get<double>(), 0.8);
  EXPECT_GT(measured["unanswered_exact_match"].get<double>(), 0.8);
  const auto none = predict(folder_ / "answers", "where is dog\t\xC3\xA9 bark none of it");
  EXPECT_EQ(none["answer"], "");
  EXPECT_FALSE(none.contains("start"));
  // Far behind the first window.
  const std::string far = words_between(60) + " \xC3\xA9 hot cat in rain" + words_between(50);
  EXPECT_EQ(predict(folder_ / "answers", "where is cat\t" + far)["answer"], "rain");
  ASSERT_EQ(run({"export", folder_ / "answers", "--out", folder_ / "out"}).exit_code, 0);
  EXPECT_EQ(predict(folder_ / "out", "where is dog\t\xC3\xA9 bark none of it")["answer"], "");
}

TEST_F(Related, JsonLinesHaveAnswersToo) {
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    const std::string place = kWords[2 + i % 6], context = "dog in " + place;
    ParsedJson row{{"question", "where"}, {"context", context}};
    if (i % 3 == 0) row["answers"] = {{"text", {place}}, {"answer_start", {7}}};
    if (i % 3 == 1) row["answers"] = {place};
    if (i % 3 == 2) row["answers"] = {{{"text", place}, {"answer_start", 7}}};
    rows += row.dump() + "\r\n";
  }
  folder_.write("lines.jsonl", rows);
  const Outcome trained = train("answers", "lines.jsonl", {"lora.rank=4", "max_steps=4", "answers.stride=4"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  ASSERT_EQ(run({"export", folder_ / "answers", "--adapter", folder_ / "adapter"}).exit_code, 0);
  const std::string asked = "where\tdog in law\n";
  const Outcome beside = run({"predict", kModel, "--adapter", folder_ / "adapter"}, {.input = asked}),
                whole = run({"predict", folder_ / "answers"}, {.input = asked});
  EXPECT_EQ(beside.out, whole.out) << beside.error;
  EXPECT_EQ(whole.exit_code, 0) << whole.error;
}

// Also of runs from before this was checked: a long text must not end `predict`.
TEST_F(Related, AStrideThatFillsTheWindowIsShortened) {
  std::string rows;
  for (int i = 0; i < 24; ++i) {
    const std::string place = kWords[2 + i % 6];
    rows += ParsedJson{{"question", "where"}, {"context", "dog in " + place}, {"answers", {place}}}.dump() + "\n";
  }
  folder_.write("short.jsonl", rows);
  for (const char* stride : {"answers.stride=23", "answers.stride=400"}) {
    const Outcome trained = train("answers", "short.jsonl", {"max_steps=1", stride});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    const Outcome found = run({"predict", folder_ / "answers"}, {.input = "where\tdog" + words_between(90) + "\n"});
    EXPECT_EQ(found.exit_code, 0) << found.error;
    EXPECT_EQ(lines(found.out).size(), 1u);
    std::filesystem::remove_all(folder_ / "answers");
  }
  const Outcome told = run({"check", "answers", "--data", folder_ / "short.jsonl", "--set", "model.from=" + kModel,
                               "--set", "context=24", "--set", "answers.stride=24"},
      {.log = "warning"});
  EXPECT_NE(told.error.find("answers.stride = 24 fills a window of 24 tokens"), std::string::npos) << told.error;
}

TEST_F(Related, WhatDoesNotFitAnswersIsOneLine) {
  folder_.write(
      "start.jsonl", R"({"question": "q", "context": "a dog", "answers": [{"text": "dog", "answer_start": 3}]})");
  folder_.write(
      "beyond.jsonl", R"({"question": "q", "context": "a dog", "answers": [{"text": "dog", "answer_start": 9}]})");
  folder_.write("blank.jsonl", R"({"question": "q", "context": " ", "answers": []})");
  folder_.write("absent.jsonl", R"({"question": "q", "context": "a dog", "answers": ["cat"]})");
  folder_.write("table.tsv", "q\ta dog\tdog\n");
  folder_.write("other.json", R"({"rows": []})");
  folder_.write("lacking.json", R"({"data": [{"paragraphs": [{"qas": []}]}]})");
  folder_.write("empty.jsonl", "");
  std::string question;
  for (int i = 0; i < 40; ++i) question += "a ";
  folder_.write("long.jsonl", "{\"question\": \"" + question +
                                  "\", \"context\": \"a b c d e f g h\", \"answers\": [\"c\"]}\n" +
                                  "{\"question\": \"q\", \"context\": \"a\", \"answers\": [\"a\"]}\n"
                                  "{\"question\": \"q\", \"context\": \"b\", \"answers\": [\"b\"]}\n");
  for (const auto& [data, part] :
      {std::pair{"start.jsonl", "the answer 'dog' does not stand at \"answer_start\" 3 of the context"},
          {"beyond.jsonl", "\"answer_start\" is 9, and the context has 5 characters"},
          {"absent.jsonl", "absent.jsonl:1: the answer 'cat' is no part of the context"},
          {"blank.jsonl", "blank.jsonl:1: the context is empty"},
          {"table.tsv", "are in a file of SQuAD's form (.json) or in JSON lines (.jsonl)"},
          {"other.json", "has neither SQuAD's form, an object with \"data\", nor a \"question\" on each line"},
          {"lacking.json", "there is no text \"context\""}, {"empty.jsonl", "empty.jsonl"},
          {"long.jsonl", "long.jsonl:1: a question of 43 tokens leaves no room"}})
    expect_user_error(train("answers", data, {"answers.stride=4"}), part);
}
}  // namespace
}  // namespace linnet::testing
