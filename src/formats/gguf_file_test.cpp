#include "formats/gguf_file.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "error_of.h"
#include "formats/safetensors.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
const std::string kGolden = "tests/golden/gguf/";  // tests/golden/make_gguf.py

std::vector<float> floats_of(const TensorFile& file, const std::string& name) {
  const TensorEntry& entry = file.at(name);
  std::vector<std::byte> room;
  std::vector<float> values(static_cast<size_t>(entry.type.shape.elements()));
  read_floats(entry.dtype, file.elements(entry, room), std::ssize(values), values.data());
  return values;
}

std::string error_of_bytes(const std::string& bytes) {
  return error_of([&] { GgufFile(std::as_bytes(std::span(bytes)), "w.gguf"); });
}

template <class T> std::string number(T value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string text(const std::string& value) { return number(uint64_t{value.size()}) + value; }
std::string head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + number(version) + number(tensors) + number(keys);
}
std::string tensor(const std::string& name, const std::vector<int64_t>& sizes, uint32_t type, uint64_t offset) {
  std::string bytes = text(name) + number(static_cast<uint32_t>(sizes.size()));
  for (const int64_t size : sizes) bytes += number(size);
  return bytes + number(type) + number(offset);
}

TEST(GgufFile, HasTheNumbersThatGgufReads) {
  const GgufFile file(kGolden + "blocks.gguf");
  const SafetensorsFile reference(kGolden + "blocks.safetensors", SafetensorsTypes::kAll);
  size_t compared = 0;
  for (const TensorEntry& entry : reference.entries()) {
    if (!entry.name.starts_with("tensor.")) continue;
    const std::string name = entry.name.substr(7);
    EXPECT_EQ(file.at(name).type.shape, entry.type.shape) << name;
    EXPECT_EQ(floats_of(file, name), floats_of(reference, entry.name)) << name << " " << file.at(name).text();
    ++compared;
  }
  EXPECT_EQ(compared, 8u);
  EXPECT_EQ(file.at("blk.0.ffn_down.weight").text(), "Q4_K[32, 256]");
  EXPECT_EQ(file.at("blk.0.ffn_up.weight").text(), "F16[256, 32]");
}

TEST(GgufFile, IsReadAsItWasWritten) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  std::vector<float> values(4 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * (i % 32 == 0 ? 3.0F : 1.0F);
  std::vector<GgufSource> sources;
  const auto fill = [&](int64_t first, int64_t count, float* out) { std::copy_n(values.begin() + first, count, out); };
  for (const char* name : {"F32", "F16", "BF16", "Q8_0", "Q4_0"})
    sources.push_back({name, find_gguf_blocks(name), {4, 64}, fill});
  sources.push_back({"odd", find_gguf_blocks("F16"), {3}, fill});
  const Json list = std::vector<std::string>{"a", ""};
  save_gguf(path, {{"a.count", 7}, {"a.real", 1e-5}, {"a.flag", true}, {"a.texts", list}, {"a.large", -5}}, sources);
  const GgufFile file(path);
  EXPECT_EQ(*file.key("a.count"), Json(7));
  EXPECT_EQ(*file.key("a.real"), Json(1e-5));  // and not 9.99999974737875e-06
  EXPECT_EQ(*file.key("a.flag"), Json(true));
  EXPECT_EQ(*file.key("a.texts"), list);
  EXPECT_EQ(*file.key("a.large"), Json(-5));
  EXPECT_EQ(file.key("b"), nullptr);
  EXPECT_EQ(floats_of(file, "F32"), values);
  for (const auto& [name, most] :
      {std::pair("F16", 1e-3F), {"BF16", 1e-2F}, {"Q8_0", 0.5F / 127 + 5e-4F}, {"Q4_0", 1.0F / 8}}) {
    const std::vector<float> read = floats_of(file, name);
    for (size_t i = 0; i < values.size(); ++i) {
      float largest = 0;
      for (size_t j = i / 32 * 32; j < (i / 32 + 1) * 32; ++j) largest = std::max(largest, std::abs(values[j]));
      EXPECT_NEAR(read[i], values[i], most * largest * 1.01F) << name << " " << i;
    }
  }
  EXPECT_EQ(file.at("odd").text(), "F16[3]");
}

TEST(GgufFile, ValuesThatAreNotFiniteAreRefused) {
  const testing::TemporaryFolder folder;
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const char* type : {"Q8_0", "Q4_0"}) {
      const auto fill = [&](int64_t, int64_t count, float* out) { std::fill_n(out, count, 1.0F), out[40] = bad; };
      const std::string path = folder / "a.gguf";
      const std::vector<GgufSource> sources{{"w", find_gguf_blocks(type), {2, 32}, fill}};
      EXPECT_PRED2(
          has_text, error_of([&] { save_gguf(path, {}, sources); }), "tensor w holds values that are not finite");
      EXPECT_FALSE(std::filesystem::exists(path));
    }
}

TEST(GgufFile, ReadsWhatItCanOfOtherTypesOfKeys) {
  const std::string keys = text("a") + number(10U) + number(uint64_t{1} << 60) + text("b") + number(12U) + number(0.1) +
                           text("c") + number(9U) + number(9U) + number(uint64_t{1}) + number(5U) +
                           number(uint64_t{2}) + number(-1) + number(3) + text("general.alignment") + number(4U) +
                           number(8U);
  std::string bytes = head(1, 4, 2) + keys + tensor("t", {2}, 0, 8);
  bytes.resize((bytes.size() + 7) / 8 * 8 + 8);
  bytes += number(1.5F) + number(2.5F);
  const GgufFile file(std::as_bytes(std::span(bytes)), "w.gguf");
  EXPECT_EQ(*file.key("a"), Json(int64_t{1} << 60));
  EXPECT_EQ(*file.key("b"), Json(0.1));
  EXPECT_EQ(file.key("c")->dump(), "[[-1,3]]");
  EXPECT_EQ(floats_of(file, "t"), (std::vector<float>{1.5, 2.5}));
}

TEST(GgufFile, RefusesWhatIsWrongInOneLine) {
  const auto has = [](const std::string& bytes, const std::string& part) {
    const std::string error = error_of_bytes(bytes);
    EXPECT_PRED2(has_text, error, part);
    EXPECT_EQ(error.find("'w.gguf'"), 0u) << error;
  };
  has("", "is empty");
  has("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  has("PK", "it is no GGUF file");
  has("GGUF", "it is cut short");
  has(head(0, 0, 1), "version 1");
  has(head(0, 0, 0x03000000), "big-endian");
  has(head(uint64_t{1} << 60, 0), "would have 1152921504606846976 tensors, more than its 24 bytes hold");
  has(head(0, UINT64_MAX), "more than its 24 bytes hold");
  has(head(0, 1) + text("a") + number(8U) + number(UINT64_MAX), "it is cut short");
  has(head(0, 1) + text("a") + number(9U) + number(0U) + number(uint64_t{1} << 40) + "abc", "elements in a list");
  has(head(0, 1) + text("a") + number(99U) + "12345678", "unknown type 99");
  std::string nested = head(0, 1) + text("a") + number(9U);
  for (int i = 0; i < 9; ++i) nested += number(9U) + number(uint64_t{1});
  has(nested + std::string(100, ' '), "lists within lists");
  has(head(0, 2) + text("a") + number(7U) + "\1" + text("a") + number(7U) + "\1" + "12345678", "is in it twice");
  const std::string padding(64, '\0');
  has(head(1, 0) + tensor("t", {32}, 10, 0) + padding, "is Q2_K, Linnet reads F32, F16");
  has(head(1, 0) + tensor("t", {32}, 99, 0) + padding, "of type 99");
  has(head(1, 0) + tensor("t", {31}, 8, 0) + padding, "no whole blocks of 32");
  has(head(1, 0) + tensor("t", {64}, 0, 0) + padding, "it is cut short");
  has(head(1, 0) + tensor("t", {4}, 0, UINT64_MAX - 7) + padding, "it is cut short");
  has(head(1, 0) + tensor("t", {-1}, 0, 0) + padding, "beyond any memory");
  has(head(1, 0) + tensor("t", {1LL << 40, 1LL << 40}, 0, 0) + padding, "beyond any memory");
  has(head(1, 0) + tensor("t", {1, 1, 1, 1, 1, 1, 1}, 0, 0) + padding, "7 axes");
  has(head(2, 0) + tensor("t", {1}, 0, 0) + tensor("t", {1}, 0, 0) + padding, "two tensors of one name");
  has(head(0, 1) + text("general.alignment") + number(4U) + number(0U), "general.alignment");
}
}  // namespace
}  // namespace linnet
