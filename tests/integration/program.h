// Runs the linnet program as a user does: arguments in, exit code and both outputs back.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include <string>
#include <vector>
#include "temporary_folder.h"

namespace linnet::testing {
using Arguments = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, error;
  uint64_t peak_bytes = 0;  // the most resident memory it had
};

struct Surroundings {
  std::string input;           // standard input
  std::string input_path;      // or a file as standard input
  bool closed_input = false;   // no standard input at all
  std::string output_path;     // a file as standard output; Outcome::out is empty then
  std::string log = "off";     // LINNET_LOG
  uint64_t address_space = 0;  // as `ulimit -v`, in bytes; 0: no limit
  uint64_t stack = 0;          // as `ulimit -s`, in bytes; 0: no other limit than the test's
};

class Program {
 public:
  explicit Program(const Arguments& arguments, const Surroundings& surroundings = {});
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool running();
  void send(int signal) const;
  Outcome wait();  // kills it after two minutes
  pid_t pid() const { return pid_; }

 private:
  TemporaryFolder folder_;
  Surroundings surroundings_;
  pid_t pid_ = -1;
  bool ended_ = false;
  Outcome outcome_;
};

std::string program_path();

Outcome run(const Arguments& arguments, const Surroundings& surroundings = {});

// A terminal at which `typed` was typed.
class Terminal {
 public:
  explicit Terminal(const std::string& typed) {
    EXPECT_EQ(::grantpt(controller_), 0);
    EXPECT_EQ(::unlockpt(controller_), 0);
    EXPECT_EQ(::write(controller_, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { ::close(controller_); }
  std::string path() const { return ::ptsname(controller_); }

 private:
  const int controller_ = ::posix_openpt(O_RDWR | O_NOCTTY);
};

// Expects exit code 2 and an error of one line that has this part.
void expect_user_error(const Outcome& outcome, const std::string& part);

// Appends `--set SETTING` for each; settings are key=value.
void add_settings(Arguments& arguments, const Arguments& settings);

// The smallest useful run: the dates task, characters, d_model 16, 1 + 1 layers. `settings` are key=value.
Arguments train_arguments(const std::string& run_folder, const Arguments& settings = {});
Outcome train(const std::string& run_folder, const Arguments& settings = {}, const Arguments& more = {});

// Whether the arguments set model.from, whose folder decides the model's sizes.
bool starts_from_folder(const Arguments& settings);

std::string contents(const std::string& path);
std::vector<std::string> lines(const std::string& text);
bool exists(const std::string& path);
void copy_folder(const std::string& from, const std::string& to);

// One line of metrics.jsonl with its numbers as they are written: equal text is equal bits.
struct Metrics {
  int step;
  std::string split, loss, learning_rate, grad_norm, metric;
  bool operator==(const Metrics&) const = default;
};
std::vector<Metrics> read_metrics(const std::string& run_folder);
std::vector<Metrics> of_split(const std::vector<Metrics>& metrics, const std::string& split);
void PrintTo(const Metrics& metrics, std::ostream* out);
}  // namespace linnet::testing
