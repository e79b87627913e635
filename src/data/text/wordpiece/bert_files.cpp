#include "base/error.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/pretrained_files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

Json read_piece_lines(std::string_view text, const std::string& path) {
  Json vocabulary = Json::object();
  int64_t id = 0;
  for (text = without_mark(text); !text.empty(); ++id) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (invalid_utf8_at(line) != std::string_view::npos)
      fail_user("'" + path + "' line " + std::to_string(id + 1) + ": not valid UTF-8");
    vocabulary[std::string(line)] = id;  // of two equal lines the last one counts, as in tokenizers
  }
  return vocabulary;
}

}  // namespace

Pipeline read_bert_vocabulary(std::string_view text, const std::string& path, const std::string& kind,
                              const JsonObject& config) {
  const bool lowercase = config.flag("do_lower_case", true);
  const auto json = [](const char* step) { return Json::parse(step, JsonLimits::settings()); };
  Json normalizer = json(R"({"type": "BertNormalizer", "clean_text": true})"), model = json(R"({"type": "WordPiece"})");
  normalizer["handle_chinese_chars"] = config.flag("tokenize_chinese_chars", true);
  normalizer["strip_accents"] = config.flag("strip_accents", lowercase), normalizer["lowercase"] = lowercase;
  const Json pre_tokenizer = json(R"({"type": "BertPreTokenizer"})");
  const Json decoder = json(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})");
  model["vocab"] = read_piece_lines(text, path);
  Pipeline pipeline;
  pipeline.model = read_model(JsonObject(model, "'" + path + "'"), false);
  pipeline.normalizer = read_normalizer(JsonObject(normalizer, path));
  read_pre_tokenizer(JsonObject(pre_tokenizer, path), pipeline.pre_tokenizers);
  read_decoder(JsonObject(decoder, path), pipeline.decoders);
  pipeline.normalizer_json = normalizer.dump_sorted();
  pipeline.pre_tokenizer_json = pre_tokenizer.dump_sorted();
  pipeline.decoder_json = decoder.dump_sorted();
  const Vocabulary& vocabulary = pipeline.model->vocabulary();
  const bool mpnet = kind.starts_with("MPNet");
  const std::vector<const char*> pieces = mpnet ? std::vector{"<s>", "<pad>", "</s>", "[UNK]", "<mask>"}
                                                : std::vector{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (const char* piece : pieces)
    if (const TokenId id = vocabulary.find(piece); id >= 0)
      pipeline.added.push_back(
          {.id = id, .text = piece, .special = true, .left_strip = std::string_view(piece) == "<mask>"});
  const char* const begin = mpnet ? "<s>" : "[CLS]";
  const char* const end = mpnet ? "</s>" : "[SEP]";
  if (const TokenId cls = vocabulary.find(begin), sep = vocabulary.find(end); cls >= 0 && sep >= 0) {
    Json post = {{"type", mpnet ? "RobertaProcessing" : "BertProcessing"}, {"sep", {end, sep}}, {"cls", {begin, cls}}};
    if (mpnet) post["trim_offsets"] = true, post["add_prefix_space"] = false;
    read_post_processor(JsonObject(post, path), pipeline.post);
    pipeline.post_json = post.dump_sorted();
  }
  return pipeline;
}

}  // namespace linnet
