// The older files of tokenizers as what tokenizer.json would hold.
#include "data/text/pretrained_files.h"
#include "base/fail.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Calls use(line, number) with each line, which may end in \r\n; the last one need not end at all.
template <class Use>
void for_each_line(std::string_view text, const Use& use) {
  text = without_mark(text);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, number);
  }
}

// A first line "#version: 0.2", then "a b" on each line.
Json read_merge_lines(std::string_view text, const std::string& path) {
  Json merges = Json::array();
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos || invalid_utf8_at(line) != std::string_view::npos)
      fail_user("'", path, "' line ", number, ": not two pieces and a space");
    merges.push_back(line);
  });
  return merges;
}

Json read_piece_lines(std::string_view text, const std::string& path) {
  Json vocabulary = Json::object();
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (invalid_utf8_at(line) != std::string_view::npos) fail_user("'", path, "' line ", number, ": not valid UTF-8");
    vocabulary[line] = number - 1;  // of two equal lines the last one counts, as in tokenizers
  });
  return vocabulary;
}

// The special tokens that the model has.
void add_special(std::initializer_list<const char*> pieces, Pipeline& pipeline) {
  for (const char* piece : pieces)
    if (const TokenId id = pipeline.model->vocabulary().find(piece); id >= 0)
      pipeline.added.push_back({.id = id, .text = piece, .special = true});
}

}  // namespace

Pipeline read_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path, std::string_view merges,
                         const std::string& merges_path, const std::string& kind, const JsonObject& config) {
  const bool qwen = kind.starts_with("Qwen2"), roberta = kind.starts_with("Roberta") || kind.starts_with("Bart");
  const bool prefix_space = config.flag("add_prefix_space", false);
  const Json byte_level = {
      {"type", "ByteLevel"}, {"trim_offsets", false}, {"add_prefix_space", prefix_space}, {"use_regex", !qwen}};
  Json file{{"pre_tokenizer", byte_level}, {"post_processor", byte_level}, {"decoder", byte_level}};
  Json& model = file["model"] = {{"type", "BPE"}};
  model["vocab"] = Json::parse(vocabulary, "'" + vocabulary_path + "'", JsonLimits::tables());
  model["merges"] = read_merge_lines(merges, merges_path);
  if (qwen) {
    const Json words = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", kQwen2Expression}}}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({words, byte_level})}};
  }
  if (qwen || kind.starts_with("GPTNeoX")) file["normalizer"] = {{"type", "NFC"}};
  const Json& pieces = file["model"]["vocab"];
  if (const Json* begin = pieces.find("<s>"), *end = pieces.find("</s>"); roberta && begin && end)
    file["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", Json::array({"</s>", *end})},
                              {"cls", Json::array({"<s>", *begin})},
                              {"trim_offsets", config.flag("trim_offsets", true)},
                              {"add_prefix_space", prefix_space}};
  Pipeline pipeline = read_pipeline(file, "'" + vocabulary_path + "' and '" + merges_path + "':");
  // Of GPT-2, RoBERTa and BART.
  add_special({"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"}, pipeline);
  return pipeline;
}

Pipeline read_bert_vocabulary(std::string_view text, const std::string& path, const std::string& kind,
                              const JsonObject& config) {
  const bool lowercase = config.flag("do_lower_case", true), mpnet = kind.starts_with("MPNet");
  Json file{{"normalizer",
             {{"type", "BertNormalizer"},
              {"clean_text", true},
              {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
              {"strip_accents", config.flag("strip_accents", lowercase)},
              {"lowercase", lowercase}}},
            {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
            {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
            {"model", {{"type", "WordPiece"}}}};
  const Json& pieces = file["model"]["vocab"] = read_piece_lines(text, path);
  const char* const begin = mpnet ? "<s>" : "[CLS]";
  const char* const end = mpnet ? "</s>" : "[SEP]";
  if (const Json* cls = pieces.find(begin), *sep = pieces.find(end); cls && sep) {
    Json post{{"type", mpnet ? "RobertaProcessing" : "BertProcessing"},
              {"sep", Json::array({end, *sep})},
              {"cls", Json::array({begin, *cls})}};
    if (mpnet) post["trim_offsets"] = true, post["add_prefix_space"] = false;
    file["post_processor"] = std::move(post);
  }
  Pipeline pipeline = read_pipeline(file, "'" + path + "':");
  if (mpnet) add_special({"<s>", "<pad>", "</s>", "[UNK]", "<mask>"}, pipeline);
  else add_special({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}, pipeline);
  for (AddedToken& token : pipeline.added) token.left_strip = token.text == "<mask>";
  return pipeline;
}

Pipeline read_byt5(const JsonObject& config) {
  constexpr TokenId kFirstByte = 3, kBytes = 256, kUsualExtra = 125;
  const int64_t extra = config.integer("extra_ids", kUsualExtra);
  if (extra < 0 || extra > 1 << 16) config.fail("extra_ids", "is out of range");
  Json file = Json::parse(R"({
      "model": {"type": "BPE", "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
      "post_processor": {"type": "TemplateProcessing",
          "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                   {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}})",
                          JsonLimits::settings());
  for (int byte = 0; byte < kBytes; ++byte)
    file["model"]["vocab"][spelt(std::string(1, static_cast<char>(byte)))] = kFirstByte + byte;
  Pipeline pipeline = read_pipeline(file, config.where());
  TokenId id = 0;
  for (const char* piece : {"<pad>", "</s>", "<unk>"})
    pipeline.added.push_back({.id = id++, .text = piece, .special = true, .left_strip = true, .right_strip = true});
  for (int64_t i = 0; i < extra; ++i)
    pipeline.added.push_back({.id = static_cast<TokenId>(kFirstByte + kBytes + i),
                              .text = "<extra_id_" + std::to_string(i) + ">",
                              .special = true});
  return pipeline;
}

}  // namespace linnet
