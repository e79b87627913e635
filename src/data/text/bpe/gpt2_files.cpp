#include "base/error.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/pretrained_files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A first line "#version: 0.2", then "a b" on each line. A line may end in \r\n; the last one need not end at all.
Json read_merge_lines(std::string_view text, const std::string& path) {
  Json merges = Json::array();
  size_t number = 0;
  text = without_mark(text);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos || invalid_utf8_at(line) != std::string_view::npos)
      fail_user("'" + path + "' line " + std::to_string(number) + ": not two pieces and a space");
    merges.push_back(std::string(line));
  }
  return merges;
}

}  // namespace

Pipeline read_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
                         const std::string& merges_path, const std::string& kind, const JsonObject& config) {
  Json model;
  model["type"] = "BPE";
  model["vocab"] = Json::parse(vocabulary, "'" + vocabulary_path + "'", JsonLimits::tables());
  model["merges"] = read_merge_lines(merges, merges_path);
  const bool qwen = kind.starts_with("Qwen2"), roberta = kind.starts_with("Roberta") || kind.starts_with("Bart");
  const bool prefix_space = config.flag("add_prefix_space", false);
  const auto json = [](const std::string& text) { return Json::parse(text, JsonLimits::settings()); };
  Json byte_level = json(R"({"type": "ByteLevel", "trim_offsets": false})");
  byte_level["add_prefix_space"] = prefix_space, byte_level["use_regex"] = !qwen;
  Json pre_tokenizer = byte_level;
  if (qwen) {
    Json words = json(R"({"type": "Split", "behavior": "Isolated"})"), steps = Json::array();
    words["pattern"]["Regex"] = kQwen2Expression;
    steps.push_back(std::move(words)), steps.push_back(byte_level);
    pre_tokenizer = json(R"({"type": "Sequence"})");
    pre_tokenizer["pretokenizers"] = std::move(steps);
  }
  Pipeline pipeline;
  pipeline.model = read_model(JsonObject(model, "'" + vocabulary_path + "' and '" + merges_path + "'"), true);
  const Vocabulary& pieces = pipeline.model->vocabulary();
  if (qwen || kind.starts_with("GPTNeoX")) {
    const Json normalizer = json(R"({"type": "NFC"})");
    pipeline.normalizer = read_normalizer(JsonObject(normalizer, merges_path));
    pipeline.normalizer_json = normalizer.dump_sorted();
  }
  Json post = byte_level;
  if (const TokenId begin = pieces.find("<s>"), end = pieces.find("</s>"); roberta && begin >= 0 && end >= 0) {
    post = json(R"({"type": "RobertaProcessing", "sep": ["</s>", )" + std::to_string(end) + R"(], "cls": ["<s>", )" +
                std::to_string(begin) + "]}");
    post["trim_offsets"] = config.flag("trim_offsets", true), post["add_prefix_space"] = prefix_space;
  }
  read_pre_tokenizer(JsonObject(pre_tokenizer, merges_path), pipeline.pre_tokenizers);
  read_post_processor(JsonObject(post, merges_path), pipeline.post);
  read_decoder(JsonObject(byte_level, merges_path), pipeline.decoders);
  pipeline.pre_tokenizer_json = pre_tokenizer.dump_sorted();
  pipeline.post_json = post.dump_sorted();
  pipeline.decoder_json = byte_level.dump_sorted();
  for (const char* piece : {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"})  // of GPT-2, RoBERTa and BART
    if (const TokenId id = pieces.find(piece); id >= 0)
      pipeline.added.push_back({.id = id, .text = piece, .special = true});
  return pipeline;
}

}  // namespace linnet
