// The parts of tokenizer.json, each from its JSON.
#pragma once
#include "base/json_reader.h"
#include "data/text/pipeline/pipeline_tokenizer.h"
#include "data/text/pipeline/tokenizer_tables.h"

namespace linnet {

// `byte_level`: the words that the model sees are spelt in GPT-2's alphabet of bytes. `tables`: if set, they have
// what the JSON lacks.
std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level,
                                         const TokenizerTables* tables = nullptr);

std::unique_ptr<Normalizer> read_normalizer(const JsonObject& json);

// Appends the steps; returns whether ByteLevel is among them.
bool read_pre_tokenizer(const JsonObject& json, std::vector<std::unique_ptr<PreTokenizer>>& steps);

void read_post_processor(const JsonObject& json, PostProcessing& post);
void read_decoder(const JsonObject& json, std::vector<std::unique_ptr<TokenDecoder>>& steps);
SplitPattern read_pattern(const JsonObject& step);  // {"pattern": {"Regex": "..."}} or {"String": "..."}

}  // namespace linnet
