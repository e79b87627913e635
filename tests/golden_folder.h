// A copy of a golden model with a vocabulary of the words w0, w1, ...
#pragma once
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>

namespace linnet::testing {
class GoldenFolder {
 public:
  GoldenFolder(const std::string& name, int words)
      : path_(std::filesystem::temp_directory_path() / ("linnet_golden_" + name + std::to_string(::getpid()))) {
    std::filesystem::copy(std::string(LINNET_GOLDEN) + "/" + name, path_, std::filesystem::copy_options::recursive);
    const bool bert = name.starts_with("bert");
    std::ofstream file(path_ / "vocab.txt");
    const char* special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (int i = 0; i < words; ++i)
      file << (bert && i < 5 ? special[i] : i == 3 ? "[UNK]" : "w" + std::to_string(i)) << '\n';
  }
  GoldenFolder(const GoldenFolder&) = delete;
  GoldenFolder& operator=(const GoldenFolder&) = delete;
  ~GoldenFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};
}  // namespace linnet::testing
