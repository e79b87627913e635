#include "data/text/pipeline/tokenizer_json.h"
#include <unordered_set>
#include "base/files.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

std::vector<AddedToken> read_added_tokens(const JsonObject& root) {
  std::vector<AddedToken> added;
  if (!root.has("added_tokens")) return added;
  std::unordered_set<TokenId> ids;
  for (const JsonObject& object : root.objects("added_tokens")) {
    added.push_back(read_added_token(object, object.integer("id")));
    if (!ids.insert(added.back().id).second) object.fail("has an id that another has");
  }
  return added;
}

std::string format_added_token(const AddedToken& token) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return std::string("{\"id\":") + std::to_string(token.id) + ",\"content\":" + quote_json(token.text) +
         ",\"single_word\":" + flag(token.single_word) + ",\"lstrip\":" + flag(token.left_strip) +
         ",\"rstrip\":" + flag(token.right_strip) + ",\"normalized\":" + flag(token.normalized) +
         ",\"special\":" + flag(token.special) + "}";
}

}  // namespace

AddedToken read_added_token(const JsonObject& token, int64_t id) {
  AddedToken added;
  if (id < 0 || id > Vocabulary::kMaxId) token.fail("has the id " + std::to_string(id));
  added.id = static_cast<TokenId>(id);
  added.text = token.text("content");
  added.special = token.flag("special", false);
  added.normalized = token.flag("normalized", !added.special);
  added.single_word = token.flag("single_word", false);
  added.left_strip = token.flag("lstrip", false);
  added.right_strip = token.flag("rstrip", false);
  return added;
}

std::string quote_json(std::string_view text) { return Json(text).dump(); }

std::string number_json(double value) { return Json(value).dump(); }

std::string vocabulary_json(const Vocabulary& vocabulary) {
  std::string text = "{";
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id)) continue;
    text += text.size() == 1 ? "\n" : ",\n";
    text += quote_json(vocabulary.piece(id)) + ":" + std::to_string(id);
  }
  return text + "}";
}

Pipeline read_tokenizer_json(std::string_view text, const std::string& path, const TokenizerTables* tables) {
  const Json document = Json::parse(text, "'" + path + "'", JsonLimits::tables());
  const JsonObject root(document, "'" + path + "':");
  Pipeline pipeline;
  bool byte_level = false;
  if (root.has("normalizer")) {
    pipeline.normalizer = read_normalizer(root.object("normalizer"));
    pipeline.normalizer_json = root.at("normalizer").dump_sorted();
  }
  if (root.has("pre_tokenizer")) {
    byte_level = read_pre_tokenizer(root.object("pre_tokenizer"), pipeline.pre_tokenizers);
    pipeline.pre_tokenizer_json = root.at("pre_tokenizer").dump_sorted();
  }
  pipeline.model = read_model(root.object("model"), byte_level, tables);
  if (root.has("post_processor")) {
    read_post_processor(root.object("post_processor"), pipeline.post);
    pipeline.post_json = root.at("post_processor").dump_sorted();
  }
  pipeline.join_by_space = !root.has("decoder");
  if (root.has("decoder")) {
    read_decoder(root.object("decoder"), pipeline.decoders);
    pipeline.decoder_json = root.at("decoder").dump_sorted();
  }
  pipeline.added = read_added_tokens(root);
  return pipeline;
}

std::string PipelineTokenizer::to_json() const { return to_json(pipeline_.model->to_json()); }

std::string PipelineTokenizer::to_json(const std::string& model) const {
  std::string text = "{\n\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n\"added_tokens\":[";
  for (size_t i = 0; i < pipeline_.added.size(); ++i)
    text += (i > 0 ? ",\n" : "\n") + format_added_token(pipeline_.added[i]);
  text += "],\n\"normalizer\":" + pipeline_.normalizer_json + ",\n\"pre_tokenizer\":" + pipeline_.pre_tokenizer_json +
          ",\n\"post_processor\":" + pipeline_.post_json + ",\n\"decoder\":" + pipeline_.decoder_json +
          ",\n\"model\":" + model + "\n}\n";
  return text;
}

std::map<std::string, std::string> PipelineTokenizer::files() const {
  std::map<std::string, std::string> files = pipeline_.made_of;
  files["tokenizer.json"] = to_json();
  files["tokenizer_config.json"] = format_tokenizer_config(*this, pipeline_.config_json);
  return files;
}

}  // namespace linnet
