// The program with --device cuda, on the emulation as its module.
#include <gtest/gtest.h>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include "integration/made_images.h"
#include "integration/program.h"
#include "integration/ranks_testing.h"

namespace linnet::testing {
namespace {
class DeviceProgram : public ::testing::Test {
 protected:
  DeviceProgram() { ::setenv("LINNET_CUDA_MODULE", LINNET_EMULATED_MODULE, 1); }
  ~DeviceProgram() override { ::unsetenv("LINNET_CUDA_MODULE"); }

  const TemporaryFolder folder_;
};

const Arguments kSettings{
    "dropout=0.1", "ema_decay=0.9", "max_steps=4", "eval_every=2", "save_every=2", "eval_pairs=4"};

Arguments with(Arguments settings, const Arguments& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

void expect_near(const std::vector<Metrics>& got, const std::vector<Metrics>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double loss = std::stod(expected[i].loss);
    EXPECT_NEAR(std::stod(got[i].loss), loss, 1e-4 * loss) << "line " << i + 1;
  }
}

TEST_F(DeviceProgram, TrainsAsOnTheCpu) {
  ASSERT_EQ(train(folder_ / "cpu", kSettings).exit_code, 0);
  const Outcome outcome = train(folder_ / "gpu", kSettings, {"--device", "cuda"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  expect_near(read_metrics(folder_ / "gpu"), read_metrics(folder_ / "cpu"));
}

TEST_F(DeviceProgram, ResumesBitForBit) {
  ASSERT_EQ(train(folder_ / "whole", kSettings, {"--device", "cuda"}).exit_code, 0);
  ASSERT_EQ(train(folder_ / "parts", with(kSettings, {"max_steps=2"}), {"--device", "cuda"}).exit_code, 0);
  const Outcome rest = train(folder_ / "parts", kSettings, {"--device", "cuda", "--resume"});
  ASSERT_EQ(rest.exit_code, 0) << rest.error;
  const auto whole = read_metrics(folder_ / "whole"), parts = read_metrics(folder_ / "parts");
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(of_split(parts, "train"), of_split(whole, "train"));
}

TEST_F(DeviceProgram, StoresActivationsInBf16WhenAsked) {
  ASSERT_EQ(train(folder_ / "cpu", kSettings).exit_code, 0);
  const Outcome outcome = train(folder_ / "gpu", with(kSettings, {"precision=bf16"}), {"--device", "cuda:0"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const auto got = of_split(read_metrics(folder_ / "gpu"), "train"),
             expected = of_split(read_metrics(folder_ / "cpu"), "train");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NE(got[i].loss, expected[i].loss);
    EXPECT_NEAR(std::stod(got[i].loss), std::stod(expected[i].loss), 2e-2 * std::stod(expected[i].loss));
  }
}

// All images lie on the device: steps come in chunks that end with an epoch, an evaluation, a checkpoint.
class DeviceImages : public DeviceProgram {
 protected:
  DeviceImages() {
    write_images(folder_, "train", 200);
    write_images(folder_, "t10k", 10);
  }
  Outcome train_images(const std::string& name, const Arguments& more) const {
    Arguments arguments{"train", "mnist", "--run", folder_ / name, "--set", "data.dir=" + folder_.path(), "--set",
        "max_steps=40", "--set", "eval_every=15", "--set", "held_out_images=50", "--set", "batch_size=16", "--set",
        "save_every=20", "--set", "learning_rate=0.01"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(DeviceImages, AreLearnedAsOnTheCpu) {
  ASSERT_EQ(train_images("cpu", {}).exit_code, 0);
  const Outcome outcome = train_images("gpu", {"--device", "cuda"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  expect_near(read_metrics(folder_ / "gpu"), read_metrics(folder_ / "cpu"));
}

TEST_F(DeviceImages, AResumedRunIsTheUndisturbedOne) {
  // Another end of the training changes the rates of every other schedule.
  ASSERT_EQ(train_images("whole", {"--device", "cuda", "--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(
      train_images("parts", {"--device", "cuda", "--set", "max_epochs=2", "--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(train_images("parts", {"--device", "cuda", "--resume", "--set", "schedule=constant"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "whole/model.safetensors"), contents(folder_ / "parts/model.safetensors"));
}

TEST_F(DeviceImages, ALossThatIsNotFiniteEndsTheRun) {
  const Outcome outcome = train_images("run", {"--device", "cuda", "--set", "learning_rate=1e30"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.error.find("not finite at step 2; first at image_model.cpp"), outcome.error.npos) << outcome.error;
}

// The next step is on its way when the loss is read.
TEST_F(DeviceProgram, ALossThatIsNotFiniteIsFoundWithTheNextBatchInPlace) {
  const Outcome outcome =
      train(folder_ / "run", with(kSettings, {"learning_rate=1e30", "eval_every=4"}), {"--device", "cuda"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.error.find("not finite at step 2; first at "), outcome.error.npos) << outcome.error;
  EXPECT_NE(outcome.error.find(".cpp:"), outcome.error.npos) << outcome.error;
}

TEST_F(DeviceProgram, EvaluatesAndTranslatesARun) {
  ASSERT_EQ(train(folder_ / "run", kSettings).exit_code, 0);
  const Outcome cpu = run({"translate", folder_ / "run"}, {.input = "1 May 2020\nJune 3, 1999\n"});
  const Outcome gpu = run({"translate", folder_ / "run", "--device", "cuda"}, {.input = "1 May 2020\nJune 3, 1999\n"});
  ASSERT_EQ(cpu.exit_code, 0) << cpu.error;
  EXPECT_EQ(gpu.exit_code, 0) << gpu.error;
  EXPECT_EQ(gpu.out, cpu.out);
}

TEST_F(DeviceProgram, WritesTextFromKeysAndValuesThatItKeeps) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(i * i % 97) + " and " + std::to_string(i % 10) + "\n";
  std::ofstream(folder_ / "text.txt") << text;
  Arguments words{"train", "mini-gpt", "--run", folder_ / "run"};
  for (const std::string& setting :
      {"data.text=" + (folder_ / "text.txt"), std::string("num_layers=2"), std::string("d_model=32"),
          std::string("num_heads=2"), std::string("d_ff=64"), std::string("context=32"), std::string("max_steps=20")})
    words.insert(words.end(), {"--set", setting});
  const Outcome trained = run(words);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Arguments generate{
      "generate", folder_ / "run", "--prompt", "4 and", "--max-tokens", "12", "--temperature", "0"};
  const Outcome cpu = run(generate), kept = run(with(generate, {"--device", "cuda"})),
                again = run(with(generate, {"--device", "cuda", "--no-cache"}));
  ASSERT_EQ(cpu.exit_code, 0) << cpu.error;
  EXPECT_EQ(kept.out, cpu.out) << kept.error;
  EXPECT_EQ(again.out, cpu.out) << again.error;
  for (const char* format : {"bf16", "int8", "int8-weights", "int4-weights"}) {
    const Arguments quantized = with(generate, {"--quantize", format});
    const Outcome here = run(quantized), there = run(with(quantized, {"--device", "cuda"}));
    ASSERT_EQ(here.exit_code, 0) << here.error;
    EXPECT_EQ(there.out, here.out) << format << ": " << there.error;
  }
  // Adapters beside a base of 4 bits learn the same.
  ASSERT_EQ(run({"export", folder_ / "run", "--out", folder_ / "base"}).exit_code, 0);
  Arguments tune{"train", "mini-gpt"};
  for (const std::string& setting : {"data.text=" + (folder_ / "text.txt"), "model.from=" + (folder_ / "base"),
           std::string("lora.rank=2"), std::string("lora.base_storage=int4"), std::string("max_steps=4"),
           std::string("eval_every=4"), std::string("context=32")})
    tune.insert(tune.end(), {"--set", setting});
  ASSERT_EQ(run(with(tune, {"--run", folder_ / "tuned"})).exit_code, 0);
  const Outcome tuned = run(with(tune, {"--run", folder_ / "tuned_there", "--device", "cuda"}));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.error;
  expect_near(read_metrics(folder_ / "tuned_there"), read_metrics(folder_ / "tuned"));
}

// In fp32, in formats that a GPU multiplies as they are, and from a packed file.
TEST_F(DeviceProgram, EmbedsAsOnTheCpu) {
  const std::string text = "the cat sat on the mat\nhello world\n";
  const std::string bert = "tests/golden/pretrained/bert_model";
  const auto numbers = [&](const Arguments& arguments) {
    const Outcome outcome = run(arguments, {.input = text});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    std::vector<double> numbers;
    std::istringstream in(outcome.out);
    for (double number = 0; in >> number;) numbers.push_back(number);
    return numbers;
  };
  ASSERT_EQ(run({"pack", bert, "--quantize", "int8", "-o", folder_ / "bert.linnet"}).exit_code, 0);
  for (const Arguments& model : {Arguments{bert}, {bert, "--quantize", "int8"}, {bert, "--quantize", "bf16"},
           {bert, "--quantize", "int4-weights"}, {folder_ / "bert.linnet"}}) {
    SCOPED_TRACE(::testing::PrintToString(model));
    const auto cpu = numbers(with({"embed"}, model)), gpu = numbers(with({"embed", "--device", "cuda"}, model));
    ASSERT_FALSE(cpu.empty());
    ASSERT_EQ(gpu.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], model == Arguments{bert} ? 1e-5 : 4e-3);
  }
}

// The emulation joins no devices: gradients go through the host, as where there is no NCCL.
class DeviceRanks : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    ::setenv("LINNET_CUDA_MODULE", LINNET_EMULATED_MODULE, 1);
  }
  void TearDown() override { ::unsetenv("LINNET_CUDA_MODULE"); }
};

TEST_F(DeviceRanks, TrainToTheBitsOfOne) {
  for (const int ranks : {1, 2}) {
    Arguments arguments =
        translation(folder_ / std::to_string(ranks), with(kSettings, {"data_shards=2", "max_steps=2"}));
    arguments.insert(arguments.end(), {"--device", "cuda"});
    const Outcome outcome = with_ranks(arguments, ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  expect_same_bits(folder_ / "1", folder_ / "2");
}

TEST_F(DeviceProgram, InfoSaysWhatItIs) {
  const Outcome outcome = run({"info", "--device", "cuda"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.rfind("emulated GPU (", 0), 0u) << outcome.out;
}

TEST_F(DeviceProgram, AGpuThatIsNotThereIsOneLine) {
  const Outcome outcome = train(folder_ / "run", {}, {"--device", "cuda:7"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  EXPECT_NE(outcome.error.find("cuda:7"), outcome.error.npos) << outcome.error;
}
}  // namespace
}  // namespace linnet::testing
