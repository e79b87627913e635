// Adapters, beside what PEFT makes of the same checkpoints (tests/golden/make_lora.py).
#include "models/families/lora.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include "base/files.h"
#include "engine/exec/interpreter.h"
#include "error_of.h"
#include "formats/weight_files.h"
#include "models/families/pretrained.h"
#include "models/modules/causal_model.h"
#include "models/modules/losses.h"
#include "models/nn/trace.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

struct Adapted {
  explicit Adapted(const std::string& name)
      : adapters("tests/golden/lora/" + name),
        base(ConfigFile(adapters + "/adapter_config.json").text("base_model_name_or_path")),
        model(open_with_adapters(base, {{"", adapters}}, {})), layout(*model.module),
        parameters(static_cast<size_t>(layout.parameter_count())) {
    load_parameters(model, layout, parameters.data());
  }
  std::string adapters, base;
  PretrainedModel model;
  ParameterLayout layout;
  std::vector<float> parameters;
};

class Lora : public ::testing::TestWithParam<const char*> {
 protected:
  const testing::TemporaryFolder made;
  const fs::path folder = made.path();
};

TEST_P(Lora, IsMergedAsPeftMergesIt) {
  const Adapted adapted(GetParam());
  save_pretrained(adapted.model, adapted.layout, adapted.parameters.data(), folder.string());
  const WeightFiles ours(folder.string()), base(adapted.base);
  const SafetensorsFile merged(adapted.adapters + "/merged.safetensors", SafetensorsTypes::kAll);
  for (const SafetensorsEntry& expected : merged.entries()) {
    const WeightFiles::Weight* weight = ours.find(expected.name);
    ASSERT_TRUE(weight) << expected.name;
    const auto count = static_cast<size_t>(expected.type.shape.elements());
    std::vector<float> a(count), b(count);
    read_floats(weight->entry->dtype, weight->entry->data, expected.type.shape.elements(), a.data());
    read_floats(expected.dtype, expected.data, expected.type.shape.elements(), b.data());
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(a[i], b[i], 1e-6 * (1 + std::abs(b[i]))) << expected.name;
  }
  for (const WeightFiles::Weight& weight : base.weights()) {  // all else is as it was
    if (merged.find(weight.entry->name)) continue;
    const WeightFiles::Weight* saved = ours.find(weight.entry->name);
    ASSERT_TRUE(saved) << weight.entry->name;
    EXPECT_EQ(std::memcmp(saved->entry->data, weight.entry->data, weight.entry->bytes()), 0) << weight.entry->name;
  }
  EXPECT_FALSE(ConfigFile((folder / "config.json").string()).has(kLoraKey));
}

class SavedLora : public Lora {};

TEST_P(SavedLora, IsWhatPeftSaved) {
  const Adapted adapted(GetParam());
  const auto load = [&](const ParameterTarget& target) { std::ranges::copy(adapted.parameters, target.flat); };
  save_adapters(adapted.model, adapted.layout, load, "somewhere", folder.string());
  const SafetensorsFile ours((folder / "adapter_model.safetensors").string(), SafetensorsTypes::kAll),
      theirs(adapted.adapters + "/adapter_model.safetensors", SafetensorsTypes::kAll);
  ASSERT_EQ(ours.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    const SafetensorsEntry* saved = ours.find(entry.name);
    ASSERT_TRUE(saved) << entry.name;
    ASSERT_EQ(saved->text(), entry.text());
    EXPECT_EQ(std::memcmp(saved->data, entry.data, entry.bytes()), 0) << entry.name;
  }
  const ConfigFile config((folder / "adapter_config.json").string()),
      original(adapted.adapters + "/adapter_config.json");
  for (const char* key : {"peft_type", "task_type", "bias"}) EXPECT_EQ(config.text(key), original.text(key)) << key;
  EXPECT_EQ(config.integer("r"), original.integer("r"));
  EXPECT_EQ(config.flag("use_rslora", false), original.flag("use_rslora", false));
  EXPECT_EQ(config.flag("fan_in_fan_out", false), original.flag("fan_in_fan_out", false));
  EXPECT_EQ(config.text("base_model_name_or_path"), "somewhere");
}

std::string name_of_case(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
constexpr const char* kOwnKinds[] = {"gpt2", "bert_classifier", "llama", "t5", "deberta_classifier", "gpt_neox"};
// With what save_adapters() does not write.
constexpr const char* kOtherKinds[] = {"llama_dora", "bert_all", "llama_tied", "llama_tokens"};
INSTANTIATE_TEST_SUITE_P(Folders, SavedLora, ::testing::ValuesIn(kOwnKinds), name_of_case);
INSTANTIATE_TEST_SUITE_P(Folders, Lora, ::testing::ValuesIn(kOwnKinds), name_of_case);
INSTANTIATE_TEST_SUITE_P(Others, Lora, ::testing::ValuesIn(kOtherKinds), name_of_case);

// The logits of two rows of seven tokens by a decoder or a classifier whose parameters are these.
std::vector<float> logits(PretrainedModel& model, const ParameterLayout& layout, const std::vector<float>& parameters) {
  Trace trace;
  const Tensor tokens = trace.input("tokens", {DType::kI32, {2, 7}});
  if (auto* decoder = dynamic_cast<CausalModel*>(model.module.get()))
    trace.graph().output("logits", decoder->logits(decoder->hidden({tokens})));
  else
    trace.graph().output(
        "logits", model.as<TextClassifier>().logits(tokens, trace.input("lengths", {DType::kI32, {2}})));
  const Graph graph = trace.finish();
  NamedTensors inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.value(input.value).type);
    if (input.name == "lengths") {
      for (int32_t& length : tensor.as<int32_t>()) length = 7;
    } else if (input.name == "tokens") {
      for (size_t i = 0; i < tensor.as<int32_t>().size(); ++i)
        tensor.as<int32_t>()[i] = static_cast<int32_t>(3 * i % 29);
    } else {
      for (const ParameterSlot& slot : layout.parameters())
        if (slot.spec.name == input.name)
          std::copy_n(parameters.data() + slot.offset, slot.spec.shape.elements(), tensor.as<float>().data());
    }
    inputs[input.name] = std::move(tensor);
  }
  auto results = interpret(graph, inputs);
  const auto values = results.outputs.at("logits").as<float>();
  return {values.begin(), values.end()};
}

class LoraLogits : public ::testing::TestWithParam<const char*> {};

// Without merging: the base's weights stay as they are, and the adapters compute beside them.
TEST_P(LoraLogits, AreThoseOfPeft) {
  Adapted adapted(GetParam());
  const std::vector<float> ours = logits(adapted.model, adapted.layout, adapted.parameters);
  const SafetensorsFile file(adapted.adapters + "/logits.safetensors", SafetensorsTypes::kAll);
  const SafetensorsEntry& theirs = file.at("logits");
  ASSERT_EQ(static_cast<int64_t>(ours.size()), theirs.type.shape.elements());
  std::vector<float> expected(ours.size());
  read_floats(theirs.dtype, theirs.data, theirs.type.shape.elements(), expected.data());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    difference += std::pow(static_cast<double>(ours[i]) - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Folders, LoraLogits,
    ::testing::Values("gpt2", "bert_classifier", "llama", "deberta_classifier", "gpt_neox", "llama_dora", "bert_all",
        "llama_tied", "llama_tokens"),
    name_of_case);

TEST(LoraModel, ComputesWhatItsMergedWeightsCompute) {
  Adapted adapted("gpt2");
  const std::vector<float> beside = logits(adapted.model, adapted.layout, adapted.parameters);
  merge_adapters(adapted.model, adapted.layout, adapted.parameters.data());
  PretrainedModel plain = open_pretrained("tests/golden/pretrained/gpt2");
  const ParameterLayout layout(*plain.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  for (const ParameterSlot& slot : layout.parameters())
    for (const ParameterSlot& from : adapted.layout.parameters())
      if (from.spec.name == slot.spec.name)
        std::copy_n(
            adapted.parameters.data() + from.offset, slot.spec.shape.elements(), parameters.data() + slot.offset);
  const std::vector<float> merged = logits(plain, layout, parameters);
  std::vector<float> before(parameters.size());
  load_parameters(plain, layout, before.data());
  const std::vector<float> base = logits(plain, layout, before);
  ASSERT_EQ(beside.size(), merged.size());
  double moved = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    EXPECT_NEAR(beside[i], merged[i], 1e-4 * (1 + std::abs(merged[i])));
    moved = std::max<double>(moved, std::abs(base[i] - merged[i]));
  }
  EXPECT_GT(moved, 1e-2);  // the adapters do something
}

TEST(LoraModel, BeginsAsTheModelItIs) {
  PretrainedModel adapted =
      open_pretrained("tests/golden/pretrained/gpt2", {.lora = LoraOptions{.targets = {"all-linear"}}});
  const ParameterLayout layout(*adapted.module);
  std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()));
  load_parameters(adapted, layout, parameters.data());
  PretrainedModel plain = open_pretrained("tests/golden/pretrained/gpt2");
  const ParameterLayout plain_layout(*plain.module);
  std::vector<float> plain_parameters(static_cast<size_t>(plain_layout.parameter_count()));
  load_parameters(plain, plain_layout, plain_parameters.data());
  EXPECT_EQ(logits(adapted, layout, parameters), logits(plain, plain_layout, plain_parameters));
}

// PEFT's "all-linear" also has the router and the experts, which have no adapters here.
TEST(LoraModel, NamesTheLayersOfAMixtureOfExperts) {
  for (const std::string name : {"mixtral", "olmoe", "qwen3_moe"}) {
    const PretrainedModel model =
        open_pretrained("tests/golden/pretrained/" + name, {.lora = LoraOptions{.rank = 2, .targets = {"all-linear"}}});
    const ParameterLayout layout(*model.module);
    const auto load = [&](const ParameterTarget& target) { load_parameters(model, layout, target); };
    const testing::TemporaryFolder folder;
    save_adapters(model, layout, load, "base", folder.path());
    const std::vector<std::string> targets = ConfigFile(folder / "adapter_config.json").texts("target_modules");
    EXPECT_EQ(std::ranges::count(targets, "model.layers.0.self_attn.q_proj"), 1);
    EXPECT_EQ(targets.size() % 4, 0);
    const SafetensorsFile saved(folder / "adapter_model.safetensors", SafetensorsTypes::kAll);
    EXPECT_FALSE(saved.entries().empty());
    for (const SafetensorsEntry& entry : saved.entries())
      EXPECT_NE(entry.name.find(".self_attn."), std::string::npos) << entry.name;
  }
}

TEST(LoraModel, WhatItCannotDoIsOneLine) {
  const auto open = [](const LoraOptions& lora) {
    return [lora] { open_pretrained("tests/golden/pretrained/llama", {.lora = lora}); };
  };
  EXPECT_PRED2(
      has_text, error_of(open({.targets = {"query"}})), "no linear layer \"query\"; it has down_proj, gate_proj");
  EXPECT_PRED2(has_text, error_of(open({.rank = 4000, .targets = {"q_proj"}})), "lora.rank = 4000 is above");
  const testing::TemporaryFolder folder;
  fs::copy_file("tests/golden/lora/llama/adapter_model.safetensors", folder / "adapter_model.safetensors");
  const auto adapter = [&](const std::string& key, const std::string& value) {
    write_file_atomically(
        folder / "adapter_config.json", R"({"peft_type": "LORA", "r": 4, ")" + key + "\": " + value + "}");
    return error_of([&] { read_adapter_options(folder.path()); });
  };
  EXPECT_PRED2(has_text, adapter("alpha_pattern", R"({"layers\\.0.*": 2})"), "Linnet reads plain names of layers");
  EXPECT_EQ(adapter("alpha_pattern", "{\"q_proj\": 2}"), "no error");
  EXPECT_PRED2(
      has_text, adapter("target_parameters", "[\"experts.up_proj\"]"), "\"target_parameters\" is not supported");
  // Adapters that PEFT adds to other base weights, or to some of the tokens.
  for (const char* method : {"pissa", "pissa_niter_4", "olora", "loftq"})
    EXPECT_PRED2(has_text, adapter("init_lora_weights", quoted(method)), quoted(method));
  EXPECT_PRED2(has_text, adapter("alora_invocation_tokens", "[5]"), "is not supported");
  for (const char* value : {"true", "false", "\"gaussian\""})
    EXPECT_EQ(adapter("init_lora_weights", value), "no error");
  EXPECT_EQ(adapter("alora_invocation_tokens", "null"), "no error");
  // What requests cannot choose.
  EXPECT_PRED2(has_text, error_of([] {
    open_with_adapters("tests/golden/pretrained/llama", {{"name", "tests/golden/lora/llama_dora"}}, {});
  }),
      "requests choose adapters of linear layers");
  // Weights that the model ties.
  const std::vector<float> embeddings(97 * 16, 0.5F);
  const std::string model = "base_model.model.model.", layer = model + "layers.0.mlp.up_proj.";
  const std::vector<SafetensorsTensor> tensors{
      {model + "embed_tokens.weight", {DType::kF32, {97, 16}}, embeddings.data()},
      {layer + "lora_A.weight", {DType::kF32, {4, 16}}, embeddings.data()},
      {layer + "lora_B.weight", {DType::kF32, {40, 4}}, embeddings.data()}};
  const auto save = [&](size_t count) {
    save_safetensors(folder / "adapter_model.safetensors", std::span(tensors).first(count));
  };
  save(1);
  EXPECT_PRED2(has_text, adapter("r", "4"), "has no adapters of linear layers");
  save(3);
  EXPECT_EQ(adapter("r", "4"), "no error");
  const auto open_beside = [&](const std::string& base) {
    return error_of([&] { open_with_adapters("tests/golden/pretrained/" + base, {{"", folder.path()}}, {}); });
  };
  EXPECT_PRED2(has_text, open_beside("llama_tied"), "are one tensor of the model, and differ here");
  EXPECT_EQ(open_beside("llama"), "no error");
  // Adapters of another model.
  EXPECT_NE(error_of([] {
    open_with_adapters("tests/golden/pretrained/gpt2", {{"", "tests/golden/lora/t5"}}, {});
  }),
      "no error");
}

// Adapters have the names of the program's modules, which other versions of transformers, or models of texts and
// pictures, call differently.
TEST(LoraModel, HasLayersByOldNamesToo) {
  const std::vector<float> ones(1000, 1.0F);
  const auto up_proj = [&](const std::string& base, const std::string& layer) {
    const WeightFiles files("tests/golden/pretrained/" + base);
    const Shape shape = files.find("model.layers.0.mlp.up_proj.weight")->entry->type.shape;
    const testing::TemporaryFolder folder;
    folder.write("adapter_config.json", R"({"peft_type": "LORA", "r": 1})");
    const std::vector<SafetensorsTensor> tensors{
        {"base_model.model." + layer + ".lora_A.weight", {DType::kF32, {1, shape[1]}}, ones.data()},
        {"base_model.model." + layer + ".lora_B.weight", {DType::kF32, {shape[0], 1}}, ones.data()}};
    save_safetensors(folder / "adapter_model.safetensors", tensors);
    const PretrainedModel model = open_with_adapters("tests/golden/pretrained/" + base, {{"", folder.path()}}, {});
    return std::ranges::count(model.names.rows, TensorRole::kAdapter, &NameRow::role);
  };
  for (const char* name : {"model.", "model.language_model.", "language_model.model."})
    EXPECT_EQ(up_proj("gemma3", std::string(name) + "layers.0.mlp.up_proj"), 2) << name;
}

TEST(LoraModel, FoldersOfAdaptersMayHaveNames) {
  using Folders = std::vector<AdapterFolder>;
  EXPECT_EQ(parse_adapters({"a/b"}), (Folders{{"", "a/b"}}));
  EXPECT_EQ(parse_adapters({"fr=x", "d", "de-2=y=z"}), (Folders{{"fr", "x"}, {"", "d"}, {"de-2", "y=z"}}));
  const auto refused = [](const std::vector<std::string>& words) { return error_of([&] { parse_adapters(words); }); };
  EXPECT_PRED2(has_text, refused({"a", "b"}), "NAME=FOLDER");
  EXPECT_PRED2(has_text, refused({"a=x", "a=y"}), "two with the name a");
  EXPECT_PRED2(has_text, refused({"a b=x"}), "letters, digits");
  EXPECT_PRED2(has_text, refused({"none=x"}), "without adapters");
  EXPECT_PRED2(has_text, refused({"a="}), "names no folder");

  const Folders two{{"", "d"}, {"fr", "x"}};
  EXPECT_EQ(find_adapter(two, "", ""), 0);
  EXPECT_EQ(find_adapter(two, "fr", ""), 1);
  EXPECT_EQ(find_adapter(two, "none", ""), -1);
  EXPECT_EQ(find_adapter({{"fr", "x"}}, "", ""), -1);
  EXPECT_PRED2(has_text, error_of([&] { find_adapter(two, "es", "line 3"); }), "line 3: there are no adapters \"es\"");
  EXPECT_PRED2(has_text, error_of([] { find_adapter({}, "es", "line 3"); }), "no adapters were given");
}
}  // namespace
}  // namespace linnet
