// Packed models: what was put in comes out, through the paths of a folder; damage of any byte is one line.
#include "formats/packed_model.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
class PackedModel : public ::testing::Test {
 protected:
  PackedModel() { use_packed_models(); }
  ~PackedModel() override { set_packed_reader(kPackedEnding, nullptr); }
  static PackedContents contents() {
    static const float values[] = {1, 2, 3, 4, 5, 6};
    const auto fill = [](int64_t first, int64_t count, std::byte* out) {
      std::copy_n(reinterpret_cast<const std::byte*>(values + first), count * static_cast<int64_t>(sizeof(float)), out);
    };
    return {.weights = {{"w", FileDType::kF32, Shape{2, 3}, fill}, {"empty", FileDType::kF32, Shape{0}, fill}},
        .metadata = {{"step", "12"}},
        .files = {{"config.json", "{}"}, {"1_Pooling/config.json", "{\"a\": 1}"}, {"nothing.txt", ""}}};
  }
  // The message of the user error that reading gives.
  static std::string damage(const std::string& bytes) {
    const std::string message = error_of([&] { read_packed_model(std::as_bytes(std::span(bytes)), "a.linnet"); });
    EXPECT_TRUE(message == "no error" || has_text(message, "a.linnet")) << message;
    return message;
  }
  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "model.linnet";
};

TEST_F(PackedModel, IsReadLikeAFolder) {
  save_packed_model(path_, contents());
  EXPECT_TRUE(is_folder(path_));
  EXPECT_EQ(read_file(path_ + "/config.json"), "{}");
  EXPECT_EQ(read_file(path_ + "/1_Pooling/config.json"), "{\"a\": 1}");
  EXPECT_EQ(read_file(path_ + "/nothing.txt"), "");
  EXPECT_TRUE(file_exists(path_ + "/model.safetensors"));
  EXPECT_FALSE(file_exists(path_ + "/vocab.txt"));
  EXPECT_THROW(read_file(path_ + "/vocab.txt"), Error);
  const WeightFiles weights(path_);
  ASSERT_EQ(weights.weights().size(), 2u);
  EXPECT_EQ(weights.find("w")->entry->text(), "F32[2, 3]");
  float last;
  std::memcpy(&last, weights.find("w")->entry->data + 20, sizeof last);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(weights.find("w")->file->metadata(), (SafetensorsMetadata{{"step", "12"}}));
  // The data begin at a page, so that they can be mapped.
  const std::shared_ptr<const OpenedPackedModel> opened = open_packed_model(path_);
  EXPECT_EQ((opened->tensors.entries()[0].data - opened->file.bytes().data()) % 4096, 0);
  // Any reader of safetensors reads the file itself.
  EXPECT_EQ(SafetensorsFile(path_, SafetensorsTypes::kAll).entries().size(), 5u);
}

TEST_F(PackedModel, AFileThatIsReplacedIsReadAgain) {
  save_packed_model(path_, contents());
  EXPECT_EQ(read_file(path_ + "/config.json"), "{}");
  PackedContents other = contents();
  other.files["config.json"] = "[1, 2, 3]";
  save_packed_model(path_, other);
  EXPECT_EQ(read_file(path_ + "/config.json"), "[1, 2, 3]");
}

TEST_F(PackedModel, EveryByteThatIsAlteredOrMissingIsFound) {
  save_packed_model(path_, contents());
  const std::string whole = read_file(path_);
  ASSERT_EQ(damage(whole), "no error");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    // Blanks of the header may be replaced by a line's end and the like; nothing depends on them.
    if (whole[i] != ' ') {
      EXPECT_NE(damage(altered), "no error") << "byte " << i;
    }
    EXPECT_NE(damage(whole.substr(0, i)), "no error") << "cut at " << i;
  }
  EXPECT_NE(damage(whole + "x"), "no error");
}

// Weights are compared when somebody asks, all else when the file is opened.
TEST_F(PackedModel, AlteredWeightsAreFoundBeforeTheyAreRead) {
  save_packed_model(path_, contents());
  const std::string whole = read_file(path_);
  const std::shared_ptr<const OpenedPackedModel> good = open_packed_model(path_);
  const auto weights = static_cast<size_t>(good->tensors.find("w")->data - good->file.bytes().data());
  const auto alter = [&](size_t byte) {
    std::string bytes = whole;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 16);
    write_file_atomically(path_, bytes);
  };
  EXPECT_EQ(error_of([&] { open_packed(path_)->check(); }), "no error");
  alter(weights + 7);
  EXPECT_EQ(read_file(path_ + "/config.json"), "{}");
  const std::string damaged = error_of([&] { open_packed(path_)->check(); });
  EXPECT_PRED2(has_text, damaged, "checksum");
  EXPECT_EQ(error_of([&] { open_packed(path_)->check(); }), damaged) << "the second time, too";
  EXPECT_EQ(error_of([&] { WeightFiles{path_}; }), damaged);
  EXPECT_EQ(error_of([&] { read_packed_model(path_); }), "no error");
  alter(whole.find("{\"a\": 1}"));
  EXPECT_EQ(error_of([&] { read_packed_model(path_); }), damaged);
}

// A file of Linnet 0.1 with one checksum of all.
TEST_F(PackedModel, FilesOfVersion2AreOpenedAndCheckedAsAWhole) {
  const std::string whole = read_file("tests/golden/packed/version2.linnet");
  ASSERT_EQ(damage(whole), "no error");
  write_file_atomically(path_, whole);
  EXPECT_TRUE(file_exists(path_ + "/vocab.txt"));
  EXPECT_NO_THROW(open_packed(path_)->check());
  for (size_t i = 8; i < whole.size(); i += 101) {
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    if (whole[i] != ' ') {
      EXPECT_NE(damage(altered), "no error") << "byte " << i;
      write_file_atomically(path_, altered);
      EXPECT_THROW(read_packed_model(path_), Error) << "byte " << i;
    }
  }
}

// They are used where they lie.
TEST_F(PackedModel, TablesBeginAtMultiplesOf16Bytes) {
  PackedContents with = contents();
  with.files["tokenizer.tables"] = std::string(48, 't');
  with.files["a/tokenizer.tables"] = std::string(32, 'u');
  save_packed_model(path_, with);
  for (const char* name : {"tokenizer.tables", "a/tokenizer.tables"}) {
    const auto address = reinterpret_cast<uintptr_t>(open_packed(path_)->files.at(name).data());
    const auto weights = reinterpret_cast<uintptr_t>(open_packed_model(path_)->tensors.find("w")->data);
    EXPECT_EQ((address - weights - 24) % 16, 0u) << name;  // this test's weights are 24 bytes and fill no page
  }
}

TEST_F(PackedModel, OtherFilesAndOtherVersionsAreNamed) {
  SafetensorsMetadata metadata;
  save_weight_file(path_, contents().weights, metadata);
  EXPECT_PRED2(has_text, damage(read_file(path_)), "linnet pack");
  metadata[kPackedVersionKey] = "4";
  save_weight_file(path_, contents().weights, metadata);
  EXPECT_PRED2(has_text, damage(read_file(path_)), "newer");
  metadata[kPackedVersionKey] = "1";
  save_weight_file(path_, contents().weights, metadata);
  EXPECT_PRED2(has_text, damage(read_file(path_)), "older");
  PackedContents outside = contents();
  outside.files["../etc"] = "x";
  save_packed_model(path_, outside);
  EXPECT_NE(damage(read_file(path_)), "no error");
}
}  // namespace
}  // namespace linnet
