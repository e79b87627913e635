// What the program tells about itself: version, help, manual pages, and completion as a shell runs it.
#include <gtest/gtest.h>
#include <algorithm>
#include <cstdio>
#include <regex>
#include "integration/program.h"

namespace linnet::testing {
namespace {
// What a command of the system prints.
std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return out;
  char buffer[4096];
  for (size_t size; (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, size);
  ::pclose(pipe);
  return out;
}

bool has_program(const std::string& name) { return !output_of("command -v " + name).empty(); }

TEST(Reference, VersionNamesTheBuild) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(std::regex_match(
      outcome.out, std::regex(R"(linnet \d+\.\d+\.\d+ \((commit [0-9a-f]{10}, )?\w+, (GCC|.*[Cc]lang) [^\n]+\)\n)")))
      << outcome.out;
}

TEST(Reference, WithoutACommandTheUsageIsOneLine) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error, "usage: linnet COMMAND ...; `linnet help` lists the commands\n");
}

TEST(Reference, HelpTellsOfEveryCommand) {
  const Outcome all = run({"help"});
  ASSERT_EQ(all.exit_code, 0);
  for (const char* command : {"train", "eval", "translate", "tokenizer", "completion"}) {
    EXPECT_NE(all.out.find(std::string("\n  ") + command + " "), all.out.npos) << command;
    const Outcome one = run({"help", command}), flag = run({command, "--help"});
    EXPECT_EQ(one.exit_code, 0);
    EXPECT_EQ(one.out, flag.out);
    EXPECT_EQ(one.out.rfind(std::string("usage: linnet ") + command, 0), 0u) << one.out;
  }
  const Outcome deep = run({"help", "tokenizer", "train"});
  EXPECT_NE(deep.out.find("usage: linnet tokenizer train [OPTIONS] MODEL FILES...\n"), deep.out.npos) << deep.out;
  EXPECT_NE(deep.out.find("--vocab-size N"), deep.out.npos) << deep.out;
  for (const std::string& line : lines(run({"help", "train"}).out)) EXPECT_LE(line.size(), 100u) << line;
  const Outcome wrong = run({"help", "trian"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.error.find("did you mean train?"), wrong.error.npos) << wrong.error;
}

TEST(Reference, ShortFormsSetTheirKeys) {
  const TemporaryFolder folder;
  const Outcome trained = train(folder / "run", {}, {"--steps", "3", "--lr", "0.25", "--batch", "7", "--epochs", "2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const std::string config = contents(folder / "run/config.toml");
  for (const char* line : {"max_steps = 3\n", "learning_rate = 0.25\n", "batch_size = 7\n", "max_epochs = 2\n"})
    EXPECT_NE(config.find(line), config.npos) << line;
  const Outcome wrong = train(folder / "other", {}, {"--lr", "fast"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.error.rfind("linnet: --lr fast: \"learning_rate\" ", 0), 0u) << wrong.error;
}

TEST(Reference, ManualPagesAreMadeOfTheSameDeclarations) {
  const TemporaryFolder folder;
  ASSERT_EQ(run({"man", "--out", folder.path()}).exit_code, 0);
  const std::string page = contents(folder / "linnet-train.1");
  EXPECT_EQ(page, run({"man", "train"}).out);
  EXPECT_EQ(page.rfind(".TH LINNET-TRAIN 1", 0), 0u);
  EXPECT_NE(page.find("\\fB\\-\\-set KEY=VALUE\\fR"), page.npos) << page;
  EXPECT_TRUE(exists(folder / "linnet.1"));
  EXPECT_TRUE(exists(folder / "linnet-tokenizer-encode.1"));
  if (!has_program("man")) GTEST_SKIP() << "no man here";
  const std::string warnings = output_of("man --warnings -l " + folder / "linnet-train.1" + " 2>&1 >/dev/null");
  EXPECT_EQ(warnings, "");
}

// What bash would offer for the last of the words.
std::vector<std::string> bash_offers(const std::string& script, const std::string& words) {
  return lines(output_of("bash -c 'source " + script + "; COMP_WORDS=(" + words +
                         "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _linnet; printf \"%s\\n\" \"${COMPREPLY[@]}\"' "
                         "2>/dev/null"));
}

bool offers(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(Reference, BashCompletesCommandsOptionsAndValues) {
  const TemporaryFolder folder;
  const std::string script = folder.write("linnet.bash", run({"completion", "bash"}).out);
  EXPECT_EQ(bash_offers(script, "linnet tr"), (std::vector<std::string>{"train", "translate"}));
  EXPECT_EQ(bash_offers(script, "linnet tokenizer en"), std::vector<std::string>{"encode"});
  EXPECT_TRUE(offers(bash_offers(script, "linnet tokenizer train --"), "--vocab-size"));
  EXPECT_FALSE(offers(bash_offers(script, "linnet train --"), "--vocab-size"));
  EXPECT_EQ(bash_offers(script, "linnet train --resu"), std::vector<std::string>{"--resume"});
  EXPECT_EQ(bash_offers(script, "linnet train dates --set learning_r"), std::vector<std::string>{"learning_rate="});
  EXPECT_TRUE(offers(bash_offers(script, "linnet train shake"), "shakespeare"));
  EXPECT_EQ(bash_offers(script, "linnet bench r-64 --precision t"), std::vector<std::string>{"tf32"});
  EXPECT_EQ(bash_offers(script, "linnet presets shake"), std::vector<std::string>{"shakespeare"});
}

TEST(Reference, ZshAndFishAcceptTheirScripts) {
  const TemporaryFolder folder;
  for (const std::string shell : {"zsh", "fish"}) {
    const Outcome outcome = run({"completion", shell});
    ASSERT_EQ(outcome.exit_code, 0);
    EXPECT_NE(outcome.out.find(shell == "fish" ? "-l resume" : "--resume"), outcome.out.npos);
    const std::string script = folder.write("script." + shell, outcome.out);
    if (has_program(shell)) {
      EXPECT_EQ(output_of(shell + " -n " + script + " 2>&1"), "");
    }
  }
  if (!has_program("fish")) GTEST_SKIP() << "no fish here";
  const auto offered = [&](const std::string& words) {
    return output_of("fish -N -c 'source " + folder / "script.fish" + "; complete -C \"" + words + "\"' 2>&1");
  };
  EXPECT_NE(offered("linnet tr").find("translate\t"), std::string::npos) << offered("linnet tr");
  EXPECT_NE(offered("linnet train --resu").find("--resume"), std::string::npos);
  EXPECT_NE(offered("linnet bench --precision t").find("tf32"), std::string::npos);
}
}  // namespace
}  // namespace linnet::testing
