// `kill -9` at twenty moments of a training run, resumed each time: nothing is lost, nothing happens twice.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <filesystem>
#include <random>
#include "formats/safetensors.h"
#include "integration/program.h"

namespace linnet::testing {
namespace {
// Large enough that a checkpoint takes a while to write; dropout, moving average, accumulation and evaluations on.
const Arguments kSettings{"d_model=128", "num_heads=4", "d_ff=512", "dropout=0.1", "ema_decay=0.95",
    "accumulate_steps=2", "max_steps=240", "eval_every=15", "save_every=4", "batch_size=8", "train_samples=150"};

size_t logged(const std::string& run) { return lines(contents(run + "/metrics.jsonl")).size(); }

// Whether the moment came while the process was alive: a checkpoint being written, or some steps further on.
bool wait_for_moment(Program& program, const std::string& run, std::mt19937& random, bool in_checkpoint) {
  const size_t start = logged(run), steps = 1 + random() % 7;
  const char* files[] = {
      "/training_state.safetensors.tmp", "/training_state.safetensors.tmp", "/model.safetensors.tmp"};
  const std::string temporary = run + files[random() % 3];
  // The last process may have left its temporary file behind: it is the new one's when it was written to since.
  const auto stamp = [&] {
    struct stat status {};
    return ::stat(temporary.c_str(), &status) == 0
               ? std::pair{status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_size}
               : std::pair{0L, 0L};
  };
  const auto before = stamp();
  while (in_checkpoint ? stamp() == before || stamp().second == 0 : logged(run) < start + steps) {
    if (!program.running()) return false;
    ::usleep(100);
  }
  ::usleep(static_cast<useconds_t>(random() % (in_checkpoint ? 3000 : 8000)));
  return program.running();
}

// Every tensor of a training state; its metadata holds seconds, which differ.
void expect_same_tensors(const std::string& a, const std::string& b) {
  const SafetensorsFile first(a), second(b);
  ASSERT_EQ(first.entries().size(), second.entries().size());
  for (const SafetensorsEntry& entry : first.entries())
    EXPECT_EQ(std::memcmp(entry.data, second.at(entry.name).data, entry.type.bytes()), 0) << entry.name;
}

struct Kills {
  int all = 0, while_writing = 0;
};

// Trains in `whole`, and in `run` with that many kills; both have the same bits in the end.
Kills expect_undisturbed(const Arguments& settings, int wanted, const std::string& whole, const std::string& run) {
  EXPECT_EQ(train(whole, settings).exit_code, 0);
  Arguments arguments = train_arguments(run, settings);
  arguments.push_back("--resume");

  std::mt19937 random(20240611);
  Kills kills;
  for (int attempt = 0; kills.all < wanted && attempt < 3 * wanted; ++attempt) {
    Program program(arguments);
    if (wait_for_moment(program, run, random, attempt % 2 == 0)) {
      program.send(SIGKILL);
      ++kills.all;
    }
    const Outcome outcome = program.wait();
    if (outcome.signal == 0) {
      EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
      break;  // it got to the end: the settings train too few steps
    }
    kills.while_writing += exists(run + "/training_state.safetensors.tmp") || exists(run + "/model.safetensors.tmp");
  }
  const Outcome last = ::linnet::testing::run(arguments);
  EXPECT_EQ(last.exit_code, 0) << last.error;

  const std::vector<Metrics> got = read_metrics(run), expected = read_metrics(whole);
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size() && i < expected.size(); ++i)
    if (!(got[i] == expected[i])) {
      EXPECT_EQ(got[i], expected[i]) << "line " << i + 1;
      break;
    }
  EXPECT_EQ(contents(run + "/model.safetensors"), contents(whole + "/model.safetensors"));
  expect_same_tensors(run + "/training_state.safetensors", whole + "/training_state.safetensors");
  return kills;
}

TEST(Kill, TwentyTimesAndTheRunIsTheUndisturbedOne) {
  const TemporaryFolder folder;
  const Kills kills = expect_undisturbed(kSettings, 20, folder / "whole", folder / "run");
  EXPECT_GE(kills.all, 20);
  EXPECT_GE(kills.while_writing, 5);
  const std::vector<Metrics> metrics = read_metrics(folder / "run");
  EXPECT_EQ(of_split(metrics, "train").size(), 240u);
  EXPECT_EQ(of_split(metrics, "valid").size(), 16u);
}

// In fp16, with a loss scale so high that the first steps are skipped and so quick to grow that later ones are, too.
TEST(Kill, InFp16TheLossScaleGoesOnWhereItWas) {
  const TemporaryFolder folder;
  const Arguments settings{"d_model=64", "num_heads=4", "d_ff=128", "dropout=0.1", "max_steps=60", "eval_every=20",
      "save_every=3", "precision=fp16", "loss_scale=16777216", "loss_scale_steps=5", "batch_size=8",
      "train_samples=150"};
  const Kills kills = expect_undisturbed(settings, 4, folder / "whole", folder / "run");
  EXPECT_GE(kills.all, 3);
  const std::string last = lines(contents(folder / "run/metrics.jsonl")).at(59);
  EXPECT_EQ(last.find("\"skipped_steps\":0,"), std::string::npos) << last;
}

// A run that ends while it writes a model to be kept has not saved that step yet: resumed, it keeps the model.
TEST(Kill, ModelThatWasNotKeptIsKeptByTheResumedRun) {
  const TemporaryFolder folder;
  const Arguments settings{"max_steps=6", "save_every=2", "keep_every=4", "eval_every=6"};
  const std::string run = folder / "run", kept = run + "/checkpoints/4.safetensors";
  ASSERT_EQ(train(run, {"max_steps=2", "save_every=2", "keep_every=4", "eval_every=6"}).exit_code, 0);
  std::filesystem::create_directories(kept + "/in_the_way");
  EXPECT_EQ(train(run, settings, {"--resume"}).exit_code, 2);
  std::filesystem::remove_all(kept);
  ASSERT_EQ(train(run, settings, {"--resume"}).exit_code, 0);
  ASSERT_EQ(train(folder / "whole", settings).exit_code, 0);
  ASSERT_TRUE(exists(kept));
  EXPECT_EQ(contents(kept), contents(folder / "whole/checkpoints/4.safetensors"));
}
}  // namespace
}  // namespace linnet::testing
