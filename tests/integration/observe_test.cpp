// What a run shows of itself: profiles and event files. Looking must not change what is learned.
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <utility>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
const Arguments kEverything{"dropout=0.1", "ema_decay=0.9", "accumulate_steps=2", "eval_every=5"};

Arguments with(Arguments settings, const Arguments& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

std::vector<std::string> files_with(const std::string& folder, const std::string& part) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find(part) != std::string::npos) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

TEST(Observe, ProfileAndEventsChangeNoBitOfTheRun) {
  const TemporaryFolder folder;
  for (const Arguments& kind : {kEverything, Arguments{"eval_every=5"}}) {
    const std::string plain = folder / ("plain" + std::to_string(kind.size())),
                      watched = folder / ("watched" + std::to_string(kind.size()));
    ASSERT_EQ(train(plain, kind).exit_code, 0);
    ASSERT_EQ(train(watched, with(kind, {"tensorboard=true"}), {"--profile", "wait=2,active=3,repeat=2"}).exit_code, 0);
    EXPECT_EQ(read_metrics(plain), read_metrics(watched));
    EXPECT_EQ(contents(plain + "/model.safetensors"), contents(watched + "/model.safetensors"));
    EXPECT_EQ(files_with(watched, "events.out.tfevents.").size(), 1u);
    EXPECT_TRUE(exists(watched + "/profile/steps-4-6.pt.trace.json"));
    const auto summary = ParsedJson::parse(contents(watched + "/profile/steps-10-12.summary.json"));
    EXPECT_EQ(summary["steps"], 3);
    EXPECT_LE(summary["nodes_ms"], summary["step_ms"]);
  }
}

TEST(Observe, AMistakeInProfileIsOneLine) {
  const TemporaryFolder folder;
  const Outcome outcome = train(folder / "run", {}, {"--profile", "waits=1"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(
      outcome.error, "linnet: --profile: unknown key 'waits'; there are wait, warmup, active, repeat, skip_first\n");
  EXPECT_FALSE(exists(folder / "run"));
}

TEST(Observe, CheckPassesOnASanePresetAndNamesWhatFails) {
  const Arguments small{"check", "dates", "--set", "train_samples=200", "--set", "valid_samples=8", "--threads", "1"};
  const Outcome sane = run(small);
  EXPECT_EQ(sane.exit_code, 0) << sane.out << sane.error;
  EXPECT_NE(sane.out.find("pass  no look at later tokens"), sane.out.npos);
  const Outcome wild = run(with(small, {"--lr", "100", "--json"}));
  EXPECT_EQ(wild.exit_code, 1);
  const ParsedJson parsed = ParsedJson::parse(wild.out);
  for (const auto& line : parsed["checks"])
    EXPECT_EQ(line["verdict"] == "fail", line["name"] == "overfitting one batch") << line.dump();
}

TEST(Observe, LayersAreProfiledWithoutARunFolder) {
  const Outcome outcome = run({"profile", "dates", "--set", "train_samples=200", "--set", "valid_samples=8",
      "--profiled", "2", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const auto summary = ParsedJson::parse(outcome.out);
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_GT(summary["rows"].size(), 50u);
  EXPECT_GT(summary["nodes_ms"].get<double>(), 0);
  EXPECT_LE(summary["nodes_ms"].get<double>(), summary["step_ms"].get<double>());
}

struct Scalar {
  int64_t step;
  float value;
};

// The scalars of one tag as TensorBoard shows them: a START makes void what comes from its step on. The first one that
// there is says nothing.
std::vector<Scalar> scalars(const std::string& run, const std::string& tag) {
  std::vector<Scalar> all;
  bool started = false;
  for (const std::string& path : files_with(run, "events.out.tfevents.")) {
    const std::string bytes = contents(path);
    for (size_t at = 0; at + 12 <= bytes.size();) {
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, 8);
      const std::string message = bytes.substr(at + 12, length);
      at += 16 + length;
      if (message.size() < 11 || message[9] != '\x10') continue;  // after the wall time: step
      int64_t step = 0;
      size_t end = 10;
      for (int shift = 0;; shift += 7) {
        step |= static_cast<int64_t>(message[end] & 0x7f) << shift;
        if (!(message[end++] & 0x80)) break;
      }
      if (message[end] == '\x3a' && std::exchange(started, true))
        std::erase_if(all, [&](const Scalar& scalar) { return scalar.step >= step; });
      const size_t found = message.find("\x0a" + std::string(1, static_cast<char>(tag.size())) + tag + "\x15");
      if (found == message.npos) continue;
      all.push_back({step, 0});
      std::memcpy(&all.back().value, message.data() + found + 3 + tag.size(), 4);
    }
  }
  return all;
}

TEST(Observe, EventsOfAResumedRunHaveEveryStepOnceWithTheValuesOfTheLog) {
  const TemporaryFolder folder;
  const Arguments settings = with(kEverything, {"tensorboard=true", "save_every=5"});
  ASSERT_EQ(train(folder / "run", with(settings, {"max_steps=10"})).exit_code, 0);
  copy_folder(folder / "run", folder / "old");
  ASSERT_EQ(train(folder / "run", with(settings, {"max_steps=15"}), {"--resume"}).exit_code, 0);
  // As after a kill: the checkpoint is older than the events.
  std::filesystem::copy_file(folder / "old/training_state.safetensors", folder / "run/training_state.safetensors",
      std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(train(folder / "run", with(settings, {"max_steps=20"}), {"--resume"}).exit_code, 0);
  const std::vector<Metrics> trained = of_split(read_metrics(folder / "run"), "train");
  const std::vector<Scalar> losses = scalars(folder / "run", "train/loss");
  ASSERT_EQ(trained.size(), 20u);
  ASSERT_EQ(losses.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(losses[i].step, trained[i].step);
    EXPECT_EQ(losses[i].value, static_cast<float>(std::stod(trained[i].loss)));
  }
  EXPECT_EQ(scalars(folder / "run", "eval/loss").size(), 4u);
  // A resume without events voids those of the steps that it does again.
  std::filesystem::copy_file(folder / "old/training_state.safetensors", folder / "run/training_state.safetensors",
      std::filesystem::copy_options::overwrite_existing);
  const Arguments quiet = with(kEverything, {"tensorboard=false", "save_every=5", "max_steps=15"});
  ASSERT_EQ(train(folder / "run", quiet, {"--resume"}).exit_code, 0);
  EXPECT_EQ(scalars(folder / "run", "train/loss").size(), 10u);
}
}  // namespace
}  // namespace linnet::testing
