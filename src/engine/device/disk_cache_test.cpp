#include "engine/device/disk_cache.h"
#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>
#include "base/files.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

class DiskCache : public ::testing::Test {
 protected:
  DiskCache() { setenv("LINNET_CACHE", (folder_ / "cache").c_str(), 1); }
  ~DiskCache() override { unsetenv("LINNET_CACHE"); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_ / "cache"))
      for (const auto& entry : fs::directory_iterator(folder_ / "cache")) found.push_back(entry.path());
    return found;
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  const testing::TemporaryFolder made_;
  const fs::path folder_ = made_.path();
};

TEST_F(DiskCache, KeepsBytesByKindAndKey) {
  EXPECT_EQ(cached_bytes("kernel", "a"), std::nullopt);
  const std::string bytes("one\0two\n", 8);
  cache_bytes("kernel", "a", bytes);
  cache_bytes("kernel", "b", "");
  EXPECT_EQ(cached_bytes("kernel", "a"), bytes);
  EXPECT_EQ(cached_bytes("kernel", "b"), "");
  EXPECT_EQ(cached_bytes("matmul", "a"), std::nullopt);
  cache_bytes("kernel", "a", "new");
  EXPECT_EQ(cached_bytes("kernel", "a"), "new");
  EXPECT_EQ(files().size(), 2u);  // nothing temporary stays
}

TEST_F(DiskCache, DamagedFilesCountAsNone) {
  cache_bytes("kernel", "key", "some bytes");
  const fs::path file = files().at(0);
  const std::string whole = read_file(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    write(file, whole.substr(0, size));
    EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt) << "cut to " << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    write(file, damaged);
    EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt) << "byte " << i;
  }
  write(file, whole + "x");
  EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt);
  cache_bytes("kernel", "key", "again");
  EXPECT_EQ(cached_bytes("kernel", "key"), "again");
}

TEST_F(DiskCache, AFileOfAnotherKeyCountsAsNone) {
  cache_bytes("kernel", "key", "bytes");
  const fs::path first = files().at(0);
  cache_bytes("kernel", "yek", "other");
  for (const fs::path& file : files())  // as if both keys had one hash
    if (file != first) fs::copy_file(file, first, fs::copy_options::overwrite_existing);
  EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt);
}

TEST_F(DiskCache, PlacesThatTakeNothingCostOnlyTime) {
  write(folder_ / "cache", "a file where the folder should be");
  cache_bytes("kernel", "key", "bytes");
  EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt);
  setenv("LINNET_CACHE", "/proc/nothing/here", 1);
  cache_bytes("kernel", "key", "bytes");
  EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt);
}

TEST_F(DiskCache, FoldersOfTheUser) {
  unsetenv("LINNET_CACHE");
  const char* home = std::getenv("HOME");
  const std::string kept_home = home ? home : "";
  setenv("XDG_CACHE_HOME", (folder_ / "xdg").c_str(), 1);
  cache_bytes("kernel", "key", "x");
  EXPECT_TRUE(fs::exists(folder_ / "xdg" / "linnet"));
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", (folder_ / "home").c_str(), 1);
  cache_bytes("kernel", "key", "h");
  EXPECT_TRUE(fs::exists(folder_ / "home" / ".cache" / "linnet"));
  EXPECT_EQ(cached_bytes("kernel", "key"), "h");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  cache_bytes("kernel", "key", "nowhere");
  EXPECT_EQ(cached_bytes("kernel", "key"), std::nullopt);
  if (home) setenv("HOME", kept_home.c_str(), 1);
}

TEST_F(DiskCache, ManyWritersAtOnce) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([i] {
      for (int j = 0; j < 20; ++j) cache_bytes("kernel", "key", std::string(5000, static_cast<char>('a' + i)));
    });
  for (int j = 0; j < 100; ++j) {
    const auto bytes = cached_bytes("kernel", "key");
    if (bytes) {
      EXPECT_EQ(*bytes, std::string(5000, bytes->at(0)));
    }
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(cached_bytes("kernel", "key"));
  EXPECT_EQ(files().size(), 1u);
}
}  // namespace
}  // namespace linnet
