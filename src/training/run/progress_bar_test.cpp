// The bar as a terminal shows it: what it writes to a pseudo-terminal, replayed on one line of that width.
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>
#include <cstdlib>
#include <thread>
#include "base/thread_pool.h"
#include "distributed/comm/agreement.h"
#include "training/run/run_reporter.h"

namespace linnet {
namespace {
// Standard error on a pseudo-terminal of `columns`, in an environment of its own.
class PseudoTerminal {
 public:
  PseudoTerminal(unsigned short columns, const char* term) : saved_(::dup(STDERR_FILENO)) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    int slave = -1;
    if (::openpty(&master_, &slave, nullptr, nullptr, &size) != 0) ADD_FAILURE() << "no pseudo-terminal";
    ::dup2(slave, STDERR_FILENO);
    ::close(slave);
    ::setenv("TERM", term, 1);
  }
  ~PseudoTerminal() {
    restore();
    ::close(master_);
  }
  void restore() {
    if (saved_ >= 0) ::dup2(saved_, STDERR_FILENO), ::close(saved_);
    saved_ = -1;
  }
  std::string written() {
    restore();  // so that reading ends
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(master_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }

 private:
  int saved_, master_ = -1;
};

const ProgressView kView{.step = 1234,
    .max_steps = 20000,
    .loss = 3.14159,
    .learning_rate = 1e-3,
    .speed = 12345,
    .seconds_left = 3725,
    .memory_mb = 512,
    .items = "tokens"};

std::string drawn(unsigned short columns, const char* term = "xterm", bool cleared = false) {
  PseudoTerminal terminal(columns, term);
  {
    ProgressBar bar;
    bar.update(kView);
    if (!cleared) return terminal.written();
  }
  return terminal.written();
}

// The last line after all carriage returns; fails where a character would go beyond the last but one column.
std::string visible(const std::string& written, size_t columns) {
  std::string line;
  size_t at = 0;
  for (const char c : written) {
    if (c == '\r') {
      at = 0;
      continue;
    }
    EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "an escape sequence or a line end";
    EXPECT_LT(at, columns - 1) << written;
    if (at == line.size()) line += ' ';
    line[at++] = c;
  }
  return line;
}

TEST(ProgressBar, FitsEveryTerminalAndKeepsTheTimeLeftWhereItCan) {
  for (const unsigned short columns : {40, 60, 80, 200}) {
    const std::string line = visible(drawn(columns), columns);
    EXPECT_NE(line.find("step 1234/20000"), line.npos) << line;
    EXPECT_NE(line.find("1:02:05 left"), line.npos) << line;
    if (columns >= 80) {
      EXPECT_NE(line.find("loss 3.1416"), line.npos) << line;
    }
  }
  EXPECT_EQ(visible(drawn(20), 20), "step 1234/20000");
  EXPECT_EQ(visible(drawn(200), 200),
      "[=                       ] step 1234/20000  loss 3.1416  lr 1.00e-03  12345 tokens/s  512 MB  1:02:05 left");
}

TEST(ProgressBar, LeavesABlankLineBehind) {
  const std::string line = visible(drawn(80, "xterm", true), 80);
  EXPECT_EQ(line.find_first_not_of(' '), line.npos) << line;
}

// The first step's loss, which is far from later ones, does not stay in the figure.
TEST(ProgressBar, ShowsThePlainMeanOfTheFirstLosses) {
  const TemporaryFolder folder(::testing::TempDir() + "/progress");
  PseudoTerminal terminal(200, "xterm");
  RunReporter reporter(Config{}, folder.path() + "/metrics.jsonl", {});
  constexpr double kRate = 1e-3, kSeconds = 0.1;
  constexpr int64_t kSteps = 3;
  for (int64_t step = 1; step <= kSteps; ++step)
    reporter.step({.step = step},
        {.loss = 6.0 - static_cast<double>(step), .grad_norm = 1, .tokens = 10, .finite = true}, kRate, kSeconds,
        kSeconds * static_cast<double>(step), kSteps, {});
  const std::string line = visible(terminal.written(), 200);
  EXPECT_NE(line.find("step 3/3  loss 4.0000"), line.npos) << line;
}

TEST(ProgressBar, AnEvaluationThatTakesLongHasALineOfItsOwn) {
  PseudoTerminal terminal(80, "xterm");
  SharedWork::alone().numbers(2, 1, [](int64_t item, std::span<double>) {
    if (item == 0) std::this_thread::sleep_for(Phase::kPatience);
  });
  const std::string written = terminal.written();
  EXPECT_NE(written.find("evaluating 50%"), written.npos) << written;
  EXPECT_EQ(visible(written, 80).find_first_not_of(' '), written.npos) << written;
}

// A line of the log takes the place of a redrawn one, which comes back below it.
TEST(ProgressBar, AnythingElseIsWrittenInItsPlace) {
  PseudoTerminal terminal(40, "xterm");
  TerminalLine line;
  line.draw("reading 5 s");
  log_warning("a cut text");
  EXPECT_EQ(terminal.written(), "\rreading 5 s\r           \rlinnet: warning: a cut text\r\n");
}

TEST(ProgressBar, ADumbTerminalGetsWholeLines) {
  EXPECT_EQ(drawn(40, "dumb"), "step 1234/20000  loss 3.1416  lr 1.00e-03  12345 tokens/s  512 MB  1:02:05 left\r\n");
}
}  // namespace
}  // namespace linnet
