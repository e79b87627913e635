// Commands that are given a run folder where a model folder or a configuration is more usual, and the other way round.
#include <gtest/gtest.h>
#include "error_of.h"
#include "integration/program.h"

namespace linnet::testing {
namespace {
const std::string kGolden = LINNET_GOLDEN;

class FolderCommands : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(FolderCommands, InfoPlanAndTokenizerTakeARun) {
  ASSERT_EQ(train(run_).exit_code, 0);
  const Outcome info = run({"info", run_});
  ASSERT_EQ(info.exit_code, 0) << info.error;
  for (const char* part : {"task              translation\n", "transformer, 1 + 1 layers of width 16", "20 of 20 steps",
           "best              step ", "exact_match 0."})
    EXPECT_PRED2(has_text, info.out, part);
  const Outcome planned = run({"plan", run_});
  ASSERT_EQ(planned.exit_code, 0) << planned.error;
  EXPECT_PRED2(has_text, planned.out, "even all examples fit in one batch");

  for (const Arguments& side : {Arguments{}, Arguments{"--target"}}) {
    Arguments encode{"tokenizer", "encode", run_}, decode{"tokenizer", "decode", run_};
    encode.insert(encode.end(), side.begin(), side.end());
    decode.insert(decode.end(), side.begin(), side.end());
    const Outcome ids = run(encode, {.input = "2019-03-07\n"});
    ASSERT_EQ(ids.exit_code, 0) << ids.error;
    EXPECT_EQ(run(decode, {.input = ids.out}).out, "2019-03-07\n");
  }
  expect_user_error(run({"tokenizer", "encode", run_, "--special"}), "no template");
}

TEST_F(FolderCommands, WhatIsNotThereYetIsSaid) {
  const std::string model = kGolden + "/bert_model";
  expect_user_error(run({"plan", model}), "is a model folder, not a configuration");
  expect_user_error(run({"info", folder_ / "nothing"}), "nothing'");
  folder_.write("texts.tsv", "a dog\tanimal\na law\tstate\n");
  expect_user_error(
      run({"train", "sst2", "--data", folder_ / "texts.tsv", "--set", "model.from=nothere", "--run", run_}),
      "nothere\": there is no such folder; --set model.from=FOLDER names the model to start from");
  const std::string chat = folder_.write("chat.toml", run({"presets", "chat"}).out);
  for (const std::string& config : {std::string("chat"), chat})
    expect_user_error(run({"plan", config, "--set", "model.from=nothere"}),
        "nothere\": there is no such folder; --set model.from=FOLDER names the model to start from");
  // Stopped before its first evaluation.
  ASSERT_EQ(train(run_).exit_code, 0);
  expect_user_error(run({"embed", run_}), "embeds no sentences: it learned translation");
  ASSERT_EQ(std::remove((run_ + "/model.safetensors").c_str()), 0);
  expect_user_error(
      run({"eval", run_}), "has no model.safetensors yet: training saves it at its first evaluation, after step 10");
}

TEST_F(FolderCommands, OptionsOfAnotherFormAreRefused) {
  for (const Arguments& option :
      {Arguments{"--precision", "fp32"}, {"--opset", "17"}, {"--no-cache"}, {"--joined-past"}})
    for (const char* form : {"--out", "--gguf", "--adapter"}) {
      Arguments all{"export", run_, form, folder_ / "out.gguf"};
      all.insert(all.end(), option.begin(), option.end());
      expect_user_error(run(all), " go with --onnx DIR");
    }
  expect_user_error(run({"export", run_, "--onnx", folder_ / "out", "--type", "f16"}), "--type goes with --gguf FILE");
}

// Training would end by a segmentation fault.
TEST_F(FolderCommands, ASmallStackIsOneLine) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need larger stacks to begin";
#endif
  for (const uint64_t kilobytes : {128, 160})
    expect_user_error(run(train_arguments(run_), {.stack = kilobytes << 10}), "`ulimit -s 192`");
  EXPECT_EQ(run(train_arguments(run_, {"threads=2"}), {.stack = 192 << 10}).exit_code, 0);
}

// `linnet train RUN --resume` needs no more; a run that is complete and one that is not there are told of.
TEST_F(FolderCommands, ResumingSaysWhereItStands) {
  ASSERT_EQ(train(run_).exit_code, 0);
  const auto resume = [&](const std::string& folder, const Arguments& more) {
    Arguments all{"train", folder, "--run", folder, "--resume"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all, {.log = "info"});
  };
  const Outcome again = resume(run_, {});
  EXPECT_EQ(again.exit_code, 0) << again.error;
  EXPECT_NE(again.error.find(" steps already; --steps N goes on to N"), again.error.npos) << again.error;
  const Outcome missing = run({"train", "dates", "--run", folder_ / "tpyo", "--resume", "--steps", "1", "--set",
                                  "d_model=16", "--set", "train_samples=50"},
      {.log = "info"});
  EXPECT_NE(missing.error.find("tpyo' to go on with: a new run begins"), missing.error.npos) << missing.error;
  EXPECT_NE(run({"info", run_}).out.find("best"), std::string::npos);
}

TEST_F(FolderCommands, ARunDoesNotMixWithOtherFiles) {
  std::filesystem::create_directories(folder_ / "pictures/cats");
  expect_user_error(
      train(folder_ / "pictures"), "is no run and has other files, as 'cats'; --run DIR names another folder");
  EXPECT_FALSE(exists(folder_ / "pictures/.lock"));
  // An empty folder, the log of this program, and what a run has left that ended before it began.
  for (const char* name : {"empty", "logged", "begun"}) std::filesystem::create_directories(folder_ / name);
  folder_.write("logged/train.log", ""), folder_.write("begun/.lock", ""), folder_.write("begun/tokenizer.char", "");
  for (const char* name : {"empty", "logged", "begun"}) EXPECT_EQ(train(folder_ / name).exit_code, 0) << name;
}

TEST_F(FolderCommands, ExportKeepsAnotherModel) {
  copy_folder(kGolden + "/gpt2", folder_ / "mine");
  const std::string before = contents(folder_ / "mine/config.json");
  expect_user_error(
      run({"export", kGolden + "/llama", "--out", folder_ / "mine"}), "holds a model already (config.json)");
  EXPECT_EQ(contents(folder_ / "mine/config.json"), before);
}

TEST_F(FolderCommands, ValuesAreReadAsPeopleWriteThem) {
  const std::string model = kGolden + "/gpt2";
  for (const char* dtype : {"bf16", "BF16", "Bf16"})
    EXPECT_EQ(run({"convert", model, folder_ / dtype, "--dtype", dtype}).exit_code, 0) << dtype;
  EXPECT_EQ(contents(folder_ / "bf16/model.safetensors"), contents(folder_ / "BF16/model.safetensors"));
  expect_user_error(run({"convert", model, folder_ / "out", "--shard-gb", "nan"}), "nan is not a finite number");
  expect_user_error(
      run({"generate", model, "--seed", "99999999999999999999999"}), "--seed: 99999999999999999999999 is beyond what");
  expect_user_error(run({"generate", model, "--temperature", "inf"}), "inf is not a finite number");
}
}  // namespace
}  // namespace linnet::testing
