#include "models/families/gguf.h"
#include <gtest/gtest.h>
#include <cmath>
#include <filesystem>
#include <map>
#include "base/files.h"
#include "data/text/pretrained_tokenizer.h"
#include "error_of.h"
#include "formats/safetensors.h"
#include "golden_testing.h"
#include "models/families/decoder_family.h"
#include "models/families/static_scales.h"
#include "models/nn/forward.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
const std::string kGolden = "tests/golden/gguf/", kFolders = "tests/golden/pretrained/";

struct Loaded {
  explicit Loaded(const std::string& path) : model(open_pretrained(path)), layout(*model.module) {
    parameters.resize(static_cast<size_t>(layout.parameter_count()), NAN);
    load_parameters(model, layout, parameters.data());
  }
  PretrainedModel model;
  ParameterLayout layout;
  std::vector<float> parameters;
};

// The largest difference; what norms lose when 1 is added to them is not more than 1e-7.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

class GgufOfConverter : public ::testing::TestWithParam<const char*> {
 protected:
  GgufOfConverter() { use_gguf_models(); }
};

TEST_P(GgufOfConverter, IsTheModelOfItsFolder) {
  const std::string name = GetParam();
  const Loaded ours(kGolden + name + ".gguf"), theirs(kFolders + name);
  EXPECT_EQ(ours.model.family, theirs.model.family);
  EXPECT_LE(difference(ours.parameters, theirs.parameters), name == "gemma2" ? 1.2e-7 : 0);
  DecoderConfig a = decoder_config(ours.model.config), b = decoder_config(theirs.model.config);
  EXPECT_EQ(a.rotary.has_value(), b.rotary.has_value());
  EXPECT_EQ(a.epsilon, b.epsilon);
  EXPECT_EQ(a.max_seq_len, b.max_seq_len);
  EXPECT_EQ(a.tied_head, b.tied_head);
  if (!a.rotary) return;
  EXPECT_EQ(a.rotary->theta, b.rotary->theta);
  EXPECT_EQ(a.rotary->share, b.rotary->share);
}
INSTANTIATE_TEST_SUITE_P(Folders, GgufOfConverter,
    ::testing::Values(
        "llama", "llama_scaled", "qwen2", "qwen3_moe", "gemma2", "phi3", "gpt_neox", "starcoder2", "gpt2"),
    [](const auto& info) { return std::string(info.param); });

// Of the file, against the float64 reference of the folder that it was made of; of blocks.gguf, one of its own.
class GgufLogits : public ::testing::TestWithParam<const char*> {
 protected:
  GgufLogits() { use_gguf_models(); }
};

TEST_P(GgufLogits, AreThoseOfTransformers) {
  const std::string name = GetParam(), path = "../gguf/" + name + ".gguf";
  const PretrainedGolden golden(path, {}, name == "blocks" ? "../gguf/blocks" : name);
  auto& decoder = golden.model.as<TextDecoder>();
  golden.check_output("logits", [&](Trace& trace) {
    return decoder.logits(decoder.hidden({trace.input("tokens", {DType::kI32, golden.shape("tokens")})}));
  });
}
INSTANTIATE_TEST_SUITE_P(Folders, GgufLogits,
    ::testing::Values("blocks", "llama", "qwen2", "qwen3_moe", "phi3", "gpt_neox", "gpt2"),
    [](const auto& info) { return std::string(info.param); });

// Written and read again: each family that GGUF has.
class GgufWritten : public ::testing::TestWithParam<const char*> {
 protected:
  GgufWritten() { use_gguf_models(); }
};

TEST_P(GgufWritten, IsTheSameModel) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  const Loaded from(kFolders + GetParam());
  save_gguf_model(from.model, from.layout, from.parameters.data(), path, *find_gguf_blocks("F32"));
  const Loaded read(path);
  EXPECT_STREQ(read.model.family->model_type, from.model.family->model_type);
  EXPECT_LE(difference(read.parameters, from.parameters), 1.2e-7);
  const auto written = decoder_config(read.model.config).rotary, given = decoder_config(from.model.config).rotary;
  if (given && !given->long_divisors.empty()) {
    EXPECT_EQ(written->scaling.divisors, given->scaling.divisors);
    EXPECT_EQ(written->long_divisors, given->long_divisors);
    EXPECT_EQ(written->scaling.original_length, given->scaling.original_length);
  }
  EXPECT_FALSE(file_exists(path + ".part.gguf"));
  // As llama.cpp's converter has it.
  const std::string golden = kGolden + GetParam() + ".gguf";
  if (!file_exists(golden)) return;
  const GgufFile ours(path), theirs(golden);
  std::map<std::string, std::string> our_tensors, their_tensors;
  for (const TensorEntry& entry : ours.entries()) our_tensors[entry.name] = entry.text();
  for (const TensorEntry& entry : theirs.entries()) their_tensors[entry.name] = entry.text();
  EXPECT_EQ(our_tensors, their_tensors);
  for (const auto& [name, value] : theirs.keys())
    if (name.find("general.") != 0 && name != "qwen3moe.feed_forward_length")  // of layers without experts: none
      EXPECT_EQ(ours.key(name) ? ours.key(name)->dump() : "none", value.dump()) << name;
}
INSTANTIATE_TEST_SUITE_P(Folders, GgufWritten,
    ::testing::Values("llama", "llama_tied", "llama_scaled", "llama_biases", "qwen2", "qwen3", "gemma", "phi3_long",
        "olmo2", "granite", "gpt_neox", "starcoder2", "olmoe", "qwen3_moe", "gpt2"),
    [](const auto& info) { return std::string(info.param); });

TEST(Gguf, WholeHeadsOfGptNeoxTurn) {  // by default a quarter does
  use_gguf_models();
  const testing::TemporaryFolder folder;
  DecoderConfig config = decoder_config(ConfigFile(kFolders + "gpt_neox/config.json"));
  config.rotary->share = 1;
  const PretrainedModel model = new_pretrained(decoder_config_file("gpt_neox", config));
  const ParameterLayout layout(*model.module);
  const std::vector<float> parameters(static_cast<size_t>(layout.parameter_count()), 0.5F);
  save_gguf_model(model, layout, parameters.data(), folder / "a.gguf", *find_gguf_blocks("F32"));
  EXPECT_EQ(decoder_config(Loaded(folder / "a.gguf").model.config).rotary->share, 1);
}

TEST(Gguf, RefusesToWriteWhatTheFileCannotSay) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name) {
    const Loaded from(kFolders + name);
    return error_of([&] {
      save_gguf_model(from.model, from.layout, from.parameters.data(), folder / "a.gguf", *find_gguf_blocks("F16"));
    });
  };
  for (const char* windows : {"mistral", "qwen2_windows"})
    EXPECT_PRED2(has_text, write(windows), "sliding_window") << windows;
  EXPECT_PRED2(has_text, write("gemma2"), "query_pre_attn_scalar");
  EXPECT_PRED2(has_text, write("opt"), "\"opt\"");
  EXPECT_PRED2(has_text, write("bert_masked"), "\"bert\"");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Gguf, RefusesOtherModels) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  const auto open = [&](const std::vector<std::pair<std::string, Json>>& keys, std::vector<GgufSource> tensors = {}) {
    save_gguf(path, keys, tensors);
    return error_of([&] { open_pretrained(path); });
  };
  EXPECT_PRED2(has_text, open({}), "general.architecture");
  const std::string other = open({{"general.architecture", "rwkv7"}});
  EXPECT_PRED2(has_text, other, "its architecture is 'rwkv7', Linnet reads llama, qwen2");
  EXPECT_PRED2(has_text, open({{"split.count", 3}}), "one of 3 files");
  EXPECT_PRED2(has_text, open({{"general.architecture", "llama"}}), "token_embd.weight");
  const std::vector<GgufSource> tokens{{"token_embd.weight", find_gguf_blocks("F32"), {4, 2},
      [](int64_t, int64_t count, float* out) { std::fill_n(out, count, 0.0F); }}};
  const std::string size = open({{"general.architecture", "llama"}}, tokens);
  EXPECT_PRED2(has_text, size, "\"hidden_size\"");
  const std::string layers =
      open({{"general.architecture", "llama"}, {"llama.attention.head_count_kv", std::vector<int64_t>{1, 2}}}, tokens);
  EXPECT_PRED2(has_text, layers, "its layers differ in 'llama.attention.head_count_kv'");
  const std::string turned = open({{"general.architecture", "llama"}, {"llama.embedding_length", 4},
                                      {"llama.attention.head_count", 1}, {"llama.rope.dimension_count", 2}},
      tokens);
  EXPECT_PRED2(has_text, turned, "\"rope.dimension_count\" is not the size of its heads");
  const std::string kind =
      open({{"general.architecture", "llama"}, {"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "odd"},
               {"tokenizer.ggml.tokens", std::vector<std::string>{"a"}}},
          tokens);
  EXPECT_PRED2(has_text, kind, "\"tokenizer.ggml.pre\" is 'odd', Linnet knows gpt-2");
}

TEST(Gguf, BecomesAModelFolder) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const Loaded from(kGolden + "llama.gguf");
  save_pretrained(from.model, from.layout, from.parameters.data(), folder / "saved");
  const Loaded saved(folder / "saved"), original(kFolders + "llama");
  EXPECT_EQ(saved.parameters, original.parameters);
  EXPECT_EQ(saved.model.family, original.model.family);
  EXPECT_TRUE(file_exists(folder / "saved/model.safetensors"));
}

TEST(Gguf, KeepsMatricesInTheirTypes) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const Loaded from(kGolden + "blocks.gguf");
  for (const char* type : {"F16", "Q8_0", "Q4_0"}) {
    const std::string path = folder / (type + std::string(".gguf"));
    save_gguf_model(from.model, from.layout, from.parameters.data(), path, *find_gguf_blocks(type));
    const GgufFile file(path);
    EXPECT_EQ(file.at("blk.0.attn_q.weight").text(), type + std::string("[32, 32]"));
    EXPECT_EQ(file.at("blk.0.attn_norm.weight").text(), "F32[32]");
    EXPECT_STREQ(file.at("output.weight").form_name(), type == std::string("Q4_0") ? "Q8_0" : type);
    const Loaded read(path);
    const double most = type == std::string("F16") ? 2e-3 : type == std::string("Q8_0") ? 8e-3 : 0.2;
    EXPECT_LE(difference(read.parameters, from.parameters), most) << type;
  }
}

// A Llama of blocks, queries and keys in another format than values: matrices stay blocks, with the logits of the fp32
// model. Experts and what the file has as numbers do not.
TEST(Gguf, KeepsBlocksInMemoryForInference) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const std::string path = folder / "mixed.gguf";
  const GgufFile from(kGolden + "blocks.gguf");
  std::vector<GgufSource> tensors;
  for (const TensorEntry& entry : from.entries()) {
    const char* type = entry.name.ends_with("attn_v.weight")                  ? "Q4_0"
                       : entry.type.shape.rank() == 2 && entry.name[0] == 'b' ? "Q8_0"
                                                                              : "F32";
    tensors.push_back({entry.name, find_gguf_blocks(type), entry.type.shape,
        [&from, &entry](int64_t first, int64_t count, float* out) {
          std::vector<float> values(static_cast<size_t>(entry.type.shape.elements()));
          from.read(entry, values.data());
          std::copy_n(values.data() + first, count, out);
        }});
  }
  save_gguf(path, {from.keys().begin(), from.keys().end()}, tensors);
  for (const std::string& file : {path, kGolden + "blocks.gguf", kGolden + "llama.gguf"}) {
    const PretrainedModel model = open_pretrained(file);
    const auto logits_of = [&](const std::string& word, int64_t rows, size_t& packed, size_t& in_blocks) {
      const auto function = [&](Trace& trace) {
        auto& decoder = model.as<TextDecoder>();
        trace.graph().output("y", decoder.logits(decoder.hidden({trace.input("tokens", {DType::kI32, {rows, 4}})})));
      };
      Forward forward(*model.module, {function}, {.threads = 2, .quantization = folder_quantization(file, word)});
      forward.load([&](const ParameterTarget& target) { load_parameters(model, forward.layout(), target); });
      std::vector<int32_t> tokens(static_cast<size_t>(rows * 4));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 90);
      forward.set("tokens", tokens);
      const auto y = forward.run().output("y");
      packed = forward.layout().quantized_bytes(), in_blocks = forward.layout().quantized().size();
      return std::vector<float>(y.begin(), y.end());
    };
    for (const int64_t rows : {5, 1}) {  // as prompts are computed, and as steps are
      size_t packed = 0, in_blocks = 0;
      const std::vector<float> exact = logits_of("none", rows, packed, in_blocks);
      EXPECT_EQ(in_blocks, 0u);
      const std::vector<float> logits = logits_of("", rows, packed, in_blocks);
      EXPECT_EQ(in_blocks, file == path ? 15u : file == kGolden + "llama.gguf" ? 0u : 8u) << file;
      double error = 0, size = 0;
      for (size_t i = 0; i < exact.size(); ++i)
        error += std::pow(logits[i] - exact[i], 2), size += std::pow(exact[i], 2);
      EXPECT_LT(std::sqrt(error / size), rows == 1 ? 1e-4 : 1e-6) << file;
    }
  }
}

// A file with these keys and an embedding of `size` rows.
void save_keys(std::vector<std::pair<std::string, Json>> keys, int64_t size, const std::string& path) {
  keys.emplace(keys.begin(), "general.architecture", "llama");
  save_gguf(path, keys,
      {{"token_embd.weight", find_gguf_blocks("F32"), {size, 1},
          [](int64_t, int64_t count, float* out) { std::fill_n(out, count, 0.0F); }}});
}

std::unique_ptr<PretrainedTokenizer> tokenizer_of(
    std::vector<std::pair<std::string, Json>> keys, int64_t size, const std::string& path) {
  save_keys(std::move(keys), size, path);
  return load_pretrained_tokenizer(path);
}

std::vector<TokenId> tokens_of(const PretrainedTokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

TEST(Gguf, SpecialTokensMayBeSpeltInTexts) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const auto tokenizer = tokenizer_of(
      {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "\u2581a", "\u2581b"}},
          {"tokenizer.ggml.scores", std::vector<double>{0, 0, 0, -1, -2}},
          {"tokenizer.ggml.token_type", std::vector<int64_t>{2, 3, 3, 1, 1}}, {"tokenizer.ggml.bos_token_id", 1},
          {"tokenizer.ggml.eos_token_id", 2}},
      5, folder / "a.gguf");
  EXPECT_EQ(tokens_of(*tokenizer, "a</s>b"), (std::vector<TokenId>{3, 2, 4}));
  // So in the folder that is made of the file.
  tokenizer->save_pretrained(folder / "saved");
  EXPECT_EQ(tokens_of(*load_pretrained_tokenizer(folder / "saved"), "a</s>b"), (std::vector<TokenId>{3, 2, 4}));
}

TEST(Gguf, AMergeMayGiveAnAddedToken) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const auto tokens = [&](const std::vector<std::string>& pieces, const std::vector<int64_t>& types) {
    const auto tokenizer = tokenizer_of(
        {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "gpt-2"}, {"tokenizer.ggml.tokens", pieces},
            {"tokenizer.ggml.token_type", types}, {"tokenizer.ggml.merges", std::vector<std::string>{"a b"}}},
        std::ssize(pieces), folder / "a.gguf");
    return tokens_of(*tokenizer, "abb");
  };
  EXPECT_EQ(tokens({"a", "b", "ab"}, {1, 1, 4}), (std::vector<TokenId>{2, 1}));
  EXPECT_EQ(tokens({"ab", "a", "b", "ab"}, {4, 1, 1, 1}), (std::vector<TokenId>{0, 2}));  // an own piece, too
}

TEST(Gguf, RefusesToWriteTokenizersThatTheFileCannotDescribe) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "llama");
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(kFolders + "llama/" + name, folder / ("llama/" + std::string(name)));
  const Json plain = Json::parse(read_file("tests/golden/tokenizers/gpt2.json"), JsonLimits::tables());
  const auto write = [&](const char* part, const std::string& value) {
    Json changed = plain;
    changed[part] = Json::parse(value, JsonLimits::settings());
    folder.write("llama/tokenizer.json", changed.dump());
    const Loaded from(folder / "llama");
    return error_of([&] {
      save_gguf_model(from.model, from.layout, from.parameters.data(), folder / "a.gguf", *find_gguf_blocks("F32"));
    });
  };
  EXPECT_EQ(write("normalizer", "null"), "no error");
  EXPECT_EQ(write("normalizer", R"({"type":"NFC"})"), "no error");  // few texts have separate accents: a warning
  const std::string lower = write("normalizer", R"({"type":"Lowercase"})");
  EXPECT_PRED2(has_text, lower, "cannot describe the normalizer of the model's tokenizer: 'AB' would become");
  EXPECT_PRED2(has_text, write("normalizer", R"({"type":"NFKC"})"), "cannot describe the normalizer");
  EXPECT_PRED2(has_text,
      write("pre_tokenizer", R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})"),
      "pre_tokenizer or post_processor");
  const std::string begin = R"({"SpecialToken":{"id":"<|endoftext|>","type_id":0}},)",
                    items = "[" + begin + begin + R"({"Sequence":{"id":"A","type_id":0}}])";
  EXPECT_PRED2(has_text,
      write("post_processor", R"({"type":"TemplateProcessing","single":)" + items + R"(,"pair":)" + items +
                                  R"(,"special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[0],)" +
                                  R"("tokens":["<|endoftext|>"]}}})"),
      "pre_tokenizer or post_processor");
}

TEST(Gguf, RotaryPositionsAreScaledAsLlamaCppDoes) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const auto scaling = [&](std::vector<std::pair<std::string, Json>> keys) {
    save_keys(std::move(keys), 4, folder / "a.gguf");
    const GgufModel model(folder / "a.gguf");
    return Json::parse(model.files().at("config.json"), JsonLimits::settings()).at("rope_scaling");
  };
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const Json linear = scaling({{key, 2.0}});
    EXPECT_EQ(linear.value("rope_type", ""), "linear") << key;
    EXPECT_EQ(linear.value("factor", 0.0), 2) << key;
  }
  const Json yarn = scaling({{"llama.rope.scaling.type", "yarn"}, {"llama.rope.scaling.factor", 4.0},
      {"llama.rope.scaling.attn_factor", 0.5}});
  EXPECT_NEAR(yarn.value("attention_factor", 0.0), 0.5 * (0.1 * std::log(4) + 1), 1e-6);
  for (const auto& [key, value] :
      {std::pair("llama.attention.layer_norm_rms_epsilon", NAN), {"llama.rope.freq_base", INFINITY}})
    EXPECT_PRED2(has_text, error_of([&, key = key, value = value] {
      scaling({{key, value}});
    }),
        "'" + std::string(key) + "' is not a finite number");
}

// Tokenizers of three kinds, through a file and back.
class GgufTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizer, GivesTheSameTokens) {
  use_gguf_models();
  const testing::TemporaryFolder folder;
  const auto from = load_pretrained_tokenizer(std::string("tests/golden/tokenizers/") + GetParam());
  const int64_t size = from->vocab_size() + 3;
  const auto read = tokenizer_of(gguf_tokenizer_keys(*from, size), size, folder / "a.gguf");
  EXPECT_EQ(read->roles().begin, from->roles().begin);
  EXPECT_EQ(read->roles().end, from->roles().end);
  const Json golden = Json::parse(read_file("tests/golden/tokenizers/golden.json"), JsonLimits::tables());
  size_t compared = 0;
  for (const Json& line : golden.at("lines")) {
    const std::string& text = line.text();
    if (text.find("<0x") != text.npos) continue;  // special tokens in llama.json alone
    std::vector<TokenId> ids, read_ids;
    from->encode_with_special(text, ids);
    read->encode_with_special(text, read_ids);
    EXPECT_EQ(read_ids, ids) << text;
    ++compared;
    // All bytes are special tokens in that file.
    if (from->kind() != read->kind()) continue;
    EXPECT_EQ(read->decode(ids), from->decode(ids));
  }
  EXPECT_GT(compared, 40u);
}
INSTANTIATE_TEST_SUITE_P(
    Files, GgufTokenizer, ::testing::Values("gpt2.json", "llama3.json", "llama.json"), [](const auto& info) {
      std::string name = info.param;
      std::erase(name, '.');
      return name;
    });
}  // namespace
}  // namespace linnet
