// The classes of a classifier, as config.json has them: "id2label" and "label2id".
#pragma once
#include "models/families/config_file.h"

namespace linnet {

// What config.json says of labels; 2 when it says nothing.
int64_t label_count(const ConfigFile& config);
// Their names in order ("LABEL_0" where the file has none).
std::vector<std::string> label_names(const ConfigFile& config);
void name_labels(ConfigFile& config, const std::vector<std::string>& classes);

}  // namespace linnet
