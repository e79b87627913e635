// config.json's keys for classifiers: "id2label", "label2id", "problem_type", and whether texts are pairs.
#pragma once
#include "models/families/config_file.h"

namespace linnet {
int64_t label_count(const ConfigFile& config);                   // 2 by default
std::vector<std::string> label_names(const ConfigFile& config);  // in order; "LABEL_0" by default
void name_labels(ConfigFile& config, const std::vector<std::string>& classes);

// "regression", "multi_label_classification" or another of transformers' words; "" by default.
std::string problem_type(const ConfigFile& config);
void set_problem_type(ConfigFile& config, const std::string& type);
// Whether the model learned from pairs of texts, by a key of Linnet's own, as transformers keeps no such record.
bool has_pairs(const ConfigFile& config);
void set_pairs(ConfigFile& config, bool pairs);
// Whether sentence-transformers scores pairs with it, by a file of its own since version 6.
bool is_cross_encoder(const std::string& folder);
// Whether the model learned that a question may have no answer, by a key of Linnet's own.
bool may_lack_answers(const ConfigFile& config);
void set_may_lack_answers(ConfigFile& config);
}  // namespace linnet
