#include "models/families/labels.h"
#include "base/files.h"

namespace linnet {
namespace {
constexpr const char *kProblemKey = "problem_type", *kPairsKey = "linnet_text_pairs",
                     *kNoAnswerKey = "linnet_may_lack_answers";
}  // namespace

int64_t label_count(const ConfigFile& config) {
  if (config.has("num_labels")) return config.size("num_labels");
  const auto named = static_cast<int64_t>(config.count("id2label"));
  return named > 0 ? named : 2;
}

std::vector<std::string> label_names(const ConfigFile& config) {
  const ConfigFile names = config.object("id2label");
  std::vector<std::string> result;
  for (int64_t i = 0; i < label_count(config); ++i) {
    const std::string number = std::to_string(i);
    result.push_back(names.text(number, "LABEL_" + number));
  }
  return result;
}

void name_labels(ConfigFile& config, const std::vector<std::string>& classes) {
  ConfigFile names, numbers;
  for (size_t i = 0; i < classes.size(); ++i) {
    names.set(std::to_string(i), classes[i]);
    numbers.set(classes[i], static_cast<int64_t>(i));
  }
  config.set("id2label", names);
  config.set("label2id", numbers);
}

std::string problem_type(const ConfigFile& config) { return config.text(kProblemKey, ""); }
void set_problem_type(ConfigFile& config, const std::string& type) { config.set(kProblemKey, type); }
// The other keys are those of sentence-transformers' cross-encoders.
bool has_pairs(const ConfigFile& config) {
  return config.flag(kPairsKey, false) || config.has("sentence_transformers") ||
         config.has("sbert_ce_default_activation_function");
}
bool is_cross_encoder(const std::string& folder) {
  const std::string path = folder + "/config_sentence_transformers.json";
  return file_exists(path) && ConfigFile(path).text("model_type", "") == "CrossEncoder";
}
void set_pairs(ConfigFile& config, bool pairs) {
  if (pairs) config.set(kPairsKey, true);
}
bool may_lack_answers(const ConfigFile& config) { return config.flag(kNoAnswerKey, false); }
void set_may_lack_answers(ConfigFile& config) { config.set(kNoAnswerKey, true); }
}  // namespace linnet
