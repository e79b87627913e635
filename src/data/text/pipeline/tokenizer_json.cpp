#include "data/text/pipeline/tokenizer_json.h"
#include <unordered_set>
#include "base/files.h"
#include "data/text/pipeline/tokenizer_tables.h"
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
  return Json(
      {{"id", token.id}, {"content", token.text}, {"single_word", token.single_word}, {"lstrip", token.left_strip},
          {"rstrip", token.right_strip}, {"normalized", token.normalized}, {"special", token.special}})
      .dump();
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

void fail_unknown(const JsonObject& json, const std::string& key, const std::string& value) {
  json.fail("has the " + key + " '" + value + "', which Linnet does not know");
}

Pipeline read_tokenizer_json(std::string_view text, const std::string& path, const TokenizerTables* tables) {
  return read_pipeline(Json::parse(text, "'" + path + "'", JsonLimits::tables()), "'" + path + "':", tables);
}

Pipeline read_pipeline(const Json& file, const std::string& where, const TokenizerTables* tables) {
  const JsonObject root(file, where);
  Pipeline pipeline;
  // The step's spelling in the file is kept.
  const auto read = [&](const char* key, std::string& spelling, const auto& use) {
    if (!root.has(key)) return;
    use(root.object(key));
    spelling = root.at(key).dump_sorted();
  };
  bool byte_level = false;
  read("normalizer", pipeline.normalizer_json,
      [&](const JsonObject& json) { read_normalizer(json, pipeline.normalizers); });
  read("pre_tokenizer", pipeline.pre_tokenizer_json,
      [&](const JsonObject& json) { byte_level = read_pre_tokenizer(json, pipeline.pre_tokenizers); });
  pipeline.model = read_model(root.object("model"), byte_level, tables);
  read("post_processor", pipeline.post_json, [&](const JsonObject& json) { read_post_processor(json, pipeline.post); });
  read("decoder", pipeline.decoder_json, [&](const JsonObject& json) { read_decoder(json, pipeline.decoders); });
  pipeline.join_by_space = !root.has("decoder");
  pipeline.added = read_added_tokens(root);
  return pipeline;
}

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
