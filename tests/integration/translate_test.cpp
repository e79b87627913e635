// Translating and evaluating through the command line, with the input that real files and pipes bring.
#include <gtest/gtest.h>
#include <unistd.h>
#include <set>
#include "integration/program.h"

namespace linnet::testing {
namespace {
class Translate : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(train(run_, {"max_steps=150", "eval_every=150", "learning_rate=3e-3"}).exit_code, 0);
  }

  Outcome translate(const std::string& input, const Arguments& more = {}) const {
    Arguments arguments{"translate", run_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return linnet::testing::run(arguments, {.input = input});
  }
  std::string translation_of(const std::string& line) const {
    const std::vector<std::string> out = lines(translate(line + "\n").out);
    return out.empty() ? "nothing" : out[0];
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(Translate, LinesKeepTheirOrderAndEmptyOnesStayEmpty) {
  const std::vector<std::string> sources{"12.03.1999", "", "Thursday, March 7, 2019", "3/7/19", "", "5 mai 2031"};
  std::string input;
  for (const std::string& source : sources) input += source + "\n";
  const Outcome outcome = translate(input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<std::string> got = lines(outcome.out);
  ASSERT_EQ(got.size(), sources.size());
  std::set<std::string> different;
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(got[i], sources[i].empty() ? "" : translation_of(sources[i]));
    different.insert(got[i]);
  }
  EXPECT_GT(different.size(), 2u);  // or the order would not show
}

// More lines than are read ahead at once, of very different lengths.
TEST_F(Translate, ThousandsOfLinesComeBackInOrder) {
  std::string input;
  for (int i = 0; i < 2500; ++i) input += i % 3 ? "3/7/19\n" : "donnerstag, den 7. Maerz 2019\n";
  const std::vector<std::string> got = lines(translate(input).out);
  ASSERT_EQ(got.size(), 2500u);
  for (int i = 0; i < 2500; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], got[i % 3 ? 1 : 0]) << "line " << i + 1;
}

TEST_F(Translate, WindowsLineEndsByteOrderMarksAndAMissingLastNewlineMakeNoDifference) {
  const std::string plain = translate("3/7/19\n5 mai 2031\n").out;
  ASSERT_EQ(lines(plain).size(), 2u);
  EXPECT_EQ(translate("3/7/19\r\n5 mai 2031\r\n").out, plain);
  EXPECT_EQ(translate("3/7/19\n5 mai 2031").out, plain);
  EXPECT_EQ(translate("\xEF\xBB\xBF"
                      "3/7/19\n5 mai 2031\n")
                .out,
      plain);
  EXPECT_EQ(translate("").out, "");
  EXPECT_EQ(translate("\n").out, "\n");
}

TEST_F(Translate, AVeryLongLineIsCutAndSaidSo) {
  const Outcome outcome =
      linnet::testing::run({"translate", run_}, {.input = std::string(1'000'000, '3') + "\n3/7/19\n", .log = "info"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(lines(outcome.out).size(), 2u);
  EXPECT_EQ(lines(outcome.out).back(), translation_of("3/7/19"));
  EXPECT_NE(outcome.error.find("warning: 1 line was longer than max_seq_len = 48"), outcome.error.npos)
      << outcome.error;
}

TEST_F(Translate, CharactersNeverSeenAreNoProblem) {
  const Outcome outcome = translate("日本語 3/7/19 \xF0\x9F\x98\x80\n\t \n" + std::string("a\0b", 3) + "\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(lines(outcome.out).size(), 3u);
}

TEST_F(Translate, TheNBestComeWithFallingScoresAndTheirLineNumber) {
  const Outcome outcome = translate("3/7/19\n\n5 mai 2031\n", {"--beam", "4", "--n-best", "3"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<std::string> got = lines(outcome.out);
  ASSERT_EQ(got.size(), 7u);  // an empty line has one translation
  double before = 0;
  for (const std::string& line : got) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    ASSERT_NE(second, line.npos) << line;
    const double score = std::stod(line.substr(first + 1));
    EXPECT_LE(score, 0);
    if (&line > &got[0] && &line <= &got[2]) {
      EXPECT_LE(score, before) << outcome.out;
    }
    before = score;
  }
  EXPECT_EQ(got[0].substr(0, 2) + got[3] + got[4].substr(0, 2), "1\t2\t0.000000\t3\t");
  EXPECT_EQ(translate("a\n", {"--beam", "2", "--n-best", "3"}).exit_code, 2);
}

TEST_F(Translate, SeveralRunsTranslateAsOneIfTheirVocabulariesAreTheSame) {
  const std::string input = "3/7/19\n5 mai 2031\nThursday, March 7, 2019\n";
  const Arguments n_best{"--beam", "3", "--n-best", "3"};
  const auto together = [&](const std::string& other) {
    return translate(input, {other, "--beam", "3", "--n-best", "3"});
  };
  const std::string alone = translate(input, n_best).out;
  EXPECT_EQ(together(run_).out, alone);
  const std::string more = folder_ / "more", other_words = folder_ / "other";
  ASSERT_EQ(train(more, {"max_steps=60", "eval_every=60", "learning_rate=3e-3", "model.d_ff=48"}).exit_code, 0);
  const Outcome mean = together(more);
  ASSERT_EQ(mean.exit_code, 0) << mean.error;
  EXPECT_EQ(lines(mean.out).size(), 9u);
  EXPECT_NE(mean.out, alone);
  const Outcome evaluation = linnet::testing::run({"eval", run_, more, "--json"});
  EXPECT_EQ(evaluation.exit_code, 0) << evaluation.error;
  ASSERT_EQ(train(other_words, {"max_steps=1", "eval_every=1", "tokenizer=word"}).exit_code, 0);
  const Outcome refused = together(other_words);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.error, "linnet: '" + other_words + "' has another target vocabulary than '" + run_ +
                               "': models that translate together need the same\n");
}

// What came before the bad line is answered; the error says where it is.
TEST_F(Translate, InvalidUtf8IsNamedByLineAndByteAndEarlierLinesAreNotLost) {
  const Outcome outcome = translate("3/7/19\n5 mai 2031\nab\xff\n3/7/19\n");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error, "linnet: standard input: line 3, byte 3: not valid UTF-8\n");
  EXPECT_EQ(lines(outcome.out).size(), 2u);
}

TEST_F(Translate, InputThatCannotBeReadAndOutputThatCannotBeWrittenAreErrors) {
  const Outcome input = linnet::testing::run({"translate", run_}, {.input_path = folder_.path()});
  EXPECT_EQ(input.exit_code, 2);
  EXPECT_EQ(input.error, "linnet: cannot read standard input: Is a directory\n");
  for (const Arguments& arguments : {Arguments{"translate", run_}, {"eval", run_, "--json"}, {"presets"}, {"info"},
           {"presets", "dates"}, {"--help"}}) {
    const Outcome output = linnet::testing::run(arguments, {.input = "3/7/19\n", .output_path = "/dev/full"});
    EXPECT_EQ(output.exit_code, 2) << arguments[0];
    EXPECT_EQ(lines(output.error).size(), 1u) << output.error;
    EXPECT_NE(output.error.find("cannot write"), output.error.npos) << output.error;
  }
}

TEST_F(Translate, ThreadsDoNotChangeTheResult) {
  const std::string input = "3/7/19\n5 mai 2031\nThursday, March 7, 2019\n";
  const std::string one = translate(input, {"--threads", "1", "--beam", "3", "--n-best", "3"}).out;
  EXPECT_EQ(translate(input, {"--threads", "3", "--beam", "3", "--n-best", "3"}).out, one);
}

TEST_F(Translate, EvalPrintsOneJsonObject) {
  const Outcome outcome = linnet::testing::run({"eval", run_, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  ASSERT_EQ(lines(outcome.out).size(), 1u);
  for (const char* field : {"\"split\":\"test\"", "\"pairs\":24", "\"loss\":", "\"bleu\":", "\"exact_match\":"})
    EXPECT_NE(outcome.out.find(field), outcome.out.npos) << field << " in " << outcome.out;
  EXPECT_EQ(linnet::testing::run({"eval", run_}).exit_code, 0);
  EXPECT_EQ(linnet::testing::run({"eval", run_, "--split", "valid"}).exit_code, 0);
}

// A file of the run's own translations is matched exactly by them.
TEST_F(Translate, EvalOfFilesScoresThem) {
  const std::string sources = "3/7/19\n\n5 mai 2031\n";
  const std::string source = folder_.write("source", sources), target = folder_.write("target", translate(sources).out);
  const Outcome outcome = linnet::testing::run({"eval", run_, "--source", source, "--target", target, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("\"pairs\":3"), outcome.out.npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\"exact_match\":1.0"), outcome.out.npos) << outcome.out;
}
}  // namespace
}  // namespace linnet::testing
