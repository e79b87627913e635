#include "integration/program.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

namespace linnet::testing {
namespace {
void redirect(const std::string& path, int flags, int descriptor) {
  const int file = ::open(path.c_str(), flags, 0644);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(125);
}

// The text of a field up to the next comma or brace; quotes of a string are taken off.
std::string field(const std::string& line, const std::string& name) {
  const size_t at = line.find("\"" + name + "\":");
  if (at == line.npos) return "";
  const size_t begin = at + name.size() + 3;
  const std::string text = line.substr(begin, line.find_first_of(",}", begin) - begin);
  return text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
}
}  // namespace

Program::Program(const Arguments& arguments, const Surroundings& surroundings) : surroundings_(surroundings) {
  if (surroundings_.input_path.empty()) surroundings_.input_path = folder_.write("in", surroundings.input);
  if (surroundings_.output_path.empty()) surroundings_.output_path = folder_ / "out";
  const std::string errors = folder_ / "error";
  std::vector<char*> argv{const_cast<char*>("linnet")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);  // a background job ignores some
  redirect(surroundings_.input_path, O_RDONLY, STDIN_FILENO);
  redirect(surroundings_.output_path, O_WRONLY | O_CREAT, STDOUT_FILENO);
  redirect(errors, O_WRONLY | O_CREAT, STDERR_FILENO);
  if (surroundings_.closed_input) ::close(STDIN_FILENO);
  ::setenv("LINNET_LOG", surroundings_.log.c_str(), 1);
  const struct rlimit limit { surroundings_.address_space, surroundings_.address_space };
  if (surroundings_.address_space > 0) ::setrlimit(RLIMIT_AS, &limit);
  const struct rlimit stack { surroundings_.stack, surroundings_.stack };
  if (surroundings_.stack > 0) ::setrlimit(RLIMIT_STACK, &stack);
  ::execv(LINNET_PROGRAM, argv.data());
  ::_exit(126);
}

Program::~Program() {
  if (ended_) return;
  send(SIGKILL);
  wait();
}

void Program::send(int signal) const { ::kill(pid_, signal); }

bool Program::running() {
  siginfo_t info{};
  return !ended_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

Outcome Program::wait() {
  if (ended_) return outcome_;
  ended_ = true;
  int status = 0;
  rusage usage{};
  for (unsigned waited = 0; ::wait4(pid_, &status, WNOHANG, &usage) == 0; ++waited) {
    if (waited == LINNET_MOST_SECONDS * 1000) {
      ADD_FAILURE() << "linnet still runs after " << LINNET_MOST_SECONDS << " s";
      send(SIGKILL);
    }
    ::usleep(1000);
  }
  if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
  outcome_.peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  if (std::filesystem::is_regular_file(surroundings_.output_path)) outcome_.out = contents(surroundings_.output_path);
  outcome_.error = contents(folder_ / "error");
  return outcome_;
}

std::string program_path() { return std::filesystem::absolute(LINNET_PROGRAM).string(); }

Outcome run(const Arguments& arguments, const Surroundings& surroundings) {
  return Program(arguments, surroundings).wait();
}

void expect_user_error(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.exit_code, 2) << "without the error \"" << part << "\": " << outcome.out << outcome.error;
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  EXPECT_NE(outcome.error.find(part), outcome.error.npos) << "no \"" << part << "\" in " << outcome.error;
}

void add_settings(Arguments& arguments, const Arguments& settings) {
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
}

Arguments train_arguments(const std::string& run_folder, const Arguments& settings) {
  Arguments all{"train", "dates", "--run", run_folder};
  const Arguments tiny{"threads=1", "d_model=16", "num_heads=2", "num_layers=1", "d_ff=32", "train_samples=200",
      "valid_samples=8", "test_samples=24", "batch_size=16", "num_buckets=2", "warmup_steps=5", "max_steps=20",
      "eval_every=10", "save_every=5", "schedule=constant"};
  add_settings(all, tiny);
  add_settings(all, settings);
  return all;
}

Outcome train(const std::string& run_folder, const Arguments& settings, const Arguments& more) {
  Arguments all = train_arguments(run_folder, settings);
  all.insert(all.end(), more.begin(), more.end());
  return run(all);
}

bool starts_from_folder(const Arguments& settings) {
  return std::ranges::any_of(settings, [](const std::string& setting) { return setting.starts_with("model.from="); });
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

bool exists(const std::string& path) { return std::filesystem::exists(path); }

void copy_folder(const std::string& from, const std::string& to) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

std::vector<Metrics> read_metrics(const std::string& run_folder) {
  std::vector<Metrics> result;
  for (const std::string& line : lines(contents(run_folder + "/metrics.jsonl")))
    result.push_back({std::atoi(field(line, "step").c_str()), field(line, "split"), field(line, "loss"),
        field(line, "learning_rate"), field(line, "grad_norm"), field(line, "exact_match") + field(line, "bleu")});
  return result;
}

std::vector<Metrics> of_split(const std::vector<Metrics>& metrics, const std::string& split) {
  std::vector<Metrics> result;
  for (const Metrics& line : metrics)
    if (line.split == split) result.push_back(line);
  return result;
}

void PrintTo(const Metrics& m, std::ostream* out) {
  *out << "step " << m.step << " " << m.split << " loss " << m.loss << " rate " << m.learning_rate << " norm "
       << m.grad_norm << " metric " << m.metric;
}
}  // namespace linnet::testing
