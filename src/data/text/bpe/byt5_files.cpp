#include "data/text/bpe/byte_alphabet.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/pretrained_files.h"

namespace linnet {

Pipeline read_byt5(const JsonObject& config) {
  constexpr TokenId kFirstByte = 3, kBytes = 256, kUsualExtra = 125;
  const int64_t extra = config.integer("extra_ids", kUsualExtra);
  if (extra < 0 || extra > 1 << 16) config.fail("extra_ids", "is out of range");
  Json pieces = Json::object();
  for (int byte = 0; byte < kBytes; ++byte) {
    const char text = static_cast<char>(byte);
    std::string spelling;
    spell_bytes({&text, 1}, spelling);
    pieces[spelling] = kFirstByte + byte;
  }
  Json model = Json::parse(R"({"type": "BPE", "merges": []})", JsonLimits::settings());
  model["vocab"] = std::move(pieces);
  const Json byte_level =
      Json::parse(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false})", JsonLimits::settings());
  const Json post = Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
               {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}})",
                                JsonLimits::settings());
  Pipeline pipeline;
  pipeline.model = read_model(JsonObject(model, config.where()), true);
  read_pre_tokenizer(JsonObject(byte_level, config.where()), pipeline.pre_tokenizers);
  read_post_processor(JsonObject(post, config.where()), pipeline.post);
  read_decoder(JsonObject(byte_level, config.where()), pipeline.decoders);
  pipeline.pre_tokenizer_json = pipeline.decoder_json = byte_level.dump_sorted();
  pipeline.post_json = post.dump_sorted();
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
