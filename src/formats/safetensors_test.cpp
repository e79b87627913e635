#include "formats/safetensors.h"
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <random>
#include "base/json.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
// A file with the header `json` and `data_bytes` bytes of data.
std::string file_of(const std::string& json, size_t data_bytes) {
  const uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + json + std::string(data_bytes, '\1');
}

SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile(std::as_bytes(std::span(bytes)), "model.safetensors");
}

// The message of the user error that reading `bytes` ends with.
std::string problem(const std::string& bytes) {
  const std::string message = error_of([&] { parse(bytes); });
  EXPECT_TRUE(message == "no error" || has_text(message, "model.safetensors")) << message;
  return message;
}

#define EXPECT_PROBLEM(bytes, part) EXPECT_PRED2(has_text, problem(bytes), part)

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(problem(file_of("{}", 0)), "no error");
  EXPECT_EQ(problem(file_of("{}   ", 0)), "no error");
  EXPECT_EQ(problem(file_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)), "no error");
  EXPECT_EQ(problem(file_of(R"({"e":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},)"
                            R"("b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
                            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                8)),
      "no error");
}

TEST(Safetensors, NamesWhatIsWrongWithTheFrame) {
  EXPECT_PROBLEM("", "is empty");
  EXPECT_PROBLEM("1234567", "only 7 bytes");
  EXPECT_PROBLEM(file_of("{}", 0).substr(0, 9), "header would have 2 bytes");
  EXPECT_PROBLEM(std::string(8, '\xff'), "header would have 18446744073709551615 bytes");
  EXPECT_PROBLEM(file_of("", 4), "not a JSON object");
  EXPECT_PROBLEM(file_of("[]", 0), "not a JSON object");
  EXPECT_PROBLEM(file_of("{\"a\":", 0), "not JSON");
  EXPECT_PROBLEM(file_of("{\"\xff\":{}}", 0), "not JSON");
  EXPECT_PROBLEM(file_of("{\"a\":" + std::string(100'000, '['), 0), "nests deeper than 3 levels");
  EXPECT_PROBLEM(file_of("{}", 1), "tensors end at byte 0 of 1");
}

// A header with one tensor 't' of the given fields, over 24 bytes of data.
std::string one(const std::string& fields) { return file_of("{\"t\":{" + fields + "}}", 24); }

TEST(Safetensors, NamesWhatIsWrongWithATensor) {
  EXPECT_EQ(problem(one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])")), "no error");
  EXPECT_PROBLEM(one(R"("dtype":"BF16","shape":[12],"data_offsets":[0,24])"),
      "'t' has dtype 'BF16', which Linnet does not read here");
  EXPECT_PROBLEM(one(R"("dtype":4,"shape":[6],"data_offsets":[0,24])"), "'t' has a dtype that is not a string");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[6])"), "'t' has no data_offsets");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[6],"data_offsets":[0,24],"x":0)"), "'t' has a field that is not");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":6,"data_offsets":[0,24])"), "'t' has a shape that is not a list");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[-6],"data_offsets":[0,24])"), "'t' has a shape with -6 in it");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[6.0],"data_offsets":[0,24])"), "'t' has a shape with 6.0 in it");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,24])"), "beyond any memory");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,6],"data_offsets":[0,24])"), "'t' has 7 axes");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[6],"data_offsets":[0])"), "not two natural numbers");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[6],"data_offsets":[24,0])"), "lies at bytes 24 to 0");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[7],"data_offsets":[0,28])"), "cut short");
  EXPECT_PROBLEM(one(R"("dtype":"F32","shape":[5],"data_offsets":[0,24])"), "'t' is F32[5], 20 bytes, but lies at");
  EXPECT_PROBLEM(file_of(R"({"t":[]})", 0), "'t' is not an object");
  EXPECT_PROBLEM(file_of(R"({"__metadata__":{"k":1}})", 0), "metadata 'k' is not a string");
  EXPECT_PROBLEM(file_of(R"({"a\nb":[]})", 0), "'a\\nb'");  // still one line
}

TEST(Safetensors, OpensAHeaderOfManyTensors) {
  constexpr int kTensors = 100'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(parse(file_of(header + "}", 0)).entries().size(), static_cast<size_t>(kTensors));
}

std::string two(const std::string& a, const std::string& b, size_t data_bytes) {
  return file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + a +
                     "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + b + "}}",
      data_bytes);
}

TEST(Safetensors, TensorsCoverTheFileExactly) {
  EXPECT_EQ(problem(two("[0,4]", "[4,8]", 8)), "no error");
  EXPECT_PROBLEM(two("[0,4]", "[2,6]", 8), "'b' overlaps");
  EXPECT_PROBLEM(two("[0,4]", "[0,4]", 4), "'b' overlaps");
  EXPECT_PROBLEM(two("[0,4]", "[8,12]", 12), "'b' leaves a hole");
  EXPECT_PROBLEM(two("[4,8]", "[8,12]", 12), "'a' leaves a hole");
  EXPECT_PROBLEM(two("[0,4]", "[4,8]", 12), "end at byte 8 of 12");
  EXPECT_PROBLEM(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                     8),
      "names \"a\" twice");
}

class SafetensorsOnDisk : public ::testing::Test {
 protected:
  std::string save_example() {
    const SafetensorsTensor tensors[] = {{"weight", {DType::kF32, {2, 3}}, floats_},
        {"step", {DType::kI32, {}}, &step_}, {"empty", {DType::kF32, {0, 4}}, nullptr},
        {"sum \"x\"", {DType::kF64, {2}}, doubles_}};
    save_safetensors(path_, tensors, metadata_);
    EXPECT_EQ(safetensors_size(tensors, metadata_), std::filesystem::file_size(path_));
    return read_file(path_);
  }
  const float floats_[6] = {1, 2, 3, 4, 5, -0.0f};
  const double doubles_[2] = {0.1, 1e300};
  const int32_t step_ = -7;
  const SafetensorsMetadata metadata_{{"format_version", "1"}, {"note", "line\n\"two\""}};
  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path(), path_ = made_ / "model.safetensors";
};

TEST_F(SafetensorsOnDisk, ReadsBackWhatWasSaved) {
  save_example();
  const SafetensorsFile file(path_);
  file.check_data();
  EXPECT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.at("weight").type, (TensorType{DType::kF32, {2, 3}}));
  EXPECT_EQ(std::memcmp(file.at("weight").data, floats_, sizeof floats_), 0);
  EXPECT_EQ(std::memcmp(file.at("sum \"x\"").data, doubles_, sizeof doubles_), 0);
  EXPECT_EQ(std::memcmp(file.at("step").data, &step_, sizeof step_), 0);
  EXPECT_EQ(file.at("empty").type.shape, (Shape{0, 4}));
  for (const SafetensorsEntry& entry : file.entries())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.data) % dtype_size(entry.type.dtype), 0u) << entry.name;
  for (const auto& [key, value] : metadata_) EXPECT_EQ(file.metadata().at(key), value);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(error_of([&] { file.at("nothing"); }), "'" + path_ + "' has no tensor 'nothing'");
}

TEST_F(SafetensorsOnDisk, ADamagedWeightIsFoundByTheChecksum) {
  std::string bytes = save_example();
  bytes[bytes.size() - 6] ^= 1;
  const SafetensorsFile file = parse(bytes);
  EXPECT_THROW(file.check_data(), Error);
}

TEST_F(SafetensorsOnDisk, EveryTruncationIsAnError) {
  const std::string bytes = save_example();
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(problem(bytes.substr(0, size)), "no error") << size;
}

// Whatever bits flip, the file is read or refused; sanitizer builds see what is read out of bounds.
TEST_F(SafetensorsOnDisk, FlippedBitsNeverCrash) {
  const std::string bytes = save_example();
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = bytes;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    error_of([&] { parse(damaged).check_data(); });  // which may only be a user error
  }
}

TEST(Safetensors, ReadsAFileOfTheOriginalLibrary) {
  const SafetensorsFile file("tests/golden/transformer_post_ln_relu.safetensors");
  EXPECT_EQ(file.entries().size(), 224u);
  EXPECT_EQ(file.metadata().at("d_model"), "16");
  EXPECT_EQ(file.at("source").type.dtype, DType::kI32);
  EXPECT_EQ(file.at("final.decoder.layers.0.cross_attn.kv_proj.weight").type, (TensorType{DType::kF64, {32, 16}}));
  file.check_data();
}
}  // namespace
}  // namespace linnet
