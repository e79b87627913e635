// A folder that is removed again, whatever happens.
#pragma once
#include <stdlib.h>
#include <filesystem>
#include <string>
#include "base/error.h"

namespace linnet {

class TemporaryFolder {
 public:
  // `beginning`: the path of a name that others do not have begins so. Its parent exists.
  explicit TemporaryFolder(const std::string& beginning) : path_(beginning + "XXXXXX") {
    if (!::mkdtemp(path_.data()))
      fail_errno("cannot make a folder in " + std::filesystem::path(path_).parent_path().string());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace linnet
