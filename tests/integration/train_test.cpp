// Training through the command line: what stops it, what goes on from where it stopped, and that it always learns the
// same.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <set>
#include "formats/safetensors.h"
#include "integration/program.h"

namespace linnet::testing {
namespace {
// Waits until the run has logged `count` lines. False when it ended before.
bool wait_for_lines(Program& program, const std::string& folder, size_t count) {
  while (read_metrics(folder).size() < count) {
    if (!program.running()) return false;
    ::usleep(500);
  }
  return true;
}

const Arguments kEverything{"dropout=0.1", "ema_decay=0.9", "accumulate_steps=2"};

Arguments with(Arguments settings, const Arguments& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

TEST(Train, TwoRunsWithOneSeedAreTheSameAndWithAnotherAreNot) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "a", {"dropout=0.1"}).exit_code, 0);
  ASSERT_EQ(train(folder / "b", {"dropout=0.1"}).exit_code, 0);
  ASSERT_EQ(train(folder / "c", {"dropout=0.1", "seed=2"}).exit_code, 0);
  EXPECT_EQ(read_metrics(folder / "a"), read_metrics(folder / "b"));
  EXPECT_EQ(contents(folder / "a/model.safetensors"), contents(folder / "b/model.safetensors"));
  EXPECT_NE(read_metrics(folder / "a"), read_metrics(folder / "c"));
}

TEST(Train, ThreadsDoNotChangeABit) {
  const TemporaryFolder folder;
  for (const char* threads : {"1", "2", "3"})
    ASSERT_EQ(
        train(folder / threads, with(kEverything, {"d_model=64", "d_ff=128"}), {"--threads", threads}).exit_code, 0);
  ASSERT_EQ(read_metrics(folder / "1").size(), 22u);  // 20 steps, 2 evaluations
  EXPECT_EQ(read_metrics(folder / "1"), read_metrics(folder / "2"));
  EXPECT_EQ(read_metrics(folder / "1"), read_metrics(folder / "3"));
  EXPECT_EQ(contents(folder / "1/model.safetensors"), contents(folder / "3/model.safetensors"));
}

TEST(Train, MetricsHaveEveryFieldOfTheStep) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run").exit_code, 0);
  const std::string first = lines(contents(folder / "run/metrics.jsonl")).at(0);
  for (const char* name :
      {"step", "split", "loss", "learning_rate", "grad_norm", "tokens_per_second", "seconds", "memory_mb"})
    EXPECT_NE(first.find(std::string("\"") + name + "\":"), first.npos) << name << " in " << first;
}

class Signal : public ::testing::TestWithParam<int> {};

// Stopped twice on the way: between steps, and around an evaluation.
TEST_P(Signal, SavesEndsWithZeroAndTheResumedRunIsTheUndisturbedOne) {
  const TemporaryFolder folder;
  const Arguments settings = with(kEverything, {"max_steps=400", "eval_every=100", "save_every=1000", "d_model=32"});
  ASSERT_EQ(train(folder / "whole", settings).exit_code, 0);
  Arguments arguments = train_arguments(folder / "run", settings);
  for (const size_t lines : {30, 101}) {
    Program program(arguments);
    ASSERT_TRUE(wait_for_lines(program, folder / "run", lines));
    program.send(GetParam());
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_TRUE(exists(folder / "run/training_state.safetensors"));
    EXPECT_LT(read_metrics(folder / "run").size(), 404u);
    if (lines == 30) arguments.push_back("--resume");
  }
  ASSERT_EQ(train(folder / "run", settings, {"--resume"}).exit_code, 0);
  EXPECT_EQ(read_metrics(folder / "run"), read_metrics(folder / "whole"));
  EXPECT_EQ(contents(folder / "run/model.safetensors"), contents(folder / "whole/model.safetensors"));
  EXPECT_EQ(contents(folder / "run/samples.jsonl"), contents(folder / "whole/samples.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Train, Signal, ::testing::Values(SIGTERM, SIGINT, SIGHUP), [](const auto& info) {
  return info.param == SIGTERM ? "Terminate" : info.param == SIGINT ? "Interrupt" : "HangUp";
});

// Nothing is there to be saved while the text is read, even where reading never ends.
TEST_P(Signal, EndsAtOnceBeforeTheFirstStep) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "endless").c_str(), 0600), 0);
  const std::string text = folder.write("text", "one\ntwo\n");
  Program program({"train", "translate", "--source", folder / "endless", "--target", text, "--run", folder / "run"});
  while (program.running() && !exists(folder / "run/.lock")) ::usleep(500);
  ::usleep(20000);
  program.send(GetParam());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.signal, GetParam());
  EXPECT_EQ(outcome.error, "linnet: stopped before training began; nothing has changed\n");
  EXPECT_FALSE(exists(folder / "run/config.toml"));
  const Outcome resumed = run({"train", folder / "run", "--resume"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_NE(resumed.error.find("a run that was stopped before it began is begun with its first command again"),
      resumed.error.npos)
      << resumed.error;
}

// An evaluation of minutes is abandoned, and made up for by the resumed run.
TEST_P(Signal, AbandonsAnEvaluation) {
  const TemporaryFolder folder;
  Program program(train_arguments(folder / "run", {"valid_samples=300000", "ema_decay=0.9"}));
  ASSERT_TRUE(wait_for_lines(program, folder / "run", 10));
  ::usleep(100000);
  program.send(GetParam());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(read_metrics(folder / "run").size(), 10u);  // no line of the evaluation
  EXPECT_TRUE(exists(folder / "run/training_state.safetensors"));
}

TEST(Train, SaysWhatItReallyMultipliesIn) {
  const TemporaryFolder folder;
  Arguments arguments = train_arguments(folder / "run", {"precision=bf16", "max_steps=1"});
  arguments.insert(arguments.end(), {"--isa", "sse4"});
  const Outcome outcome = run(arguments, {.log = "info"});
  if (outcome.error.find("'sse4' is not one of") != outcome.error.npos) GTEST_SKIP() << "another kind of processor";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("1 thread, sse4, fp32 (bf16 was asked for, and sse4 has no instructions for it);"),
      outcome.error.npos)
      << outcome.error;
}

TEST(Train, WithTheLogOffNothingIsPrinted) {
  const TemporaryFolder folder;
  EXPECT_EQ(train(folder / "run", {"metric=exact_match", "max_minutes=100"}).error, "");
}

// Every evaluation looks at the weights and at their average, and tells which one it is about.
TEST(Train, TheBetterOfTheWeightsAndTheirAverageIsSaved) {
  const TemporaryFolder folder;
  // At this rate the weights jump about, and their average is better; at a falling one the last weights are.
  ASSERT_EQ(train(folder / "run", {"ema_decay=0.999", "metric=loss", "learning_rate=0.02"}).exit_code, 0);
  const std::string metrics = contents(folder / "run/metrics.jsonl");
  EXPECT_NE(metrics.find("\"weights\":"), metrics.npos) << metrics;
  const Outcome eval = run({"eval", folder / "run", "--split", "valid", "--json"});
  const Metrics last = of_split(read_metrics(folder / "run"), "valid").back();
  EXPECT_NE(eval.out.find("\"loss\":" + last.loss.substr(0, 6)), eval.out.npos) << eval.out << last.loss;
}

// `linnet train ... 2>&1 | head -1`: nobody reads what it prints, and the model is trained all the same.
TEST(Train, GoesOnWhenItsReaderHasGone) {
  const TemporaryFolder folder;
  std::string command = program_path();
  for (const std::string& argument : train_arguments(folder / "run")) command += " '" + argument + "'";
  const std::string script = "set -o pipefail; LINNET_LOG=info " + command + " 2>&1 | head -1 >/dev/null";
  EXPECT_EQ(std::system(("bash -c \"" + script + "\"").c_str()), 0);
  EXPECT_TRUE(exists(folder / "run/training_state.safetensors"));
  EXPECT_TRUE(exists(folder / "run/model.safetensors"));
}

TEST(Train, EndsWhenItsTimeIsUpAndEvaluates) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run", {"max_minutes=0.02", "max_steps=1000000000", "schedule=linear", "eval_every=1000000",
                                      "save_every=1000000"})
                .exit_code,
      0);
  const std::vector<Metrics> metrics = read_metrics(folder / "run");
  EXPECT_EQ(metrics.back().split, "valid");
  const std::vector<Metrics> steps = of_split(metrics, "train");
  EXPECT_LT(std::stod(steps.back().learning_rate), 1.5e-3);  // of 3e-3: it came down with the time
  EXPECT_NE(run({"info", folder / "run"}).out.find(" s, then max_minutes was over\n"), std::string::npos);
}

TEST(Train, AFileBeyondTheLimitOfSizesIsALineAndKeepsTheLastCheckpoint) {
  const TemporaryFolder folder;
  rlimit before{}, small{.rlim_cur = 4000, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Program program(train_arguments(folder / "run"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 2) << "signal " << outcome.signal;
  EXPECT_NE(outcome.error.find(": File too large\n"), outcome.error.npos) << outcome.error;
}

TEST(Train, ASecondProcessOnTheSameFolderIsRefused) {
  const TemporaryFolder folder;
  const Arguments settings{"max_steps=1000000", "eval_every=1000000"};
  Program first(train_arguments(folder / "run", settings));
  ASSERT_TRUE(wait_for_lines(first, folder / "run", 3));
  const Outcome second = train(folder / "run", settings, {"--resume"});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_EQ(second.error,
      "linnet: run folder '" + folder / "run" + "' is in use by process " + std::to_string(first.pid()) + "\n");
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 0);
}

TEST(Train, AnExistingFolderNeedsResumeAndKeepsItsFiles) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run").exit_code, 0);
  const std::string model = contents(folder / "run/model.safetensors"),
                    metrics = contents(folder / "run/metrics.jsonl");
  const Outcome again = train(folder / "run");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.error.find("exists already; --resume goes on with it"), again.error.npos) << again.error;
  EXPECT_EQ(contents(folder / "run/model.safetensors"), model);
  EXPECT_EQ(contents(folder / "run/metrics.jsonl"), metrics);
}

// A folder that someone put a model into is no new run folder.
TEST(Train, AFolderThatHoldsAModelButNoConfigurationIsNotOverwritten) {
  const TemporaryFolder folder;
  for (const char* name : {"model.safetensors", "metrics.jsonl", "training_state.safetensors"}) {
    folder.write(name, "mine");
    const Outcome outcome = train(folder.path());
    EXPECT_EQ(outcome.exit_code, 2) << name;
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_EQ(contents(folder / name), "mine");
    ::unlink((folder / name).c_str());
  }
}

TEST(Resume, MayTrainLongerButNotOtherwise) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "long", {"max_steps=30"}).exit_code, 0);
  ASSERT_EQ(train(folder / "run").exit_code, 0);
  const std::string state = contents(folder / "run/training_state.safetensors");
  const Outcome other = train(folder / "run", {"learning_rate=1e-4", "d_ff=64"}, {"--resume"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.error.find("--resume cannot change: d_ff, learning_rate"), other.error.npos) << other.error;
  const Outcome usual = train(folder / "run", {"learning_rate=0.001"}, {"--resume"});  // the default of the key
  EXPECT_EQ(usual.exit_code, 2);
  EXPECT_NE(usual.error.find("--resume cannot change: learning_rate"), usual.error.npos) << usual.error;
  EXPECT_EQ(contents(folder / "run/training_state.safetensors"), state);

  ASSERT_EQ(train(folder / "run", {"max_steps=30"}, {"--resume", "--threads", "2"}).exit_code, 0);
  EXPECT_EQ(of_split(read_metrics(folder / "run"), "train"), of_split(read_metrics(folder / "long"), "train"));
}

// tests/golden/old_run was made by the release before parameter groups, plan files and new defaults, with the settings
// of its config.toml; continued.jsonl is what that release made of its next steps. It multiplied with SSE4, which
// sanitized builds leave out, and its compiler was g++ 12: others round some sums otherwise.
TEST(Resume, OfARunOfAnEarlierReleaseGoesOnBitForBit) {
  if (run({"info"}).out.find("sse4") == std::string::npos) GTEST_SKIP() << "this program is built without SSE4";
  const TemporaryFolder folder;
  copy_folder("tests/golden/old_run", folder / "run");
  const Outcome outcome =
      run({"train", folder / "run/config.toml", "--run", folder / "run", "--resume", "--set", "max_steps=14"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  copy_folder("tests/golden/old_run", folder / "expected");
  std::filesystem::rename(folder / "expected/continued.jsonl", folder / "expected/metrics.jsonl");
  const auto got = of_split(read_metrics(folder / "run"), "train");
  const auto expected = of_split(read_metrics(folder / "expected"), "train");
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ == 12
  EXPECT_EQ(got, expected);
#else
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(std::stod(got[i].loss), std::stod(expected[i].loss), 1e-5) << i;
#endif
  // The preset it was made from may have other defaults now.
  copy_folder("tests/golden/old_run", folder / "again");
  const Outcome again =
      run({"train", "dates", "--run", folder / "again", "--resume", "--steps", "8", "--set", "d_model=32"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(again.error.find("held_out"), again.error.npos) << again.error;
}

// A run knows where its data are, from whichever folder it is used; the same data may be moved, others are told.
TEST(Resume, FindsItsDataAndNoticesWhenTheyAreOthers) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i * 7919) + "\n";
  folder.write("source", text), folder.write("target", text);
  const auto train_here = [&](const std::string& from, const Arguments& extra) {
    Arguments all{"train", "dates", "--source", from, "--target", from, "--run", folder / "run"};
    add_settings(all,
        {"d_model=16", "d_ff=32", "num_layers=1", "num_heads=2", "max_steps=2", "eval_every=2", "held_out_pairs=10"});
    all.insert(all.end(), extra.begin(), extra.end());
    return run(all, {.log = "warning"});
  };
  const std::string here = std::filesystem::current_path();
  const std::string relative = std::filesystem::relative(folder / "source");
  ASSERT_EQ(train_here(relative, {}).exit_code, 0);
  std::filesystem::current_path("/");
  const Outcome eval = run({"eval", folder / "run", "--split", "valid", "--json"});
  std::filesystem::current_path(here);
  EXPECT_EQ(eval.exit_code, 0) << eval.error;

  EXPECT_EQ(train_here(relative, {"--resume"}).error, "");
  folder.write("moved", text);
  EXPECT_EQ(train_here(folder / "moved", {"--resume"}).error, "");
  text[1000] = '!';
  folder.write("moved", text);
  const Outcome changed = train_here(folder / "moved", {"--resume"});
  EXPECT_EQ(changed.exit_code, 0);
  EXPECT_EQ(changed.error,
      "linnet: warning: the data have changed since the run began (train_source, train_target): it goes on with "
      "what is there now\n");
  const Outcome other = train_here(relative, {"--resume"});
  EXPECT_EQ(other.exit_code, 2) << other.error;
}

TEST(Train, KeepsCheckpointsWhoseAverageIsARunOfItsOwn) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "a", {"keep_checkpoints=2", "keep_every=5", "save_every=1", "max_steps=9"}).exit_code, 0);
  for (const auto& [step, kept] : {std::pair{4, false}, {5, true}, {6, false}, {8, true}, {9, true}})
    EXPECT_EQ(exists(folder / ("a/checkpoints/" + std::to_string(step) + ".safetensors")), kept) << step;
  const Outcome few = run({"average", folder / "a", "--last", "4", "--out", folder / "b"});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_NE(few.error.find("save_every says when one is kept, keep_checkpoints how many"), few.error.npos) << few.error;
  for (const char* file : {"a/samples.jsonl", "a/events.out.tfevents.1", "a/anomaly.safetensors", "a/notes.txt"})
    folder.write(file, "{}\n");
  ASSERT_EQ(run({"average", folder / "a", "--last", "2", "--out", folder / "b"}).exit_code, 0);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "b")) files.insert(entry.path().filename());
  EXPECT_EQ(
      files, (std::set<std::string>{"config.toml", "model.safetensors", "notes.txt", "source.char", "target.char"}));
  const auto weight = [&](const std::string& file) {
    const SafetensorsFile model(folder / file);
    return static_cast<double>(*reinterpret_cast<const float*>(model.entries().back().data));
  };
  EXPECT_NEAR(weight("b/model.safetensors"),
      (weight("a/checkpoints/8.safetensors") + weight("a/checkpoints/9.safetensors")) / 2, 1e-7);
  std::string other = contents(folder / "a/checkpoints/9.safetensors");
  folder.write("a/checkpoints/9.safetensors", other.replace(other.find("\"F32\""), 5, "\"I32\""));
  expect_user_error(run({"average", folder / "a", "--last", "1", "--out", folder / "c"}), " is I32[");
  EXPECT_EQ(run({"eval", folder / "b", "--split", "valid"}).exit_code, 0);
  const std::string average = contents(folder / "b/model.safetensors");
  const Outcome resumed = run({"train", folder / "b", "--resume"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_NE(resumed.error.find("no training_state.safetensors"), resumed.error.npos) << resumed.error;
  EXPECT_EQ(contents(folder / "b/model.safetensors"), average);
  const Outcome list = run({"runs", folder.path()});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_NE(list.out.find(folder / "a"), list.out.npos) << list.out;
  EXPECT_NE(list.out.find("exact_match "), list.out.npos) << list.out;
  EXPECT_EQ(lines(list.out).size(), 3u) << list.out;  // head, a, b
  EXPECT_NE(list.out.find("tokens/s"), list.out.npos) << list.out;
  // The better first; one without evaluations last.
  std::filesystem::create_directory(folder / "worse");
  folder.write("worse/config.toml", contents(folder / "a/config.toml"));
  folder.write("worse/metrics.jsonl", "{\"step\":1,\"split\":\"valid\",\"loss\":99,\"exact_match\":2}\n");
  for (const auto& [metric, last] : {std::pair{"loss", "worse"}, {"exact_match", "/b"}}) {
    const Outcome sorted = run({"runs", folder.path(), "--sort", metric});
    ASSERT_EQ(sorted.exit_code, 0) << sorted.error;
    EXPECT_NE(lines(sorted.out)[metric == std::string("loss") ? 2 : 3].find(last), std::string::npos) << sorted.out;
  }
  const Outcome unknown = run({"runs", folder.path(), "--sort", "accuracy"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.error.find("there are date, exact_match, loss, rate"), std::string::npos) << unknown.error;
  // The loss breaks ties, as where the best weights are chosen.
  std::string ties;
  for (const char* loss : {"0.9", "0.7", "0.8"})
    ties += std::string("{\"step\":1,\"split\":\"valid\",\"loss\":") + loss + ",\"exact_match\":0.5}\n";
  folder.write("worse/metrics.jsonl", ties);
  const Outcome tied = run({"runs", folder / "worse"});
  EXPECT_NE(tied.out.find("0.7000"), tied.out.npos) << tied.out << tied.error;
}

// Before the first step, with the keys that make it another.
TEST(Train, SaysWhatOtherProgramsCannotRead) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "a b " + std::to_string(i) + "\tc d " + std::to_string(i) + "\n";
  folder.write("pairs.tsv", rows);
  const auto train_pairs = [&](const std::string& name, const Arguments& more) {
    Arguments arguments{"train", "translate", "--data", folder / "pairs.tsv", "--run", folder / name, "--steps", "1",
        "--set", "tokenizer=char", "--set", "d_model=16", "--set", "d_ff=16", "--set", "num_layers=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = "info"});
  };
  const Outcome plain = train_pairs("plain", {});
  ASSERT_EQ(plain.exit_code, 0) << plain.error;
  const std::string keys = "(--set architecture=marian --set norm=post --set final_norm=false)";
  EXPECT_NE(plain.error.find("transformers reads a Marian " + keys), std::string::npos) << plain.error;
  const Outcome marian =
      train_pairs("marian", {"--set", "architecture=marian", "--set", "norm=post", "--set", "final_norm=false"});
  ASSERT_EQ(marian.exit_code, 0) << marian.error;
  EXPECT_EQ(marian.error.find("transformers reads"), std::string::npos) << marian.error;
  EXPECT_EQ(run({"export", folder / "marian", "--out", folder / "out"}).exit_code, 0);
  EXPECT_EQ(run({"export", folder / "plain", "--out", folder / "out2"}).exit_code, 2);
}

// The steps to keep for good need no other reason to be saved.
TEST(Train, KeepsEveryNthStepForGood) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "a", {"keep_every=3", "keep_checkpoints=1", "save_every=2", "max_steps=8"}).exit_code, 0);
  for (const auto& [step, kept] : {std::pair{2, false}, {3, true}, {4, false}, {6, true}, {8, true}})
    EXPECT_EQ(exists(folder / ("a/checkpoints/" + std::to_string(step) + ".safetensors")), kept) << step;
}

// A run folder names its configuration and, to go on, itself.
TEST(Resume, OfAFolderAloneGoesOnInIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run", {"max_steps=4"}).exit_code, 0);
  const Outcome resumed = run({"train", folder / "run", "--resume", "--steps", "6", "--threads", "1"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.error;
  EXPECT_EQ(of_split(read_metrics(folder / "run"), "train").back().step, 6);
}

TEST(Resume, OfARunThatHasNothingLeftToDoSaysWhy) {
  const TemporaryFolder folder;
  const Arguments settings{"max_epochs=1", "max_steps=100000"};
  ASSERT_EQ(train(folder / "run", settings).exit_code, 0);
  Arguments arguments = train_arguments(folder / "run", settings);
  arguments.push_back("--resume");
  const Outcome again = run(arguments, {.log = "info"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.error.find("has its 1 epochs already"), again.error.npos) << again.error;
}

TEST(Resume, OfAFinishedRunChangesNothing) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run", {"max_steps=17", "ema_decay=0.9"}).exit_code,
      0);  // neither evaluated nor saved on schedule
  copy_folder(folder / "run", folder / "before");
  ASSERT_EQ(train(folder / "run", {"max_steps=17", "ema_decay=0.9"}, {"--resume"}).exit_code, 0);
  for (const char* name :
      {"metrics.jsonl", "model.safetensors", "training_state.safetensors", "config.toml", "source.char", "target.char"})
    EXPECT_EQ(contents(folder / "run/" + name), contents(folder / "before/" + name)) << name;
}

// What ended the run holds when it is resumed: patience and epochs as well as steps.
TEST(Resume, OfARunThatStoppedEarlyDoesNotGoOn) {
  const TemporaryFolder folder;
  const Arguments epochs{"max_epochs=1", "max_steps=1000"};
  const Arguments patience{"patience=1", "max_steps=1000", "eval_every=2", "learning_rate=1e-30", "warmup_steps=0"};
  for (const Arguments& settings : {epochs, patience}) {
    const std::string run = folder / settings[0].substr(0, 5);
    ASSERT_EQ(train(run, settings).exit_code, 0);
    const std::vector<Metrics> before = read_metrics(run);
    ASSERT_LT(before.size(), 100u);
    ASSERT_EQ(train(run, settings, {"--resume"}).exit_code, 0);
    EXPECT_EQ(read_metrics(run), before) << settings[0];
  }
  Arguments longer = patience;
  longer[0] = "patience=3";
  const std::string run = folder / "patie";
  const size_t before = read_metrics(run).size();
  const Outcome resumed = train(run, longer, {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  EXPECT_GT(read_metrics(run).size(), before);
}

TEST(Resume, OfAFolderWithoutCheckpointStartsFromTheBeginning) {
  const TemporaryFolder folder;
  const Arguments settings{"max_steps=1000000", "eval_every=1000000", "save_every=1000000", "d_model=64"},
      shorter{"eval_every=1000000", "d_model=64"};
  ASSERT_EQ(train(folder / "whole", shorter).exit_code, 0);
  Program program(train_arguments(folder / "run", settings));
  ASSERT_TRUE(wait_for_lines(program, folder / "run", 3));
  program.send(SIGKILL);
  EXPECT_EQ(program.wait().signal, SIGKILL);
  ASSERT_FALSE(exists(folder / "run/training_state.safetensors"));
  const Outcome resumed = train(folder / "run", shorter, {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  EXPECT_EQ(read_metrics(folder / "run"), read_metrics(folder / "whole"));
  EXPECT_EQ(train(folder / "new", shorter, {"--resume"}).exit_code, 0);  // nothing there at all
  EXPECT_EQ(read_metrics(folder / "new"), read_metrics(folder / "whole"));
}

TEST(Resume, OfARunThatLostItsStateIsRefusedAndChangesNothing) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "run").exit_code, 0);
  const std::string model = contents(folder / "run/model.safetensors"),
                    metrics = contents(folder / "run/metrics.jsonl");
  std::filesystem::remove(folder / "run/training_state.safetensors");
  const Outcome resumed = train(folder / "run", {}, {"--resume"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_NE(
      resumed.error.find("has model.safetensors and no training_state.safetensors to go on with"), resumed.error.npos)
      << resumed.error;
  EXPECT_EQ(contents(folder / "run/model.safetensors"), model);
  EXPECT_EQ(contents(folder / "run/metrics.jsonl"), metrics);
}

TEST(Init, StartsFromTheOtherRunsWeightsAndTokenizers) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "base", {"max_steps=200", "eval_every=100"}).exit_code, 0);
  ASSERT_EQ(train(folder / "fine", {"seed=5", "max_steps=2"}, {"--init", folder / "base"}).exit_code, 0);
  ASSERT_EQ(train(folder / "fresh", {"seed=5", "max_steps=2"}).exit_code, 0);
  EXPECT_EQ(contents(folder / "fine/source.char"), contents(folder / "base/source.char"));
  const double fine = std::stod(read_metrics(folder / "fine").at(0).loss),
               fresh = std::stod(read_metrics(folder / "fresh").at(0).loss);
  EXPECT_LT(fine, fresh - 0.3);

  const Outcome other = train(folder / "other", {"d_model=32"}, {"--init", folder / "base"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.error.find("--init: the model of run '" + folder / "base" + "' is another one"), other.error.npos)
      << other.error;
}

// Killed before its first own checkpoint, a fine-tuned run still goes on from the other run's weights.
TEST(Init, SurvivesAKillBeforeTheFirstCheckpoint) {
  const TemporaryFolder folder;
  ASSERT_EQ(train(folder / "base", {"max_steps=100", "eval_every=100"}).exit_code, 0);
  ASSERT_EQ(train(folder / "whole", {"eval_every=1000000"}, {"--init", folder / "base"}).exit_code, 0);
  Arguments arguments =
      train_arguments(folder / "run", {"max_steps=1000000", "eval_every=1000000", "save_every=1000000"});
  arguments.insert(arguments.end(), {"--init", folder / "base"});
  Program program(arguments);
  ASSERT_TRUE(wait_for_lines(program, folder / "run", 3));
  program.send(SIGKILL);
  program.wait();
  ASSERT_EQ(train(folder / "run", {"eval_every=1000000"}, {"--resume"}).exit_code, 0);
  EXPECT_EQ(read_metrics(folder / "run"), read_metrics(folder / "whole"));
}

TEST(Train, ANonFiniteLossStopsWithTheStepAndItsNode) {
  const TemporaryFolder folder;
  const Outcome outcome = train(folder / "run", {"learning_rate=1e30", "clip_norm=0", "warmup_steps=0"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.error.find("not finite at step 2; first at "), outcome.error.npos) << outcome.error;
  EXPECT_NE(outcome.error.find("(in encoder.layers.0"), outcome.error.npos) << outcome.error;
  EXPECT_NE(outcome.error.find(" from "), outcome.error.npos) << outcome.error;  // the operands' ranges
}

TEST(Train, AStepThatIsNotFiniteIsKeptAndReplayed) {
  const TemporaryFolder folder;
  const std::string path = folder / "run";
  const Outcome outcome = train(path, {"learning_rate=1e30", "clip_norm=0", "warmup_steps=0"}, {"--detect-anomaly"});
  EXPECT_EQ(outcome.exit_code, 3);
  const size_t at = outcome.error.find("first at "), end = outcome.error.find("; a smaller --lr");
  ASSERT_NE(at, outcome.error.npos);
  const Outcome replayed = run({"check", path, "--replay"});
  EXPECT_EQ(replayed.exit_code, 0) << replayed.error;
  EXPECT_EQ(replayed.out, "step 2: " + outcome.error.substr(at, end - at) + "\n");
  EXPECT_EQ(run({"check", path, "--replay", "--json"}).exit_code, 2);
  const Outcome none = run({"check", folder.write("empty.toml", ""), "--replay"});
  EXPECT_EQ(none.exit_code, 2);
}

// The last step was finite and broke the weights: the evaluation after it is where that shows.
TEST(Train, WeightsThatAnEvaluationFindsBrokenAreTraced) {
  const TemporaryFolder folder;
  const std::string path = folder / "run";
  const Outcome outcome =
      train(path, {"learning_rate=1e30", "clip_norm=0", "warmup_steps=0", "max_steps=1"}, {"--detect-anomaly"});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.error;
  EXPECT_NE(outcome.error.find("the weights are broken after step 1; first at "), outcome.error.npos) << outcome.error;
  const Outcome replayed = run({"check", path, "--replay"});
  EXPECT_EQ(replayed.exit_code, 0) << replayed.error;
  EXPECT_EQ(replayed.out.substr(0, 16), "step 1: first at") << replayed.out;
  EXPECT_NE(run({"check", "dates", "--replay"}).error.find("'dates' is no run folder"), std::string::npos);
}

TEST(Train, ARateRangeTestSuggestsARateAndLeavesNoRun) {
  const TemporaryFolder folder;
  const Outcome outcome = train(folder / "run", {}, {"--lr-range", "1e-5:10"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("try --lr "), outcome.out.npos) << outcome.out;
  EXPECT_FALSE(exists(folder / "run"));
  EXPECT_EQ(train(folder / "run", {}, {"--lr-range", "1:2:3"}).exit_code, 2);
}
}  // namespace
}  // namespace linnet::testing
