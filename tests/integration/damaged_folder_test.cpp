// BERT, T5 and Marian folders with something wrong in them, through every command that reads one: one line, exit code
// 2, nothing half-written.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
namespace fs = std::filesystem;
using json = ParsedJson;

struct FileTensor {
  json description;  // dtype, shape
  std::string bytes;
};
using Tensors = std::map<std::string, FileTensor>;

Tensors read_tensors(const std::string& path) {
  const std::string file = contents(path);
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  Tensors result;
  const json header = json::parse(file.substr(8, size));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
    result[name] = {{{"dtype", value["dtype"]}, {"shape", value["shape"]}}, file.substr(8 + size + begin, end - begin)};
  }
  return result;
}

std::string file_of(const Tensors& tensors) {
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = tensor.description;
    header[name]["data_offsets"] = {data.size(), data.size() + tensor.bytes.size()};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data;
}

void fill(FileTensor& tensor, float value) {
  for (size_t i = 0; i + 3 < tensor.bytes.size(); i += 4) std::memcpy(&tensor.bytes[i], &value, 4);
}

class DamagedFolder : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<TemporaryFolder>();
    copy_folder(LINNET_GOLDEN "/bert_model", *made_ / "bert");
    std::string source, target, labelled = "sentence\tlabel\n";
    for (int i = 0; i < 120; ++i) {
      source += i % 3 == 0 ? "red house\n" : i % 3 == 1 ? "small stone\n" : "green river and red stone\n";
      target += i % 3 == 0 ? "rotes Haus\n" : i % 3 == 1 ? "kleiner Stein\n" : "Fluss und Stein\n";
      labelled += i % 2 == 0 ? "the dog\t0\n" : "a cat\t1\n";
    }
    made_->write("source.txt", source);
    made_->write("target.txt", target);
    for (const char* name : {"train.tsv", "dev.tsv", "test.tsv"}) made_->write(name, labelled);
    for (const std::string kind : {"t5", "marian"}) {
      const Outcome trained = run(train_arguments_of(kind, *made_ / (kind + "_run"), {}));
      ASSERT_EQ(trained.exit_code, 0) << trained.error;
      const Outcome exported = run({"export", *made_ / (kind + "_run"), "--out", *made_ / kind});
      ASSERT_EQ(exported.exit_code, 0) << exported.error;
    }
  }
  static void TearDownTestSuite() { made_.reset(); }

  static Arguments train_arguments_of(const std::string& kind, const std::string& run_folder, const Arguments& more) {
    Arguments arguments{"train", kind == "bert" ? "sst2" : "t5-small", "--run", run_folder};
    Arguments settings{"max_steps=1", "eval_every=1", "batch_size=8", "precision=fp32", "warmup_steps=0"};
    if (kind == "bert") {
      settings.insert(settings.end(), {"data.dir=" + made_->path(), "context=16"});
    } else {
      arguments.insert(arguments.end(), {"--source", *made_ / "source.txt", "--target", *made_ / "target.txt"});
      settings.insert(settings.end(),
          {"max_seq_len=16", "vocab_size=30", "batch_tokens=0", "held_out_pairs=20", "metric=loss", "num_buckets=1"});
      if (!starts_from_folder(more))
        settings.insert(settings.end(), {"d_model=16", "d_ff=32", "num_heads=2", "num_layers=1"});
      if (kind == "marian") settings.emplace_back("architecture=marian");
      if (kind == "marian" && !starts_from_folder(more)) settings.emplace_back("norm=post");
    }
    settings.insert(settings.end(), more.begin(), more.end());
    add_settings(arguments, settings);
    return arguments;
  }

  DamagedFolder() { restore(); }
  void restore() const {
    fs::remove_all(model_);
    copy_folder(*made_ / kind_, model_);
  }
  std::string path(const std::string& file) const { return model_ + "/" + file; }

  std::map<std::string, Arguments> commands() const {
    std::map<std::string, Arguments> result{{"info", {"info", model_}},
        {"convert", {"convert", model_, folder_ / "out"}}, {"export", {"export", model_, "--out", folder_ / "out"}},
        {"train", train_arguments_of(kind_, folder_ / "run", {"model.from=" + model_})}};
    if (kind_ == "bert") {
      result["embed"] = {"embed", model_};
      return result;
    }
    result["generate"] = {"generate", model_, "--prompt", "red house", "--max-tokens", "3"};
    result["translate"] = {"translate", model_};
    result["eval"] = {"eval", model_, "--source", *made_ / "source.txt", "--target", *made_ / "target.txt", "--json"};
    return result;
  }

  // What of `names` the family has, or everything, is refused with `part`; then the folder is whole again.
  void expect_refused(const std::string& part, const Arguments& names = {}) const {
    for (const auto& [name, arguments] : commands()) {
      if (!names.empty() && std::ranges::find(names, name) == names.end()) continue;
      const Outcome outcome = run(arguments, {.input = "red house\n", .log = "warning"});
      EXPECT_EQ(outcome.exit_code, 2) << kind_ << " " << name << ": " << part;
      EXPECT_EQ(lines(outcome.error).size(), 1u) << name << ": " << outcome.error;
      EXPECT_NE(outcome.error.find(part), std::string::npos) << kind_ << " " << name << ": " << outcome.error;
      EXPECT_EQ(outcome.out, "") << name;
      EXPECT_FALSE(exists(folder_ / "out/config.json")) << name;
      EXPECT_FALSE(exists(folder_ / "run/config.toml")) << name;
    }
    restore();
  }
  void change_tensors(const std::function<void(Tensors&)>& edit) const {
    Tensors tensors = read_tensors(path("model.safetensors"));
    edit(tensors);
    folder_.write("model/model.safetensors", file_of(tensors));
  }
  void set(const std::string& key, const json& value) const {
    json config = json::parse(contents(path("config.json")));
    config[key] = value;
    folder_.write("model/config.json", config.dump());
  }

  static std::unique_ptr<TemporaryFolder> made_;
  TemporaryFolder folder_;
  const std::string kind_ = GetParam(), model_ = folder_ / "model";
  const std::string tensor_ = kind_ == "bert" ? "encoder.layer.0.output.dense.weight"
                              : kind_ == "t5" ? "encoder.block.0.layer.0.SelfAttention.q.weight"
                                              : "model.encoder.layers.0.fc1.weight";
};

std::unique_ptr<TemporaryFolder> DamagedFolder::made_;

const Arguments kWhatLoadsWeights{"convert", "embed", "generate", "translate", "eval", "train"};

TEST_P(DamagedFolder, TensorsThatAreNotTheModels) {
  change_tensors([&](Tensors& tensors) { tensors.erase(tensor_); });
  expect_refused("has no tensor " + tensor_);
  change_tensors([](Tensors& tensors) { tensors["what.is.this"] = {{{"dtype", "U8"}, {"shape", {1}}}, "x"}; });
  expect_refused("tensor what.is.this is not part of a ");
  change_tensors([&](Tensors& tensors) { tensors[tensor_].description["shape"].push_back(1); });
  expect_refused("expected the shape [");
  change_tensors([&](Tensors& tensors) { tensors[tensor_].description["dtype"] = "I32"; });
  expect_refused("expected a floating-point type");
  change_tensors([&](Tensors& tensors) { tensors[tensor_].description["dtype"] = "F8_E4M3"; });
  expect_refused("which Linnet does not read");
}

TEST_P(DamagedFolder, WeightsThatAreNotNumbers) {
  change_tensors([&](Tensors& tensors) { tensors[tensor_].bytes.replace(40, 4, "\xff\xff\xff\x7f"); });
  expect_refused("tensor " + tensor_ + " holds values that are not numbers", kWhatLoadsWeights);
  // Infinities are numbers of a file, but nothing can be computed with them.
  change_tensors([](Tensors& tensors) {
    for (auto& [name, tensor] : tensors) fill(tensor, std::numeric_limits<float>::infinity());
  });
  expect_refused("weights are broken", {"embed", "generate", "translate", "eval"});
}

TEST_P(DamagedFolder, FilesThatAreSomethingElse) {
  folder_.write(
      "model/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 90868376\n");
  expect_refused("git lfs pull");
  fs::remove(path("model.safetensors"));
  ASSERT_EQ(mkfifo(path("model.safetensors").c_str(), 0600), 0);
  expect_refused("not a regular file");
  for (const char* name : {"config.json", "vocab.txt", "spiece.model", "source.spm", "vocab.json"}) {
    if (!exists(path(name))) continue;
    fs::remove(path(name));
    ASSERT_EQ(mkfifo(path(name).c_str(), 0600), 0);
    fs::remove(path("tokenizer.json"));  // which goes before T5's spiece.model
    expect_refused(std::string(name) + "': not a regular file", {"embed", "generate", "translate", "eval", "train"});
  }
  folder_.write("model/config.json", std::string(100000, '['));
  expect_refused("config.json");
  fs::remove(path("config.json"));
  fs::create_directories(path("config.json"));
  expect_refused("config.json");
}

TEST_P(DamagedFolder, SizesThatCannotBe) {
  const std::string width = kind_ == "bert" ? "hidden_size" : "d_model", heads = kind_ == "bert" ? "num_attention_heads"
                                                                                 : kind_ == "t5"
                                                                                     ? "num_heads"
                                                                                     : "encoder_attention_heads";
  for (const std::string& key : {std::string("vocab_size"), width, heads})
    for (const json& value : {json(-1), json(0), json(int64_t{1} << 62), json(1e300), json("16"), json(2.5)}) {
      set(key, value);
      expect_refused("config.json", {"info", "convert", "train"});
    }
  if (kind_ == "bert") return;
  for (const char* key : {"decoder_start_token_id", "eos_token_id"}) {
    set(key, int64_t{1} << 32);
    expect_refused("\"" + std::string(key) + "\" is 4294967296", {"generate", "translate", "eval", "train"});
  }
}

TEST_P(DamagedFolder, GenerationSettingsOutOfRange) {
  for (const char* setting :
      {R"("top_p": 1.5)", R"("top_p": 0)", R"("top_p": "high")", R"("top_k": -1)", R"("temperature": -0.5)",
          R"("repetition_penalty": 0)", R"("num_beams": 0)", R"("num_beams": 100000)", R"("early_stopping": "often")",
          R"("max_new_tokens": -5)", R"("eos_token_id": [1, 9999999999])", R"("length_penalty": "long")"}) {
    folder_.write("model/generation_config.json", "{" + std::string(setting) + "}");
    const std::string key = std::string(setting).substr(0, std::string(setting).find(':'));
    expect_refused("generation_config.json': " + key, {"generate"});
  }
}

TEST_P(DamagedFolder, AModelFolderIsConvertedRatherThanExported) {
  expect_refused("`linnet convert` writes it in another form", {"export"});
}

TEST_P(DamagedFolder, TokenizersThatAreMissingOrBroken) {
  const Arguments names{"embed", "generate", "translate", "eval", "train"};
  const std::string file = kind_ == "bert" ? "vocab.txt" : kind_ == "t5" ? "spiece.model" : "source.spm";
  fs::remove(path(file)), fs::remove(path("tokenizer.json"));
  expect_refused("token", names);
  folder_.write("model/" + file, ""), fs::remove(path("tokenizer.json"));
  expect_refused(file, names);
  if (kind_ == "marian")
    for (const char* other : {"target.spm", "vocab.json"}) {
      fs::remove(path(other));
      expect_refused("has no " + std::string(other), names);
    }
  folder_.write("model/tokenizer_config.json", "{\"a\": [");
  expect_refused("tokenizer_config.json", names);
}

TEST_P(DamagedFolder, AConversionThatFailsLeavesNoFile) {
  fs::create_directories(folder_ / "out/model.safetensors");
  const Outcome outcome = run({"convert", model_, folder_ / "out"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out"))
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Families, DamagedFolder, ::testing::Values("bert", "t5", "marian"),
    [](const auto& info) { return std::string(info.param); });
}  // namespace
}  // namespace linnet::testing
