// BERT: config.json to our configuration and back.
#pragma once
#include "models/modules/bert.h"
#include "models/families/config_file.h"

namespace linnet {

// User error naming the key when the file asks for what Bert does not do.
BertConfig bert_config(const ConfigFile& config);
// What new_pretrained() takes for a model that was trained here; `architecture` as "BertForMaskedLM".
ConfigFile bert_config_file(const BertConfig& config, const std::string& architecture);

// Of BertForSequenceClassification: what config.json says of labels, 2 when it says nothing.
int64_t label_count(const ConfigFile& config);
// Their names in order ("LABEL_0" where the file has none).
std::vector<std::string> label_names(const ConfigFile& config);
// Writes them.
void name_labels(ConfigFile& config, const std::vector<std::string>& classes);

}  // namespace linnet
