// A classifier of images through the command line: it learns, it goes on from where it stopped, and says what is wrong.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "integration/program.h"

namespace linnet::testing {
namespace {

constexpr int kSize = 6;

void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
}

// MNIST's four files: bright dots in the upper half are class 1, in the lower half class 0.
void write_images(const TemporaryFolder& folder, const std::string& prefix, int count) {
  std::string images("\0\0\x08\x03", 4), labels("\0\0\x08\x01", 4);
  append_big_endian(images, static_cast<uint32_t>(count));
  append_big_endian(images, kSize);
  append_big_endian(images, kSize);
  append_big_endian(labels, static_cast<uint32_t>(count));
  uint32_t random = 7;
  for (int image = 0; image < count; ++image) {
    const bool upper = (random >> 16) % 2 == 0;
    labels += upper ? '\1' : '\0';
    for (int i = 0; i < kSize * kSize; ++i) {
      random = random * 1664525 + 1013904223;
      const bool inside = (i < kSize * kSize / 2) == upper;
      images += static_cast<char>(inside && random >> 30 == 0 ? 230 : random >> 26);
    }
  }
  folder.write(prefix + "-images-idx3-ubyte", images);
  folder.write(prefix + "-labels-idx1-ubyte", labels);
}

class Images : public ::testing::Test {
 protected:
  Images() {
    write_images(folder_, "train", 400);
    write_images(folder_, "t10k", 100);
  }
  Outcome train_images(const std::string& run_folder, const Arguments& more = {}) const {
    Arguments arguments{"train", "mnist",         "--run", folder_ / run_folder, "--set", "data.dir=" + folder_.path(),
                        "--set", "max_steps=120", "--set", "eval_every=40",      "--set", "held_out_images=50",
                        "--set", "batch_size=32", "--set", "save_every=40",      "--set", "learning_rate=0.01"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(Images, AreLearnedAndEvaluated) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Outcome trained = train_images(precision, {"--set", std::string("precision=") + precision});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    const Outcome evaluated = run({"eval", folder_ / precision, "--json"});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
    const auto json = nlohmann::json::parse(evaluated.out);
    EXPECT_EQ(json["images"], 100);
    EXPECT_GT(json["accuracy"].get<double>(), 0.97);
  }
}

TEST_F(Images, AResumedRunIsTheUndisturbedOne) {
  ASSERT_EQ(train_images("whole").exit_code, 0);
  ASSERT_EQ(train_images("parts", {"--set", "max_epochs=2"}).exit_code, 0);
  ASSERT_EQ(train_images("parts", {"--resume"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "whole/model.safetensors"), contents(folder_ / "parts/model.safetensors"));
}

TEST_F(Images, WhatIsWrongIsSaidInOneLine) {
  const auto refused = [](const Outcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), outcome.error.npos) << outcome.error;
  };
  refused(train_images("a", {"--set", "metric=bleu"}), "no metric");
  refused(train_images("a", {"--set", "architecture=transformer"}), "does not go with");
  refused(train_images("a", {"--set", "held_out_images=400"}), "leaves none");
  refused(train_images("a", {"--set", "data.dir=/nowhere"}), "/nowhere");
  ASSERT_EQ(train_images("run").exit_code, 0);
  refused(run({"eval", folder_ / "run", "--data-dir", folder_ / "run"}), "run");
  refused(run({"translate", folder_ / "run"}), "not translation");
  folder_.write("run/images.json", "{\"height\": 6}");
  refused(run({"eval", folder_ / "run"}), "images.json");
}

}  // namespace
}  // namespace linnet::testing
