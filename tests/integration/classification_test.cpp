// A classifier through the command line, from a tiny BERT folder and texts that are easily told apart.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <filesystem>
#include <sstream>
#include "integration/program.h"
#include "parsed_json.h"

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
    // Not (animal ? animals : others)[...]: with UBSan, GCC 12 computes that index for one of the two only.
    const char* word = animal ? animals[i / 2 % 2] : others[i / 2 % 2];
    text += std::string(fillers[i % 5]) + " " + word + " " + fillers[(i + shift) % 4] + (i % 3 == 0 ? " the b" : "") +
            "\t" + (animal ? "animal" : "state") + "\r\n";
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
  Outcome train_classifier(
      const std::string& run_folder, const Arguments& settings = {}, const Arguments& more = {}) const {
    Arguments arguments{"train", "sst2", "--run", folder_ / run_folder};
    const Arguments small{"model.from=" + kGolden + "/bert_model", "data.dir=" + folder_.path(), "context=16",
        "batch_size=8", "max_steps=60", "warmup_steps=5", "learning_rate=3e-3", "eval_every=20", "save_every=10",
        "schedule=constant"};
    add_settings(arguments, small);
    add_settings(arguments, settings);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = "warning"});
  }
  TemporaryFolder folder_;
};

TEST_F(Classification, LearnsToTellTextsApartAndIsExported) {
  const Outcome trained = train_classifier("a");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  // Nothing that was asked for is left out without a word.
  const std::string test = folder_ / "test.tsv";
  expect_user_error(run({"eval", folder_ / "a", "--data", test, "--split", "valid"}), "give either --split or --data");
  expect_user_error(run({"eval", folder_ / "a", "--source", test, "--target", test}), "are for runs of translation");
  const Outcome evaluated = run({"eval", folder_ / "a", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  const auto json = ParsedJson::parse(evaluated.out);
  EXPECT_EQ(json["texts"], 30);
  EXPECT_GT(json["accuracy"], 0.95);
  EXPECT_GT(json["f1"], 0.95);
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  const auto config = ParsedJson::parse(contents(folder_ / "out/config.json"));
  EXPECT_EQ(config["architectures"][0], "BertForSequenceClassification");
  EXPECT_EQ(config["id2label"]["1"], "state");
  EXPECT_TRUE(exists(folder_ / "out/tokenizer.json"));
}

// Without model.from: a vocabulary is learned of the texts, and a small model. What follows is as of any other run.
TEST_F(Classification, ATrainedModelNeedsNothingToStartFrom) {
  for (const char* layers : {"2", "0"}) {
    const std::string whole = folder_ / (std::string("whole") + layers),
                      parts = folder_ / (std::string("parts") + layers), out = folder_ / (std::string("out") + layers);
    const auto train = [&](const std::string& run_folder, const Arguments& more) {
      Arguments arguments{"train", "classify", "--data", folder_ / "train.tsv", "--run", run_folder};
      add_settings(arguments, {"d_model=32", "num_heads=2", "d_ff=64", "vocab_size=60", "context=16", "batch_size=8",
                                  "eval_every=40", "save_every=20", "schedule=constant", "warmup_steps=5"});
      add_settings(arguments,
          {std::string("num_layers=") + layers, *layers == '0' ? "learning_rate=5e-3" : "learning_rate=2e-3"});
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Outcome outcome = run(arguments);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    };
    train(whole, {"--steps", "80"});
    train(parts, {"--steps", "40"});
    train(parts, {"--steps", "80", "--resume"});
    EXPECT_EQ(contents(parts + "/model.safetensors"), contents(whole + "/model.safetensors"));
    const auto scores = ParsedJson::parse(run({"eval", whole, "--data", folder_ / "test.tsv", "--json"}).out);
    EXPECT_GT(scores["accuracy"], 0.95) << layers;
    EXPECT_EQ(scores["confusion"][0].size(), 2u);
    EXPECT_EQ(scores["classes"]["animal"]["support"].get<int>() + scores["classes"]["state"]["support"].get<int>(), 30);
    const Outcome exported = run({"export", whole, "--out", out}, {.log = "warning"});
    ASSERT_EQ(exported.exit_code, 0) << exported.error;
    EXPECT_EQ(exported.error.find("loads no ModernBERT without layers") != std::string::npos, *layers == '0');
    const std::string of_run = run({"predict", whole, folder_ / "test.tsv"}).out;
    EXPECT_FALSE(of_run.empty());
    EXPECT_EQ(run({"predict", out, folder_ / "test.tsv"}).out, of_run);
  }
  const Outcome planned = run({"plan", "classify", "--data", folder_ / "train.tsv"});
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
  const Outcome evaluated = run({"eval", folder_ / "whole2", "--data", folder_ / "test.tsv"});
  EXPECT_NE(evaluated.out.find("macro avg"), std::string::npos) << evaluated.out;
  EXPECT_NE(evaluated.out.find("confusion matrix"), std::string::npos) << evaluated.out;
  ASSERT_EQ(run({"report", folder_ / "whole2", "-o", folder_ / "page.html"}).exit_code, 0);
  EXPECT_NE(contents(folder_ / "page.html").find("\"confusion\":[["), std::string::npos);
}

// A class that no text tells is only guessed where it counts for more than the others.
TEST_F(Classification, ColumnsOfATableAreNamed) {
  std::string rows = "id,kind,body\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i) + (i % 2 ? ",animal,\"the cat, " : ",state,\"the law, ") + std::to_string(i) + "\"\n";
  folder_.write("named.csv", rows);
  Arguments train{"train", "classify", "--data", folder_ / "named.csv", "--run", folder_ / "named", "--steps", "60",
      "--text-column", "body", "--label-column", "kind", "--set", "d_model=16", "--set", "num_layers=0", "--set",
      "context=8"};
  const Outcome trained = run(train);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome predicted = run({"predict", folder_ / "named", folder_ / "named.csv"});
  EXPECT_EQ(predicted.out.substr(0, 6), "state\t") << predicted.error;
  train[9] = "bdy";
  train[5] = folder_ / "other";
  const Outcome unknown = run(train);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.error.find("no field \"bdy\""), std::string::npos) << unknown.error;
}

TEST_F(Classification, TextsThatAreCutAreCounted) {
  std::string table;
  for (int i = 0; i < 40; ++i)
    table += std::string(i % 4 == 0 ? "red red red red red red red red red" : "red") + (i % 2 ? "\ta\n" : "\tb\n");
  folder_.write("long.tsv", table);
  const Outcome outcome =
      train_classifier("cut", {"data.train_tsv=long.tsv", "data.valid_tsv=long.tsv", "context=8", "max_steps=1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("texts are longer than 8 tokens and are cut there"), std::string::npos) << outcome.error;
  std::string lines = "red\n";
  const auto told = [&] { return run({"predict", folder_ / "cut"}, {.input = lines, .log = "warning"}).error; };
  EXPECT_EQ(told(), "");
  for (int i = 0; i < 40; ++i) lines += "red red red red red red red red red\n";
  EXPECT_EQ(told(),
      "linnet: warning: a text fills the 8 tokens that the model reads; what may follow them is not read (this is told "
      "once)\n");
}

TEST_F(Classification, RareClassesAreLearnedWhereTheyCountMore) {
  std::string rows = "text\tlabel\n";
  for (uint32_t i = 0; i < 400; ++i)
    rows += "cat " + std::to_string(i) + "\t" + ((i * 2654435761u >> 16) % 10 < 2 ? "rare" : "usual") + "\n";
  folder_.write("rare.tsv", rows);
  const auto recall = [&](const std::string& weights) {
    const std::string run_folder = folder_ / ("rare_" + std::to_string(weights.size()));
    Arguments arguments{"train", "classify", "--data", folder_ / "rare.tsv", "--run", run_folder, "--steps", "40",
        "--set", "d_model=16", "--set", "num_layers=0", "--set", "context=8", "--set", "metric=loss", "--set",
        "class_weights=" + weights};
    const Outcome trained = run(arguments);
    EXPECT_EQ(trained.exit_code, 0) << trained.error;
    return ParsedJson::parse(run({"eval", run_folder, "--json"}).out)["classes"]["rare"]["recall"].get<double>();
  };
  EXPECT_EQ(recall(""), 0);
  EXPECT_GT(recall("rare=50"), 0);
  const Outcome unknown = train_classifier("none", {"class_weights=anmal=2"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.error.find("did you mean \"animal\""), std::string::npos) << unknown.error;
}

// A network of an ONNX file: with classes of its own, which keep their numbers, and one that gets a new head.
TEST_F(Classification, AnOnnxFileIsTrainedResumedAndExportedAgain) {
  ASSERT_EQ(train_classifier("a", {"max_steps=20"}).exit_code, 0);
  // What a killed export has left goes; what another export uses and what is not an export's stays.
  for (const char* name : {"Killed", "InUse0", "Mine00"}) {
    const std::string left = std::string("classes.folder.") + name;
    std::filesystem::create_directory(folder_ / left);
    folder_.write(left + "/model.safetensors", "half of it");
    if (name != std::string_view("Mine00")) folder_.write(left + "/.lock", "");
  }
  std::FILE* in_use = std::fopen((folder_ / "classes.folder.InUse0/.lock").c_str(), "r+");
  ASSERT_EQ(::flock(::fileno(in_use), LOCK_EX | LOCK_NB), 0);
  ASSERT_EQ(run({"export", folder_ / "a", "--onnx", folder_ / "classes"}).exit_code, 0);
  EXPECT_FALSE(exists(folder_ / "classes.folder.Killed"));
  for (const char* name : {"InUse0", "Mine00"})
    EXPECT_TRUE(exists(folder_ / (std::string("classes.folder.") + name + "/model.safetensors"))) << name;
  std::fclose(in_use);
  ASSERT_EQ(run({"export", kGolden + "/bert_model", "--onnx", folder_ / "states"}).exit_code, 0);
  for (const std::string network : {"classes", "states"}) {
    const Arguments from{"model.from=" + (folder_ / network) + "/model.onnx"};
    Arguments half = from;
    half.emplace_back("max_steps=30");
    const std::string parts = network + "_run", whole = network + "_whole", out = network + "_out";
    ASSERT_EQ(train_classifier(parts, half).exit_code, 0);
    const Outcome resumed = train_classifier(parts, from, {"--resume"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
    ASSERT_EQ(train_classifier(whole, from).exit_code, 0);
    EXPECT_EQ(of_split(read_metrics(folder_ / parts), "train"), of_split(read_metrics(folder_ / whole), "train"));
    EXPECT_GT(ParsedJson::parse(run({"eval", folder_ / parts, "--json"}).out)["accuracy"], 0.95);

    // What is exported is trained from as well, and begins where the run ended.
    ASSERT_EQ(run({"export", folder_ / parts, "--onnx", folder_ / out}).exit_code, 0);
    EXPECT_EQ(ParsedJson::parse(contents(folder_ / (out + "/config.json")))["id2label"]["1"], "state");
    const Outcome again = train_classifier(out + "_run",
        {"model.from=" + (folder_ / out) + "/model.onnx", "max_steps=1", "learning_rate=1e-9", "eval_every=1"});
    ASSERT_EQ(again.exit_code, 0) << again.error;
    EXPECT_EQ(run({"predict", folder_ / parts, folder_ / "test.tsv"}).out.substr(0, 5),
        run({"predict", folder_ / (out + "_run"), folder_ / "test.tsv"}).out.substr(0, 5));
    EXPECT_GT(ParsedJson::parse(run({"eval", folder_ / (out + "_run"), "--json"}).out)["accuracy"], 0.95);
  }
}

TEST_F(Classification, AnOnnxFileThatDoesNotFitIsOneLine) {
  ASSERT_EQ(run({"export", kGolden + "/bert_masked", "--onnx", folder_ / "tokens"}).exit_code, 0);
  ASSERT_EQ(
      run({"export", kGolden + "/bert_model", "--onnx", folder_ / "int8", "--precision", "int8-qdq"}).exit_code, 0);
  ASSERT_EQ(run({"export", kGolden + "/bert_model", "--onnx", folder_ / "alone"}).exit_code, 0);
  std::filesystem::remove(folder_ / "alone/vocab.txt");
  std::filesystem::copy_file(kGolden + "/bert_model/vocab.txt", folder_ / "tokens/vocab.txt",
      std::filesystem::copy_options::overwrite_existing);
  for (const auto& [network, part] : {std::pair{"int8", "is quantized (DequantizeLinear"},
           {"alone", "has no tokenizer"}, {"tokens", "gives neither logits"}, {"missing", "No such file"}}) {
    const std::string folder = folder_ / network;
    const Outcome outcome = train_classifier("b", {"model.from=" + folder + "/model.onnx"});
    EXPECT_EQ(outcome.exit_code, 2) << network;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
}

TEST_F(Classification, LearnsWithAdaptersAloneWhichAreExportedAndMerged) {
  const Arguments lora{"lora.rank=4", "lora.targets=all-linear", "learning_rate=1e-2"};
  const Outcome trained = train_classifier("a", lora);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_GT(ParsedJson::parse(run({"eval", folder_ / "a", "--json"}).out)["accuracy"], 0.9);
  // The whole model, and base and adapters put together later, are the same weights.
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  const Outcome exported = run({"export", folder_ / "a", "--adapter", folder_ / "adapter"});
  ASSERT_EQ(exported.exit_code, 0) << exported.error;
  const auto config = ParsedJson::parse(contents(folder_ / "adapter/adapter_config.json"));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  const Outcome merged = run({"convert", kGolden + "/bert_model", folder_ / "merged", "--merge", folder_ / "adapter"});
  ASSERT_EQ(merged.exit_code, 0) << merged.error;
  for (const char* model : {"out", "merged"})
    ASSERT_TRUE(exists(folder_ / (std::string(model) + "/model.safetensors")));
  EXPECT_EQ(contents(folder_ / "out/model.safetensors"), contents(folder_ / "merged/model.safetensors"));
  EXPECT_EQ(run({"export", folder_ / "a", "--adapter", folder_ / "adapter"}).exit_code, 2);  // is there already
  // Beside the base, without merging: the same classes by their names.
  const auto predicted = [&](const Arguments& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    std::vector<std::pair<std::string, double>> found;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      const auto json = ParsedJson::parse(line);
      found.emplace_back(json["label"], json["probability"]);
    }
    return found;
  };
  const auto of_run = predicted({"predict", folder_ / "a", folder_ / "test.tsv", "--json"}),
             beside = predicted({"predict", kGolden + "/bert_model", "--adapter", folder_ / "adapter",
                 folder_ / "test.tsv", "--json"});
  ASSERT_EQ(of_run.size(), beside.size());
  ASSERT_FALSE(of_run.empty());
  for (size_t i = 0; i < of_run.size(); ++i) {
    EXPECT_EQ(beside[i].first, of_run[i].first);
    EXPECT_NEAR(beside[i].second, of_run[i].second, 1e-5);
  }
  EXPECT_EQ(run({"predict", folder_ / "a", folder_ / "test.tsv", "--adapter", folder_ / "adapter"}).exit_code, 2);

  // All but the adapters and the new head stays as it was, and the run goes on to the same bits.
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  Arguments half = lora;
  half.insert(half.end(), {"max_steps=30"});
  ASSERT_EQ(train_classifier("b", half).exit_code, 0);
  const Outcome resumed = train_classifier("b", lora, {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  EXPECT_EQ(losses("a"), losses("b"));
}

// The base of the adapters in bf16 or int8: it learns as well, resumes bit for bit, and its export loads as any other.
TEST_F(Classification, AdaptersLearnBesideWeightsInFewerBits) {
  for (const std::string storage : {"bf16", "int8"}) {
    const Arguments lora{
        "lora.rank=4", "lora.targets=all-linear", "learning_rate=1e-2", "lora.base_storage=" + storage};
    const std::string whole = "a" + storage, parts = "b" + storage;
    const Outcome trained = train_classifier(whole, lora);
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    EXPECT_GT(ParsedJson::parse(run({"eval", folder_ / whole, "--json"}).out)["accuracy"], 0.9);
    Arguments half = lora;
    half.insert(half.end(), {"max_steps=30"});
    ASSERT_EQ(train_classifier(parts, half).exit_code, 0);
    ASSERT_EQ(train_classifier(parts, lora, {"--resume"}).exit_code, 0);
    EXPECT_EQ(of_split(read_metrics(folder_ / whole), "train"), of_split(read_metrics(folder_ / parts), "train"));
    ASSERT_EQ(run({"export", folder_ / whole, "--out", folder_ / ("out" + storage)}).exit_code, 0);
    EXPECT_EQ(run({"predict", folder_ / ("out" + storage), folder_ / "test.tsv"}).exit_code, 0);
  }
}

TEST_F(Classification, AdaptersThatCannotBeAreOneLine) {
  for (const auto& [setting, part] :
      {std::pair{"lora.targets=c_attn", "needs lora.rank"}, {"lora.base_storage=int8", "needs lora.rank"},
          {"lora.alpha=8", "needs lora.rank"}, {"lora.rank=-1", "at least 0"}}) {
    const Outcome outcome = train_classifier("a", {setting});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  const Outcome outcome = train_classifier("a", {"lora.rank=2", "lora.targets=c_attn"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.error.find("it has dense, key, query, value"), std::string::npos) << outcome.error;
}

// The fields of a line, which tabs divide.
std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> result(1);
  for (const char c : line)
    if (c == '\t') result.emplace_back();
    else result.back() += c;
  return result;
}

// A run keeps whole paths; its data may move.
TEST_F(Classification, DataThatMovedAreFoundInTheirNewFolder) {
  Arguments relative{"train", "classify", "--data", folder_ / "train.tsv", "--run", folder_ / "a"};
  add_settings(relative, {"model.from=" + kGolden + "/bert_model", "data.test_tsv=" + (folder_ / "test.tsv"),
                             "context=16", "max_steps=4"});
  const Outcome trained = run(relative);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome before = run({"eval", folder_ / "a", "--json"});
  ASSERT_EQ(before.exit_code, 0) << before.error;
  std::filesystem::create_directory(folder_ / "moved");
  std::filesystem::rename(folder_ / "test.tsv", folder_ / "moved/test.tsv");
  EXPECT_EQ(run({"eval", folder_ / "a"}).exit_code, 2);
  const Outcome after = run({"eval", folder_ / "a", "--json", "--data-dir", folder_ / "moved"});
  ASSERT_EQ(after.exit_code, 0) << after.error;
  EXPECT_EQ(ParsedJson::parse(after.out)["accuracy"], ParsedJson::parse(before.out)["accuracy"]);
}

TEST_F(Classification, PredictsAsItIsEvaluated) {
  // Too short to learn all of it, so that accuracy says something.
  ASSERT_EQ(train_classifier("a", {"max_steps=6", "eval_every=6", "learning_rate=5e-4"}).exit_code, 0);
  const auto json = ParsedJson::parse(run({"eval", folder_ / "a", "--json"}).out);
  std::vector<std::string> texts, labels;
  for (const std::string& line : lines(labelled(30, 3))) {
    texts.push_back(fields(line)[0]);
    labels.push_back(fields(line)[1].substr(0, fields(line)[1].find('\r')));
  }
  const Outcome predicted = run({"predict", folder_ / "a", folder_ / "test.tsv", "--top", "2"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.error;
  const std::vector<std::string> out = lines(predicted.out);
  ASSERT_EQ(out.size() + 1, texts.size());  // the heading is no text
  double right = 0;
  for (size_t i = 1; i < texts.size(); ++i) {
    const std::vector<std::string> line = fields(out[i - 1]);
    ASSERT_EQ(line.size(), 5u) << out[i];
    EXPECT_EQ(line[4], texts[i]);
    EXPECT_NEAR(std::stod(line[1]) + std::stod(line[3]), 1, 1e-5);
    EXPECT_GE(std::stod(line[1]), std::stod(line[3]));
    right += line[0] == labels[i];
  }
  EXPECT_DOUBLE_EQ(right / 30, json["accuracy"]);

  // The exported folder, standard input, JSON and CSV say the same.
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  const Outcome piped = run({"predict", folder_ / "out", "--json"}, {.input = texts[1] + "\r\n" + texts[2]});
  ASSERT_EQ(piped.exit_code, 0) << piped.error;
  const auto first = ParsedJson::parse(lines(piped.out)[0]);
  EXPECT_EQ(first["text"], texts[1]);
  EXPECT_EQ(first["label"], fields(out[0])[0]);
  EXPECT_NEAR(first["probability"], std::stod(fields(out[0])[1]), 1e-5);
  const std::string evaluated = run({"eval", folder_ / "out", "--data", folder_ / "test.tsv", "--json"}).out;
  EXPECT_EQ(ParsedJson::parse(evaluated)["accuracy"], json["accuracy"]);
  const Outcome csv = run({"predict", folder_ / "a", "--csv"}, {.input = "a \"dog\", b\n"});
  ASSERT_EQ(lines(csv.out).size(), 2u) << csv.out;
  EXPECT_EQ(lines(csv.out)[0], "label,probability,text");
  EXPECT_TRUE(lines(csv.out)[1].ends_with(",\"a \"\"dog\"\", b\"")) << csv.out;

  const Outcome dash = run({"predict", folder_ / "a", "-", "--csv"}, {.input = "a \"dog\", b\n"});
  EXPECT_EQ(dash.out, csv.out) << dash.error;
  const Outcome table = run({"predict", folder_ / "a"}, {.input = "a good dog\t1\na bad dog\t0\n", .log = "warning"});
  EXPECT_NE(table.error.find("every line has a tab"), table.error.npos) << table.error;
  EXPECT_EQ(lines(table.out).size(), 2u);
  EXPECT_EQ(run({"predict", folder_ / "a"}, {.input = "a\tb\nc\n", .log = "warning"}).error, "");
  const Outcome many = run({"predict", folder_ / "a", "--top", "3"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_NE(many.error.find("the model has 2 classes"), many.error.npos) << many.error;
  EXPECT_NE(run({"score", folder_ / "a"}).error.find("linnet predict"), std::string::npos);
}

TEST_F(Classification, OneFileIsEnough) {
  const Outcome trained = run({"train", "sst2", "--run", folder_ / "a", "--data", folder_ / "train.tsv", "--set",
      "model.from=" + kGolden + "/bert_model", "--set", "context=16", "--batch", "8", "--steps", "60", "--lr", "3e-3",
      "--set", "warmup_steps=5", "--set", "eval_every=20"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const auto json = ParsedJson::parse(run({"eval", folder_ / "a", "--json"}).out);
  EXPECT_EQ(json["split"], "valid");
  EXPECT_EQ(json["texts"], 12);  // a tenth of each label
  EXPECT_GT(json["accuracy"], 0.9);
}

TEST_F(Classification, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train_classifier("straight").exit_code, 0);
  ASSERT_EQ(train_classifier("resumed", {"max_steps=35"}).exit_code, 0);
  ASSERT_EQ(train_classifier("resumed", {}, {"--resume"}).exit_code, 0);
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  EXPECT_EQ(losses("resumed"), losses("straight"));
}

double accuracy(const Arguments& arguments) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  return ParsedJson::parse(outcome.out)["accuracy"];
}

// Calibrated once, a run answers in static int8 wherever it is opened, until another precision is asked for.
TEST_F(Classification, RunsInStaticInt8AfterCalibration) {
  ASSERT_EQ(train_classifier("a").exit_code, 0);
  for (const std::string method : {"minmax", "percentile", "entropy"}) {
    const std::string out = folder_ / method;
    const Outcome quantized =
        run({"quantize", folder_ / "a", "--calibrate", folder_ / "train.tsv", "--method", method, "-o", out});
    ASSERT_EQ(quantized.exit_code, 0) << quantized.error;
    EXPECT_NE(quantized.out.find("static int8, scales by " + method + " of 120 examples"), std::string::npos);
    EXPECT_FALSE(exists(out + "/training_state.safetensors"));
    EXPECT_GT(accuracy({"eval", out, "--json"}), 0.9) << method;
  }
  const std::string out = folder_ / "minmax";
  const auto predict = [&](const std::string& model, const Arguments& more) {
    Arguments arguments{"predict", model, folder_ / "test.tsv", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  };
  const std::string fixed = predict(out, {});
  EXPECT_EQ(predict(out, {"--quantize", "static"}), fixed);
  EXPECT_EQ(predict(out, {"--threads", "1"}), fixed);
  EXPECT_NE(predict(out, {"--quantize", "int8"}), fixed);
  EXPECT_EQ(predict(out, {"--quantize", "none"}), predict(folder_ / "a", {}));
  EXPECT_NE(predict(out, {"--keep", "*linear2*"}), fixed);
  ASSERT_EQ(run({"pack", out, "-o", folder_ / "a.linnet"}).exit_code, 0);
  EXPECT_EQ(predict(folder_ / "a.linnet", {}), fixed);
  // An exported folder, and the scales in the model's own folder.
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "exported"}).exit_code, 0);
  const Outcome added =
      run({"quantize", folder_ / "exported", "--calibrate", folder_ / "train.tsv", "-o", folder_ / "exported"});
  ASSERT_EQ(added.exit_code, 0) << added.error;
  EXPECT_EQ(predict(folder_ / "exported", {}), fixed);
}

TEST_F(Classification, CalibrationThatCannotBeIsOneLine) {
  ASSERT_EQ(train_classifier("a", {"max_steps=2"}).exit_code, 0);
  folder_.write("few.txt", "the dog\nthe cat\n");
  folder_.write("empty.txt", "\n \n");
  const auto refused = [&](const Arguments& arguments, const std::string& part) {
    expect_user_error(run(arguments), part);
  };
  const auto quantize = [&](const std::string& file, const std::string& out, const std::string& method) {
    return Arguments{"quantize", folder_ / "a", "--calibrate", folder_ / file, "-o", folder_ / out, "--method", method};
  };
  refused(quantize("few.txt", "b", "minmax"), "holds 2 examples; calibration needs at least 8");
  refused(quantize("empty.txt", "b", "minmax"), "holds no examples to calibrate on");
  refused(quantize("missing.txt", "b", "minmax"), "missing.txt");
  refused(quantize("a", "b", "minmax"), "is a folder; this model reads text");
  refused(quantize("train.tsv", "b", "mean"), "mean");
  EXPECT_FALSE(exists(folder_ / "b"));
  refused(quantize("train.tsv", "train.tsv", "minmax"), "exists already");
  refused({"predict", folder_ / "a", "--quantize", "static"}, "has no scales for static int8; `linnet quantize");
  refused({"quantize", folder_ / "a", "--calibrate", folder_ / "train.tsv", "-o", folder_ / "c", "--keep", "zzz*"},
      "no parameter of the model is called \"zzz*\"");
  ASSERT_EQ(run(quantize("train.tsv", "b", "minmax")).exit_code, 0);
  refused({"quantize", folder_ / "b", "--calibrate", folder_ / "train.tsv", "-o", folder_ / "c"},
      "is quantized already (by minmax)");
  folder_.write("b/quantization.json", "{\"format\": \"linnet static int8\", \"version\": 2}");
  refused({"predict", folder_ / "b", folder_ / "few.txt"}, "is of version 2; this program reads version 1");
  folder_.write("b/quantization.json", "{\"format\": ");
  refused({"predict", folder_ / "b", folder_ / "few.txt"}, "is damaged");
}

// Trained with the rounding errors of static int8, a run needs no calibration: its steps are its scales.
TEST_F(Classification, TrainedForStaticInt8ItRunsSoAndResumesBitForBit) {
  const Outcome trained = train_classifier("a", {"quantize=int8"}, {});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_GT(accuracy({"eval", folder_ / "a", "--json"}), 0.9);
  // What evaluation has computed while training is what int8 computes: both decide alike.
  const Outcome evaluated = run({"eval", folder_ / "a", "--split", "valid", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  double best = 0;
  for (const std::string& line : lines(contents(folder_ / "a/metrics.jsonl")))
    if (const auto json = ParsedJson::parse(line); json["split"] == "valid")
      best = std::max(best, json["accuracy"].get<double>());
  EXPECT_NEAR(ParsedJson::parse(evaluated.out)["accuracy"], best, 0.03);
  EXPECT_NE(run({"predict", folder_ / "a", folder_ / "test.tsv", "--json"}).out,
      run({"predict", folder_ / "a", folder_ / "test.tsv", "--json", "--quantize", "none"}).out);
  const Outcome again = run({"quantize", folder_ / "a", "--calibrate", folder_ / "train.tsv", "-o", folder_ / "again"});
  EXPECT_NE(again.error.find("is quantized already (by training)"), std::string::npos) << again.error;
  for (const char* word : {"none", "int8"}) {
    const std::string file = folder_ / (std::string(word) + ".linnet");
    ASSERT_EQ(run({"pack", folder_ / "a", "-o", file, "--quantize", word}).exit_code, 0);
    EXPECT_EQ(run({"predict", file, folder_ / "test.tsv", "--json"}).out,
        run({"predict", folder_ / "a", folder_ / "test.tsv", "--json"}).out);
  }

  ASSERT_EQ(train_classifier("b", {"quantize=int8", "max_steps=35"}).exit_code, 0);
  ASSERT_EQ(train_classifier("b", {"quantize=int8"}, {"--resume"}).exit_code, 0);
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  EXPECT_EQ(losses("a"), losses("b"));

  // From a run in fp32, and as a folder for others.
  ASSERT_EQ(train_classifier("fp32", {"max_steps=30"}).exit_code, 0);
  const Outcome tuned = train_classifier("tuned", {"quantize=int8", "max_steps=20"}, {"--init", folder_ / "fp32"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.error;
  ASSERT_EQ(run({"export", folder_ / "tuned", "--out", folder_ / "out"}).exit_code, 0);
  EXPECT_EQ(run({"predict", folder_ / "out", folder_ / "test.tsv"}).out,
      run({"predict", folder_ / "tuned", folder_ / "test.tsv"}).out);
  const Outcome refused = train_classifier("c", {"quantize=int8", "lora.rank=2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.error.find("it needs lora.rank = 0"), std::string::npos) << refused.error;
}

TEST_F(Classification, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& settings, const std::string& part) {
    expect_user_error(train_classifier("refused", settings), part);
  };
  folder_.write("odd.tsv", "the dog\tanimal\r\nthe law\tplant\r\n");
  refused({"valid_tsv=odd.tsv"}, "the label 'plant' is none of the 2 the model was trained on: ");
  folder_.write("one.tsv", "the dog\tanimal\r\nthe cat\tanimal\r\n");
  refused({"train_tsv=one.tsv"}, "has one label only");
  folder_.write("tabs.tsv", "the dog\tanimal\r\nno label here\r\n");
  refused({"train_tsv=tabs.tsv"}, "tabs.tsv:2: 1 field, where the first line has 2");
  folder_.write("none.tsv", "the dog\tanimal\r\nthe law\t \r\n");
  refused({"train_tsv=none.tsv"}, "none.tsv:2: the label is empty");
  refused({"model.from=", "num_heads=7"}, "d_model = 384 is not divisible by num_heads = 7");
  // A run that was refused leaves no folder behind.
  EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
}

// A heading or a slip of the pen becomes a class that the log shows; spaces around a label do not make another one.
TEST_F(Classification, TheLogShowsTheClasses) {
  std::string text = "Review text\tsentiment\n";
  for (int i = 0; i < 70; ++i) text += i % 2 ? "the dog\tanimal \n" : "the law\t state\n";
  folder_.write("reviews.tsv", text);
  const Outcome outcome = run({"train", "sst2", "--run", folder_ / "run", "--data", folder_ / "reviews.tsv", "--set",
                                  "model.from=" + kGolden + "/bert_model", "--set",
                                  "valid_tsv=" + folder_ / "train.tsv", "--set", "context=16", "--steps", "1"},
      {.log = "info"});
  EXPECT_NE(outcome.error.find("classes: animal: 35, state: 35, sentiment: 1"), outcome.error.npos) << outcome.error;
  EXPECT_NE(outcome.error.find("the label 'sentiment' occurs once in the training file: check that it is meant as a "
                               "class; if line 1 is a heading, --label-column NAME says so"),
      outcome.error.npos)
      << outcome.error;
}
}  // namespace
}  // namespace linnet::testing
