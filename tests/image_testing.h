// What the tests of image files share: a folder of its own, and errors as text.
#pragma once
#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
class ImageTest : public ::testing::Test {
 protected:
  // The path of a file in the folder; its parents are made.
  std::string path(const std::string& name) {
    const std::string file = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    return file;
  }
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  // The message of the user error that `action` must raise, of one line, with the folder's name left out.
  std::string error_of(const std::function<void()>& action) {
    return without_folder(linnet::error_of(action), folder_);
  }

  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};
}  // namespace linnet
