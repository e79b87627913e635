// Model folders through the command line: what was exported is scored and written with as its makers say, and what is
// broken is one line.
#include <gtest/gtest.h>
#include <cmath>
#include <filesystem>
#include <functional>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
namespace fs = std::filesystem;
using json = ParsedJson;

std::string some_text() {
  const char* words[] = {"the", "cat", "sat", "on", "a", "mat", "and", "slept"};
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 800; ++i) {
    random = random * 1664525 + 1013904223;
    text += words[random >> 29];
    text += i % 9 == 8 ? "\n" : " ";
  }
  return text;
}

// A run of a few steps with a byte-level BPE, and "model", what `export` makes of it.
class ModelFolder : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<TemporaryFolder>();
    made_->write("input.txt", some_text());
    const auto must = [](const Arguments& arguments) {
      const Outcome outcome = run(arguments);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    };
    must({"tokenizer", "train", *made_ / "tokenizer", *made_ / "input.txt", "--vocab-size", "270"});
    Arguments train{"train", "shakespeare", "--run", *made_ / "run"};
    add_settings(
        train, {"data.dir=" + made_->path(), "tokenizer_dir=" + *made_ / "tokenizer", "architecture=gpt", "d_model=16",
                   "d_ff=32", "num_heads=2", "num_layers=1", "max_seq_len=32", "batch_size=4", "max_steps=20",
                   "eval_every=20", "learning_rate=0.01", "warmup_steps=5", "sample_length=0", "precision=fp32"});
    must(train);
    must({"export", *made_ / "run", "--out", *made_ / "model"});
  }
  static void TearDownTestSuite() { made_.reset(); }

  ModelFolder() { copy_folder(*made_ / "model", model_); }

  Outcome generate(const Arguments& more = {}) const {
    Arguments arguments{"generate", model_, "--prompt", "the cat"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = "warning"});
  }
  void change(const std::string& file, const std::function<void(json&)>& edit) const {
    const std::string path = model_ + "/" + file;
    json value = exists(path) ? json::parse(contents(path)) : json::object();
    edit(value);
    folder_.write("model/" + file, value.dump());
  }
  void makers_say(const json& settings) const {
    change("generation_config.json", [&](json& value) { value = settings; });
  }
  // Each of the commands that read a model ends with exit code 2 and one line that holds `part`, and writes nothing.
  void expect_refused(
      const std::string& part, const Arguments& names = {"info", "convert", "export", "generate", "eval"}) {
    const std::map<std::string, Arguments> commands{{"info", {"info", model_}},
        {"convert", {"convert", model_, folder_ / "out"}}, {"export", {"export", model_, "--out", folder_ / "out"}},
        {"generate", {"generate", model_, "--prompt", "a", "--max-tokens", "2"}},
        {"eval", {"eval", model_, "--data", *made_ / "input.txt", "--json"}}, {"embed", {"embed", model_}},
        {"tokenizer", {"tokenizer", "encode", model_}}};
    for (const std::string& name : names) {
      const Outcome outcome = run(commands.at(name), {.input = "a\n", .log = "warning"});
      EXPECT_EQ(outcome.exit_code, 2) << name << ": " << part;
      EXPECT_NE(outcome.error.find(part), std::string::npos) << name << ": " << outcome.error;
      EXPECT_EQ(lines(outcome.error).size(), 1u) << name << ": " << outcome.error;
      EXPECT_FALSE(exists(folder_ / "out/config.json")) << name;
    }
    fs::remove_all(model_);
    copy_folder(*made_ / "model", model_);
  }

  static std::unique_ptr<TemporaryFolder> made_;
  TemporaryFolder folder_;
  const std::string model_ = folder_ / "model";
};

std::unique_ptr<TemporaryFolder> ModelFolder::made_;

TEST_F(ModelFolder, IsScoredAsTheRunItCameFrom) {
  const auto score = [&](const std::string& of) {
    const Outcome outcome = run({"eval", of, "--data", *made_ / "input.txt", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return json::parse(outcome.out);
  };
  const json ours = score(model_), runs = score(*made_ / "run");
  EXPECT_EQ(ours["words"], 800);
  EXPECT_EQ(ours["tokens"], runs["tokens"]);
  EXPECT_NEAR(ours["loss"], runs["loss"], 1e-6);
  EXPECT_NEAR(ours["perplexity"], std::exp(ours["loss"].get<double>()), 1e-9);
}

// The tokenizer is part of it: without one the weights would be of no use.
TEST_F(ModelFolder, AnExportThatFailsLeavesNoFile) {
  fs::create_directories(folder_ / "out/tokenizer.json.tmp");  // in the way of what is written first
  const Outcome outcome = run({"export", *made_ / "run", "--out", folder_ / "out"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out"))
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
}

TEST_F(ModelFolder, ALinkToItselfIsNamed) {
  for (const char* name : {"tokenizer_config.json", "config.json", "model.safetensors"}) {
    fs::remove(model_ + "/" + name);
    fs::create_symlink(name, model_ + "/" + name);
    // Of tokenizers only what copies them looks at every file.
    const bool copied = std::string(name) == "tokenizer_config.json";
    expect_refused(name, copied ? Arguments{"convert"} : Arguments{"info", "convert", "export", "generate"});
  }
}

TEST_F(ModelFolder, IsWrittenWithAsItsMakersSay) {
  const std::string text = generate({"--temperature", "0", "--max-tokens", "12"}).out;
  makers_say({{"do_sample", false}, {"max_new_tokens", 12}});
  EXPECT_EQ(generate({"--seed", "7"}).out, text);
  EXPECT_EQ(generate({"--max-tokens", "3"}).out.size() < text.size(), true);
  makers_say({{"do_sample", true}, {"top_k", 1}, {"max_new_tokens", 12}});
  EXPECT_EQ(generate({"--seed", "7"}).out, text);
  EXPECT_NE(generate({"--seed", "7", "--top-k", "0", "--temperature", "5"}).out, text);

  const Outcome ids = run({"tokenizer", "encode", model_}, {.input = text});
  const int first = std::stoi(ids.out);
  makers_say({{"do_sample", false}, {"max_new_tokens", 12}, {"eos_token_id", {261, first}}});
  EXPECT_EQ(generate().out, "\n");
  EXPECT_EQ(generate({"--ignore-end"}).out, text);
  makers_say({{"do_sample", false}, {"max_new_tokens", 12}, {"eos_token_id", {261, first}}, {"min_length", 100}});
  EXPECT_NE(generate().out, "\n");
  makers_say({{"do_sample", false}, {"max_new_tokens", 12}, {"eos_token_id", {261, first}}, {"min_length", 100},
      {"min_new_tokens", 0}});
  EXPECT_EQ(generate().out, "\n");  // the number of new tokens counts, as in transformers
  makers_say({{"num_beams", 3}, {"max_length", 20}});
  EXPECT_EQ(generate().out, generate({"--seed", "5"}).out);  // a search draws nothing

  makers_say({{"do_sample", false}, {"max_new_tokens", 12}, {"penalty_alpha", 0.6}});
  const Outcome warned = generate();
  EXPECT_EQ(warned.out, text);
  EXPECT_NE(warned.error.find("\"penalty_alpha\" is not supported and left out"), std::string::npos);
  makers_say({{"do_sample", false}, {"max_new_tokens", 12}, {"max_time", 2.5}, {"token_healing", true}});
  for (const char* key : {"max_time", "token_healing"})
    EXPECT_NE(generate().error.find("\"" + std::string(key) + "\" is not supported"), std::string::npos) << key;
  makers_say({{"temperature", "hot"}});
  EXPECT_EQ(generate().exit_code, 2);
}

TEST_F(ModelFolder, BrokenFilesAreRefused) {
  fs::remove(model_ + "/config.json");
  expect_refused("config.json");
  folder_.write("model/config.json", "");
  expect_refused("config.json' is not JSON");
  for (const auto& [key, value] : std::map<std::string, json>{{"n_layer", -1}, {"n_layer", 1 << 30}, {"n_head", 3},
           {"n_embd", 1 << 30}, {"n_positions", 1 << 30}, {"layer_norm_epsilon", -1}}) {
    change("config.json", [&](json& config) { config[key] = value; });
    expect_refused(key == "n_embd" || key == "n_positions" ? "" : key);
  }
  fs::remove(model_ + "/model.safetensors");
  EXPECT_NE(run({"info", model_}).out.find("none: config.json alone"), std::string::npos);
  expect_refused("has no model.safetensors", {"convert", "export", "generate", "eval"});
  folder_.write("model/model.safetensors", "");
  expect_refused("model.safetensors' is empty");
  fs::resize_file(model_ + "/model.safetensors", fs::file_size(model_ + "/model.safetensors") - 4);
  expect_refused("is not a valid safetensors file");
  fs::remove(model_ + "/tokenizer.json");
  expect_refused("holds no tokenizer", {"export", "tokenizer"});
  fs::remove(model_ + "/tokenizer.json");
  expect_refused("its text is token numbers", {"generate", "eval"});
  folder_.write("model/tokenizer.json", "{");
  expect_refused("tokenizer.json", {"export", "generate", "eval", "tokenizer"});
  expect_refused("sentence embeddings are of \"bert\"", {"embed"});
}

TEST_F(ModelFolder, WhatIsNoDecoderIsNamed) {
  const auto refused = [](const Arguments& arguments, const std::string& part) {
    expect_user_error(run(arguments), part);
  };
  const std::string bert = LINNET_GOLDEN "/bert_model", t5 = LINNET_GOLDEN "/t5";
  refused({"generate", bert, "--prompt", "a"}, "is a BertModel, which does not predict the next token");
  refused({"generate", t5, "--prompt", "a"}, "holds no tokenizer");  // an encoder-decoder answers, with a tokenizer
  refused({"eval", t5, "--data", *made_ / "input.txt"}, "expected source<TAB>target");  // of pairs
}

TEST_F(ModelFolder, ANumberlessModelIsTold) {
  std::string bytes = contents(model_ + "/model.safetensors");
  const auto header = static_cast<size_t>(*reinterpret_cast<const uint64_t*>(bytes.data())) + 8;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end(), '\x7f');
  for (size_t i = header; i + 3 < bytes.size(); i += 4) bytes[i + 2] = '\xff';  // 0x7fff7f7f: NaN
  folder_.write("model/model.safetensors", bytes);
  const Outcome outcome = generate();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.error.find("not numbers"), std::string::npos) << outcome.error;
}

TEST_F(ModelFolder, PromptsAndOptionsThatCannotBe) {
  const auto refused = [&](const Arguments& arguments, const std::string& part) {
    expect_user_error(run(arguments), part);
  };
  const auto with = [&](const std::string& prompt, const Arguments& more = {}) {
    Arguments arguments{"generate", model_, "--prompt", prompt};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  std::string long_text;
  for (int i = 0; i < 100; ++i) long_text += "cat ";
  refused(with(long_text), "tokens, and the model takes 32");
  refused(with("caf\xE9"), "not valid UTF-8");
  refused(with("a", {"--max-tokens", "0"}), "--max-tokens");
  refused(with("a", {"--temperature", "nan"}), "temperature");
  refused(with("a", {"--beam", "2", "--top-k", "5"}), "give either --beam or");
  refused(with("a", {"--beam", "2", "--samples", "2"}), "give either --beam or");
  refused({"convert", model_, folder_ / "out", "--shard-gb", "0"}, "--shard-gb");
  refused({"eval", model_}, "--data names a text");
  refused({"eval", model_, "--data", folder_ / "missing.txt"}, "missing.txt");
  // An empty prompt begins a text; nothing but special tokens is a prompt like any other.
  EXPECT_EQ(run(with("", {"--max-tokens", "2"})).exit_code, 0);
  EXPECT_EQ(run(with("<|endoftext|>", {"--max-tokens", "2"})).exit_code, 0);
}

TEST_F(ModelFolder, IsConvertedInItsOwnPlaceAndAFailureLeavesItWhole) {
  const std::string before = contents(model_ + "/model.safetensors");
  EXPECT_EQ(run({"convert", model_, model_, "--shard-gb", "0.00001"}).exit_code, 0);
  EXPECT_FALSE(exists(model_ + "/model.safetensors"));
  EXPECT_EQ(run({"convert", model_, model_}).exit_code, 0);
  EXPECT_EQ(contents(model_ + "/model.safetensors"), before);
  // Something in the way of the third shard: the first two must not be left behind.
  fs::create_directories(folder_ / "out");
  ASSERT_EQ(run({"convert", model_, folder_ / "probe", "--shard-gb", "0.00001"}).exit_code, 0);
  for (const auto& entry : fs::directory_iterator(folder_ / "probe"))
    if (entry.path().filename().string().starts_with("model-00003"))
      fs::create_directories(fs::path(folder_ / "out") / entry.path().filename());
  EXPECT_EQ(run({"convert", model_, folder_ / "out", "--shard-gb", "0.00001"}).exit_code, 2);
  EXPECT_FALSE(exists(folder_ / "out/config.json"));
  for (const auto& entry : fs::directory_iterator(folder_ / "out"))
    EXPECT_FALSE(entry.is_regular_file() && entry.path().extension() != ".json") << entry.path();
}

// Out as ONNX and in again: the same bytes each time, and what is not ONNX or would be overwritten is one line.
TEST(OnnxCommands, ExportAndImport) {
  const TemporaryFolder folder;
  const std::string bert = std::string(LINNET_GOLDEN) + "/bert_model";
  for (const char* name : {"a", "b"}) {
    const Outcome exported = run({"export", bert, "--onnx", folder / name});
    ASSERT_EQ(exported.exit_code, 0) << exported.error;
  }
  EXPECT_EQ(contents(folder / "a/model.onnx"), contents(folder / "b/model.onnx"));
  EXPECT_TRUE(exists(folder / "a/config.json"));
  const Outcome imported = run({"import", folder / "a/model.onnx", "-o", folder / "imported"});
  EXPECT_EQ(imported.exit_code, 0) << imported.error;
  EXPECT_NE(imported.out.find("input input_ids: int64[batch_size, sequence_length]"), imported.out.npos)
      << imported.out;
  EXPECT_NE(imported.out.find("\noutput "), imported.out.npos) << imported.out;
  const Outcome described = run({"info", folder / "imported"});
  EXPECT_EQ(described.exit_code, 0) << described.error;
  EXPECT_EQ(described.out, imported.out);
  expect_user_error(run({"export", bert, "--onnx", folder / "a"}), "holds a model already");
  expect_user_error(
      run({"import", folder.write("text.onnx", "no model"), "-o", folder / "none"}), "is no ONNX model or is damaged");
  expect_user_error(run({"onnx", "test", folder / "a"}), "holds no tests");  // a model without data to compare with
  EXPECT_FALSE(exists(folder / "none"));
}

TEST(BenchCommand, EncodersOfEveryFamilyAreMeasuredAsEncoders) {
  for (const char* name : {"bert_model", "distilbert_model", "modernbert_model"}) {
    const Outcome measured = run({"bench", "infer", "--model", std::string(LINNET_GOLDEN) + "/" + name, "--batches",
        "2", "--lengths", "8", "--precisions", "fp32", "--seconds", "0", "--json"});
    ASSERT_EQ(measured.exit_code, 0) << name << ": " << measured.error;
    EXPECT_EQ(json::parse(measured.out)["rows"][0]["batch"], 2) << name;
  }
}
}  // namespace
}  // namespace linnet::testing
