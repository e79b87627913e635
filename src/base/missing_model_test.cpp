#include <gtest/gtest.h>
#include <filesystem>
#include "base/files.h"
#include "temporary_folder.h"

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

TEST(MissingModel, KnowsAdaptersAndOldSentenceFolders) {
  const testing::TemporaryFolder adapter, old;
  adapter.write("adapter_config.json", "{}");
  std::filesystem::create_directory(old / "0_Transformer");
  old.write("0_Transformer/config.json", "{}");
  EXPECT_NE(missing_model_hint(adapter.path()).find("--adapter " + adapter.path()), std::string::npos);
  EXPECT_NE(missing_model_hint(old.path()).find("modules.json"), std::string::npos);
}
}  // namespace
}  // namespace linnet
