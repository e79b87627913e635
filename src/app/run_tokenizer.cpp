#include "app/run_tokenizer.h"

#include "app/pretrained_run.h"
#include "app/run_folder.h"
#include "app/tokenizer_pair.h"
#include "base/error.h"

namespace linnet {

std::shared_ptr<const Tokenizer> load_run_tokenizer(const std::string& folder, bool target) {
  const Config config = RunFolder(folder).load_config();
  const std::string& task = config.data.task;
  if (task == "images") fail_user("run '" + folder + "' reads images, not text: it has no tokenizer");
  if (task == "text" || task == "dates" || task == "random") {
    const TokenizerPair pair = load_tokenizers(config, folder);
    return target ? pair.target : pair.source;
  }
  if (file_exists(folder + "/tokenizer")) return open_run_tokenizer(folder);
  if (file_exists(folder + "/tokenizer.numbers"))
    fail_user("run '" + folder + "' was trained on token numbers: it has no tokenizer");
  return load_tokenizer(folder, "tokenizer");
}

}  // namespace linnet
