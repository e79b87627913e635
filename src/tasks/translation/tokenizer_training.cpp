#include "base/json.h"
#include "data/text/pretrained_files.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/trained_tokenizers.h"
#include "tasks/translation/tokenizer_pair.h"

namespace linnet {
namespace {
constexpr const char* kTrained = "the trained model";

TokenizerOptions tokenizer_options(const Config& config) {
  return {.kind = config.data.tokenizer,
      .vocab_size = config.data.vocab_size,
      .model_type = config.data.tokenizer_model,
      .character_coverage = config.data.character_coverage,
      .seed = static_cast<uint64_t>(config.train.seed)};
}

std::shared_ptr<const Tokenizer> train_one(const Config& config, const std::vector<std::string>& lines) {
  TokenizerOptions options = tokenizer_options(config);
  if (config.model.architecture != "t5" || options.kind != "sentencepiece") return train_tokenizer(options, lines);
  // T5's format, so that others load exported runs: transformers' T5Tokenizer assumes these ids in any case.
  options.special = {.pad = 0, .unknown = 2, .begin = -1, .end = 1};
  const Json settings = {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}}, none = Json::object();
  Pipeline pipeline =
      read_sentencepiece_pipeline(train_sentencepiece(options, lines), kTrained, "T5", settings, JsonObject(none, ""));
  const Json written = parse_tokenizer_config(pipeline.config_json, kTrained);
  auto tokenizer = std::make_shared<PipelineTokenizer>(std::move(pipeline));
  set_roles_from_files(*tokenizer, JsonObject(written, kTrained), JsonObject(none, ""));
  return tokenizer;
}

// Marian folders have two models and one vocabulary; here one model serves both sides. As usual there, the end comes
// first and padding last: programs without padding omit the last token.
TokenizerPair train_marian(const Config& config, const std::vector<std::string>& lines) {
  const std::string model = train_sentencepiece(tokenizer_options(config), lines);
  const SentencePieceModelFile file = read_sentencepiece_model(model, kTrained);
  Json vocabulary;
  const auto add = [&](const std::string& piece) {
    if (!vocabulary.contains(piece)) vocabulary[piece] = vocabulary.size();
  };
  add(file.end_piece), add("<unk>");
  for (const auto& piece : file.pieces)
    if (piece.text != file.pad_piece) add(piece.text);
  add(file.pad_piece);
  const auto make = [&](const char* file_name) {
    return std::make_shared<SentencePiecePretrained>(model, kTrained,
        SentencePieceOptions{.file_name = file_name,
            .add_end = true,
            .vocabulary = vocabulary.dump(),
            .config_json = R"({"tokenizer_class": "MarianTokenizer"})"});
  };
  return {make("source.spm"), make("target.spm"), {}};
}
}  // namespace

TokenizerPair train_tokenizers(const Config& config, const ParallelText& train) {
  if (!config.data.joint_vocab) {
    const auto source = train_one(config, train.source), target = train_one(config, train.target);
    return {source, target, begin_of(config, source->special())};
  }
  std::vector<std::string> both = train.source;
  both.insert(both.end(), train.target.begin(), train.target.end());
  if (config.model.architecture == "marian" && config.data.tokenizer == "sentencepiece") {
    TokenizerPair pair = train_marian(config, both);
    pair.special = begin_of(config, pair.source->special());
    return pair;
  }
  const auto tokenizer = train_one(config, both);
  return {tokenizer, tokenizer, begin_of(config, tokenizer->special())};
}
}  // namespace linnet
