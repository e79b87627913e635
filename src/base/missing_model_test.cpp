#include <gtest/gtest.h>

#include "base/files.h"

namespace linnet {
namespace {

TEST(MissingModel, NamesTheWay) {
  const auto has = [](const std::string& path, const std::string& part) {
    return missing_model_hint(path).find(part) != std::string::npos;
  };
  EXPECT_TRUE(has("Qwen/Qwen3-0.6B", "`hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B`"));
  EXPECT_TRUE(has("folder/pytorch_model.bin", "config.json"));
  for (const char* path : {"nothing", "/a/b", "a/b/c", "./x", "../x/y", "tests/none", "a b/c", "/models/q4.gguf"})
    EXPECT_EQ(missing_model_hint(path), "") << path;
}

}  // namespace
}  // namespace linnet
