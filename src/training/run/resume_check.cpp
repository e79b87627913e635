#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "training/run/data_fingerprint.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_path_of_data(const std::string& key) {
  return key == "data_dir" || std::ranges::count(data_file_keys(), key) > 0;
}

}  // namespace

void check_resumable(const Config& saved, const Config& wanted, const std::string& folder) {
  const DataFingerprint before = DataFingerprint::load(folder), now = DataFingerprint::of(wanted);
  const std::vector<std::string> changes = before.changes(now);
  // The same data in another place, all of them.
  const bool moved = !before.entries.empty() && before.entries.size() == now.entries.size() && changes.empty();
  std::vector<std::string> fixed;
  bool same_paths = true;
  for (const std::string& key : changed_keys(with_absolute_paths(saved), wanted)) {
    if (is_path_of_data(key)) same_paths = false;
    if (!may_change_on_resume(key) && !(moved && is_path_of_data(key))) fixed.push_back(key);
  }
  if (!fixed.empty())
    fail_user("run folder '" + folder + "' was made with another configuration; --resume cannot change: " +
              joined(fixed) + " (`linnet train " + folder + " --resume` goes on as it began)");
  if (same_paths && !changes.empty())
    log_warning("the data have changed since the run began (" + joined(changes) +
                "): it goes on with what is there now");
}

}  // namespace linnet
