// What a user meets: folders that are damaged, converted, saved in other forms.
#include "models/families/pretrained.h"
#include <gtest/gtest.h>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include "base/files.h"
#include "error_of.h"
#include "formats/weight_files.h"
#include "models/families/decoder_family.h"
#include "models/modules/text_decoder.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

class PretrainedFolder : public ::testing::Test {
 protected:
  void take(const std::string& golden) {
    fs::remove_all(folder);
    fs::copy("tests/golden/pretrained/" + golden, folder);
  }
  std::string path(const std::string& file) const { return (folder / file).string(); }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_file(path(file));
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    write_file_atomically(path(file), text.replace(at, from.size(), to));
  }
  // The one line that opening ends with.
  std::string problem(const OpenOptions& options = {}) const {
    return error_of([&] {
      PretrainedModel model = open_pretrained(folder.string(), options);
      const ParameterLayout layout(*model.module);
      std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
      load_parameters(model, layout, flat.data());
    });
  }
  void expect_problem(const std::string& part, const OpenOptions& options = {}) const {
    EXPECT_PRED2(has_text, problem(options), part);
  }

  const testing::TemporaryFolder made;
  const fs::path folder = made.path();
};

TEST_F(PretrainedFolder, WhatIsMissingIsNamed) {
  take("gpt2");
  fs::remove(path("config.json"));
  expect_problem("config.json");
  take("gpt2");
  fs::remove(path("model.safetensors"));
  expect_problem("has no model.safetensors");
  std::ofstream(path("pytorch_model.bin")) << "x";
  expect_problem("is no file of PyTorch weights");
  fs::remove_all(folder);
  expect_problem("there is no folder");
}

TEST_F(PretrainedFolder, SettingsThatAreWrongAreNamed) {
  const auto with = [&](const std::string& from, const std::string& to, const std::string& part) {
    take("gpt2");
    replace("config.json", from, to);
    expect_problem(part);
  };
  with("\"n_layer\": 2,", "\"n_layer\": 2", "config.json' is not JSON: parse error at line ");
  with("\"gpt2\"", "\"gpt_j\"", "\"model_type\" is \"gpt_j\", which Linnet does not know");
  with("GPT2LMHeadModel", "GPT2ForTokenClassification", "architecture \"GPT2ForTokenClassification\" is not supported");
  with("\"gelu_new\"", "\"mish\"", "\"activation_function\" is \"mish\", Linnet supports relu, gelu");
  with("\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "\"scale_attn_weights\" is false");
  with("\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true",
      "\"scale_attn_by_inverse_layer_idx\" is true, Linnet supports only false");
  with("\"n_embd\": 16", "\"n_embd\": \"16\"", "\"n_embd\" is \"16\", expected an integer");
  with("\"n_embd\": 16", "\"n_embd\": -16", "\"n_embd\" is -16, out of range");
  with("\"n_layer\": 2", "\"n_layer\": 2000000000", "\"n_layer\" is 2000000000, out of range");
  with("\"n_embd\": 16", "\"n_embd\": 1000000", "\"n_embd\" is 1000000, out of range");
  with("\"n_inner\": null", "\"n_inner\": 1073741824, \"n_embd\": 262144, \"a\": 0",
      "its sizes make a model that is larger than any memory");
  with("\"n_head\": 2", "\"n_head\": 3", "\"n_embd\" 16 is not a multiple of \"n_head\" 3");
  with("\"resid_pdrop\": 0.0", "\"resid_pdrop\": 1.5", "\"resid_pdrop\" is not a probability");
  with("\"vocab_size\"", "\"vocab_sise\"", "has no \"vocab_size\"");
  for (const auto& [from, to, part] :
      {std::array{"\"hidden_size\": 16", "\"hidden_size\": 1000000", "\"hidden_size\" is 1000000"},
          {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000", "\"num_hidden_layers\" is 1000000"},
          {"\"image_size\": 12", "\"image_size\": 1000000", "\"image_size\" is 1000000"},
          {"\"image_size\": 12", "\"image_size\": 65536", "expected the shape"},
          {"\"patch_size\": 4", "\"patch_size\": 1000000", "\"patch_size\" is 1000000"},
          {"\"intermediate_size\": 40", "\"intermediate_size\": 1073741824", "expected the shape"}}) {
    take("vit");
    replace("config.json", from, to);
    expect_problem(part);
  }
  take("marian");
  replace("config.json", "\"vocab_size\": 61", "\"vocab_size\": 22");
  expect_problem("config.json': \"vocab_size\" is 22 and \"decoder_vocab_size\" is 61");
}

TEST_F(PretrainedFolder, TensorsThatDoNotFitAreNamed) {
  take("gpt2");
  replace("config.json", "\"n_layer\": 2", "\"n_layer\": 3");
  expect_problem("has no tensor transformer.h.2.ln_1.weight (and 11 more), which a GPT2LMHeadModel needs");
  take("gpt2");
  replace("config.json", "\"n_layer\": 2", "\"n_layer\": 1");
  expect_problem("tensor transformer.h.1.attn.c_attn.bias (and 11 more) is not part of a GPT2LMHeadModel");
  take("gpt2");
  replace("config.json", "\"n_inner\": null", "\"n_inner\": 48");
  expect_problem("tensor transformer.h.0.mlp.c_fc.weight is F32[16, 64], expected the shape [16, 48]");
  take("gpt2_bare");
  replace("model.safetensors", "\"ln_f.bias\"", "\"ln_f.bios\"");
  expect_problem("has no tensor ln_f.bias, which");
  take("gpt2");
  replace("config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  expect_problem("has no tensor lm_head.weight");
}

TEST_F(PretrainedFolder, ATiedWeightMustBeTheSame) {
  take("bert_old");
  EXPECT_EQ(problem(), "no error");
  // A byte of the output layer's copy.
  const WeightFiles files(folder.string());
  const SafetensorsEntry& copy = *files.find("cls.predictions.decoder.weight")->entry;
  std::string bytes = read_file(path("model.safetensors"));
  const std::string values(reinterpret_cast<const char*>(copy.data), copy.bytes());
  size_t at = bytes.find(values);  // the first of two
  ASSERT_NE(at, bytes.npos);
  bytes[at + 100] ^= 1;
  write_file_atomically(path("model.safetensors"), bytes);
  expect_problem("is not the same as the one it is tied to in a BertForMaskedLM");
}

TEST_F(PretrainedFolder, ShardsThatDoNotFitAreNamed) {
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  take("gpt2_options");
  EXPECT_EQ(problem(), "no error");
  fs::remove(path(second));
  expect_problem("model.safetensors.index.json' names " + second + ", which is not in the folder");
  take("gpt2_options");
  fs::resize_file(path(second), fs::file_size(path(second)) - 8);
  expect_problem(second + "' is not a valid safetensors file");
  take("gpt2_options");
  replace("model.safetensors.index.json", "\"lm_head.weight\": \"", "\"lm_head.weight\": \"../");
  expect_problem("tensor lm_head.weight does not name a file of this folder");
  take("gpt2_options");
  replace("model.safetensors.index.json", "\"lm_head.weight\"", "\"lm_head\\n\\u001b[2Jweight\"");
  expect_problem("tensor lm_head  [2Jweight is in");  // one line, that does nothing to the terminal
  take("gpt2_options");
  replace("model.safetensors.index.json", "\"weight_map\"", "\"weights\"");
  expect_problem("has no object \"weight_map\"");
  take("gpt2_options");
  replace("model.safetensors.index.json", "{", "");
  expect_problem("model.safetensors.index.json' is not JSON");
  take("gpt2_options");
  replace("model.safetensors.index.json", "\"transformer.wpe.weight\"", "\"transformer.wpo.weight\"");
  expect_problem("says that tensor transformer.wpo.weight is in");
}

// Bits of every tensor, whatever the files.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> result;
  const WeightFiles files(folder);
  for (const WeightFiles::Weight& weight : files.weights())
    result[weight.entry->name + " " + weight.entry->text()] =
        std::string(reinterpret_cast<const char*>(weight.entry->data), weight.entry->bytes());
  return result;
}

std::vector<float> parameters_of(const PretrainedModel& model) {
  const ParameterLayout layout(*model.module);
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, flat.data());
  return flat;
}

TEST_F(PretrainedFolder, IsSavedInOneFileInShardsAndInItsOwnPlace) {
  take("gpt2");
  const auto before = contents(folder.string());
  PretrainedModel model = open_pretrained(folder.string());
  const ParameterLayout layout(*model.module);
  const std::vector<float> flat = parameters_of(model);
  save_pretrained(model, layout, flat.data(), folder.string(), {.max_shard_bytes = 8000});
  EXPECT_FALSE(fs::exists(path("model.safetensors")));
  EXPECT_GT(WeightFiles(folder.string()).files(), 3U);
  EXPECT_EQ(contents(folder.string()), before);
  model = open_pretrained(folder.string());
  save_pretrained(model, ParameterLayout(*model.module), flat.data(), folder.string());
  EXPECT_EQ(WeightFiles(folder.string()).files(), 1U);
  EXPECT_FALSE(fs::exists(path("model.safetensors.index.json")));
  EXPECT_EQ(contents(folder.string()), before);
}

TEST_F(PretrainedFolder, HalfPrecisionSurvivesAsItIs) {
  for (const FileDType dtype : {FileDType::kF16, FileDType::kBF16, FileDType::kF64}) {
    take("gpt2");
    const PretrainedModel model = open_pretrained(folder.string());
    save_pretrained(
        model, ParameterLayout(*model.module), parameters_of(model).data(), folder.string(), {.dtype = dtype});
    const auto rounded = contents(folder.string());
    const PretrainedModel again = open_pretrained(folder.string());
    save_pretrained(again, ParameterLayout(*again.module), parameters_of(again).data(), folder.string());
    EXPECT_EQ(contents(folder.string()), rounded);
    EXPECT_TRUE(rounded.begin()->first.find(file_dtype_name(dtype)) != std::string::npos);
  }
}

TEST_F(PretrainedFolder, AModelMadeHereIsReadBack) {
  const DecoderConfig config{
      .vocab_size = 30, .max_seq_len = 8, .width = 8, .heads = 2, .layers = 1, .norms = NormKind::kBare};
  const PretrainedModel made = new_pretrained(decoder_config_file("gpt2", config));
  const ParameterLayout layout(*made.module);
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  for (size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<float>(i);
  save_pretrained(made, layout, flat.data(), folder.string());
  EXPECT_EQ(parameters_of(open_pretrained(folder.string())), flat);
  // Other programs find norms that do nothing.
  const WeightFiles files(folder.string());
  EXPECT_EQ(files.find("transformer.ln_f.weight")->entry->text(), "F32[8]");
}
}  // namespace
}  // namespace linnet
