#include <gtest/gtest.h>
#include "base/files.h"
#include "error_of.h"
#include "formats/tensor_file.h"
#include "formats/weight_files.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
const std::string kGolden = "tests/golden/pickled/";  // tests/golden/make_pickled.py

std::vector<float> floats_of(const TensorEntry& entry) {
  std::vector<float> values(static_cast<size_t>(entry.type.shape.elements()));
  read_floats(entry.dtype, entry.data, std::ssize(values), values.data());
  return values;
}

std::string error_of_bytes(const std::string& bytes) {
  return error_of([&] { PickledFile(std::as_bytes(std::span(bytes)), "w.bin"); });
}

// The pickle in an archive, as PyTorch would write it.
std::string archive_of(const std::string& pickle) {
  const auto number = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const std::string name = "a/data.pkl", zeros(22, '\0');
  std::string local = "PK\3\4" + zeros.substr(0, 22) + number(name.size(), 2) + number(0, 2) + name + pickle;
  const std::string directory = "PK\1\2" + zeros.substr(0, 16) + number(pickle.size(), 4) + number(pickle.size(), 4) +
                                number(name.size(), 2) + zeros.substr(0, 12) + number(0, 4) + name;
  return local + directory + "PK\5\6" + zeros.substr(0, 6) + number(1, 2) + number(directory.size(), 4) +
         number(local.size(), 4) + number(0, 2);
}

TEST(PickledFile, HasTheTensorsThatPyTorchSaved) {
  const PickledFile file(kGolden + "weights.bin");
  ASSERT_EQ(file.entries().size(), 8u);
  EXPECT_EQ(file.at("float").text(), "F32[2, 3]");
  EXPECT_EQ(floats_of(file.at("float")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.at("half").text(), "F16[3]");
  EXPECT_EQ(floats_of(file.at("half")), (std::vector<float>{0.5, -2, 65504}));
  EXPECT_EQ(file.at("bfloat").dtype, FileDType::kBF16);
  EXPECT_EQ(floats_of(file.at("bfloat")), (std::vector<float>{1, 3}));
  // Views of the first tensor: its transpose, and its second row, whose elements lie in the same storage.
  EXPECT_EQ(floats_of(file.at("transposed")), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(floats_of(file.at("row")), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(floats_of(file.at("parameter")), (std::vector<float>{7}));
  EXPECT_EQ(file.at("empty").text(), "F32[0, 4]");
  int64_t ids[2] = {};
  read_integers(file.at("ids").dtype, file.at("ids").data, 2, ids);
  EXPECT_EQ(ids[0], 1ll << 40);
  EXPECT_EQ(ids[1], -1);
}

TEST(PickledFile, RefusesByNameWhatIsNoTensor) {
  EXPECT_PRED2(has_text,
      error_of_bytes(archive_of("\x80\x02"
                                "cos\nsystem\n(X\2\0\0\0lstR.")),
      "'os.system'");
  EXPECT_PRED2(
      has_text, error_of_bytes(archive_of(std::string("\x80\x02}X\4\0\0\0stepK\5s.", 16))), "'step' is no tensor");
  EXPECT_PRED2(has_text, error_of_bytes(archive_of("\x80\x02K\5.")), "no dictionary");
  EXPECT_PRED2(has_text, error_of_bytes(archive_of("\x80\x02]i.")), "instruction 105");
  const std::string old = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  EXPECT_PRED2(has_text, error_of_bytes(old), "PyTorch before 1.6");
}

// Whatever is cut off or overwritten, there is one line of an error, or tensors that lie inside of the file.
TEST(PickledFile, DamageIsAnError) {
  const std::string good = read_file(kGolden + "weights.bin");
  for (size_t i = 0; i < good.size(); i += 7) {
    EXPECT_NE(error_of_bytes(good.substr(0, i)), "no error");
    for (const char mask : {'\x01', '\x55', '\xff'}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      error_of([&] {
        const PickledFile file(std::as_bytes(std::span(bytes)), "w.bin");
        for (const TensorEntry& entry : file.entries())
          if (is_float(entry.dtype)) floats_of(entry);
      });
    }
  }
}

TEST(PickledFile, AFolderIsReadWhereItHasNoSafetensors) {
  testing::TemporaryFolder folder;
  const std::string bytes = read_file(kGolden + "weights.bin");
  EXPECT_FALSE(has_weight_files(folder.path()));
  folder.write("part-1.bin", bytes);
  folder.write("pytorch_model.bin.index.json",
      R"({"weight_map": {"float": "part-1.bin", "half": "part-1.bin", "bfloat": "part-1.bin",
                   "transposed": "part-1.bin", "row": "part-1.bin", "parameter": "part-1.bin", "empty": "part-1.bin",
                   "ids": "part-1.bin"}})");
  EXPECT_TRUE(has_weight_files(folder.path()));
  EXPECT_EQ(WeightFiles(folder.path()).weights().size(), 8u);
  folder.write("pytorch_model.bin", bytes);
  EXPECT_NE(WeightFiles(folder.path()).find("row"), nullptr);
  const std::vector<float> one{1};
  const SafetensorsTensor tensor{"other", {DType::kF32, {1}}, one.data()};
  save_safetensors(folder.path() + "/model.safetensors", std::span(&tensor, 1));
  EXPECT_NE(WeightFiles(folder.path()).find("other"), nullptr);
}
}  // namespace
}  // namespace linnet
