// What the tests of image files share: a folder of its own, and errors as text.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include "base/error.h"

namespace linnet {
class ImageTest : public ::testing::Test {
 protected:
  ImageTest() {
    char name[] = "/tmp/linnet_images_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ImageTest() override { std::filesystem::remove_all(folder_); }

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
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
      std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos);
      for (size_t at; (at = message.find(folder_ + "/")) != std::string::npos;) message.erase(at, folder_.size() + 1);
      return message;
    }
    return "no error";
  }

  std::string folder_;
};
}  // namespace linnet
