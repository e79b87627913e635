#include "training/run/pretrained_run.h"

#include "base/error.h"
#include "base/files.h"

namespace linnet {
namespace {

constexpr const char *kFolder = "/pretrained", *kConfigFile = "/pretrained/config.json", *kTokenizer = "tokenizer";

}  // namespace

void save_pretrained_assets(const std::string& folder, const PretrainedModel& model,
                            const PretrainedTokenizer& tokenizer) {
  tokenizer.save(folder, kTokenizer);
  make_directories(folder + kFolder);
  model.config.save(folder + kConfigFile);
}

PretrainedModel open_run_model(const std::string& folder) { return new_pretrained(ConfigFile(folder + kConfigFile)); }

void refuse_adapters(const std::string& run, const std::vector<AdapterFolder>& adapters) {
  if (adapters.empty()) return;
  fail_user("--adapter reads adapters beside a model folder, and '" + run + "' is a run; `linnet export " + run +
            " --out FOLDER` makes a model folder of it");
}

std::unique_ptr<PretrainedTokenizer> open_run_tokenizer(const std::string& folder) {
  return load_pretrained_tokenizer(folder + "/" + kTokenizer);
}

}  // namespace linnet
