// What config.json says of a classifier's outputs: "id2label" and "label2id", "problem_type", and whether texts are
// pairs.
#pragma once
#include "models/families/config_file.h"

namespace linnet {

// What config.json says of labels; 2 when it says nothing.
int64_t label_count(const ConfigFile& config);
// Their names in order ("LABEL_0" where the file has none).
std::vector<std::string> label_names(const ConfigFile& config);
void name_labels(ConfigFile& config, const std::vector<std::string>& classes);

// "regression", "multi_label_classification" or another of transformers' words; "" where the file has none.
std::string problem_type(const ConfigFile& config);
void set_problem_type(ConfigFile& config, const std::string& type);
// Whether the model learned of pairs of texts. The key is Linnet's own: transformers keeps no such record.
bool has_pairs(const ConfigFile& config);
void set_pairs(ConfigFile& config, bool pairs);
// Whether sentence-transformers, which tells so in a file of its own since version 6, scores pairs with it.
bool is_cross_encoder(const std::string& folder);
// Whether the model learned that a question may have no answer. The key is Linnet's own.
bool may_lack_answers(const ConfigFile& config);
void set_may_lack_answers(ConfigFile& config);

}  // namespace linnet
