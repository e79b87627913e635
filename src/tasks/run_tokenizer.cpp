#include "tasks/run_tokenizer.h"

#include "base/error.h"
#include "tasks/task_table.h"
#include "tasks/translation/tokenizer_pair.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {

std::shared_ptr<const Tokenizer> load_pair_tokenizer(const Config& config, const std::string& folder, bool target) {
  const TokenizerPair pair = load_tokenizers(config, folder);
  return target ? pair.target : pair.source;
}

std::shared_ptr<const Tokenizer> load_text_tokenizer(const Config&, const std::string& folder, bool) {
  if (file_exists(folder + "/tokenizer")) return open_run_tokenizer(folder);
  if (file_exists(folder + "/tokenizer.numbers"))
    fail_user("run '" + folder + "' was trained on token numbers: it has no tokenizer");
  return load_tokenizer(folder, "tokenizer");
}

std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target) {
  const Config config = RunFolder(folder).load_config();
  const TaskActions& task = task_actions(config);
  if (!task.tokenizer) fail_user("run '" + folder + "' " + task.no_tokenizer);
  return task.tokenizer(config, folder, target);
}

}  // namespace linnet
