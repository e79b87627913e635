#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/timeline.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/world.h"
#include "distributed/simulate/training_step.h"

namespace linnet {
namespace {
// This process's arguments without --ranks and --restart.
std::vector<std::string> arguments_of_ranks() {
  const std::string all = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  bool is_value = false;
  for (size_t at = 0; at < all.size();) {
    const std::string argument = all.substr(at, all.find('\0', at) - at);
    at += argument.size() + 1;
    const bool is_own = argument == "--ranks" || argument == "--restart";
    if (!is_value && !is_own && !argument.starts_with("--ranks=") && !argument.starts_with("--restart="))
      arguments.push_back(argument);
    is_value = !is_value && is_own;
  }
  arguments[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return arguments;
}

// A signal before mpirun has started its ranks is lost, or crashes mpirun. So the first rank sends kReady to mpirun's
// starter, whose process id is in the environment, as soon as signals reach the ranks.
constexpr int kReady = SIGUSR2;
constexpr const char* kStarterVariable = "LINNET_STARTER";

void tell_starter() {
  const char* starter = std::getenv(kStarterVariable);
  if (!starter) return;
  std::error_code ignored;  // the process may be gone, and its number reused
  const auto program = [&](const std::string& process) {
    return std::filesystem::read_symlink("/proc/" + process + "/exe", ignored);
  };
  if (program(starter) == program("self")) kill(std::atoi(starter), kReady);
}

// Blocks stop requests and the first rank's kReady during its lifetime, and reads them from a descriptor.
class WaitedSignals {
 public:
  WaitedSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, kReady})
      if (signal == kReady || !is_ignored(signal)) sigaddset(&set_, signal);
    sigprocmask(SIG_BLOCK, &set_, &before_);
    descriptor_ = signalfd(-1, &set_, SFD_CLOEXEC);
    if (descriptor_ < 0) fail_errno("cannot wait for signals");
  }
  ~WaitedSignals() {
    close(descriptor_);
    restore();
  }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;
  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int descriptor() const { return descriptor_; }  // readable once a signal has come
  int take() const {
    signalfd_siginfo info{};
    return read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t set_{}, before_{};
  int descriptor_ = -1;
};

struct Ending {
  int code;      // as in a shell
  bool stopped;  // by a signal
  std::string death;
};

// Standard error of mpirun and the ranks. Drops mpirun's reports, between lines of dashes, on how a rank ended; for one
// ended by a signal death() is "rank 1 was ended by signal 9 (Killed)".
class MpirunOutput {
 public:
  void take(std::string_view bytes) {
    for (const char c : bytes) {
      line_ += c;
      const bool ends = c == '\n' || c == '\r';
      if (!ends && !is_report_ && !may_be_left_out()) pass_on();
      if (ends) end_line();
    }
    std::fflush(stderr);
  }
  const std::string& death() const { return death_; }

 private:
  static constexpr std::string_view kRule =
      "--------------------------------------------------------------------------\n";
  static constexpr std::string_view kForwarding = "mpirun: Forwarding signal ";
  static constexpr std::string_view kShared = " Read -1, expected ";
  // Whether the line may be a rule, mpirun's note of a signal from this process, or "[host:pid] Read -1, ..." of shared
  // memory after another process ended. Such a line is held until its end; others are passed on at once, like progress.
  bool may_be_left_out() const {
    if (line_.starts_with(kForwarding) || kForwarding.starts_with(line_)) return true;  // also after a progress bar
    if (passed_ > 0) return false;
    if (kRule.starts_with(line_)) return true;
    const size_t end = std::min(line_.find(']'), line_.size());
    const std::string_view host = std::string_view(line_).substr(0, end), rest = std::string_view(line_).substr(end);
    const auto is_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == ':' || c == '-';
    };
    if (!host.starts_with('[') || !std::ranges::all_of(host.substr(1), is_name)) return false;
    const std::string_view text = rest.empty() ? rest : rest.substr(1);
    return text.starts_with(kShared) || kShared.starts_with(text);
  }
  void pass_on() { std::fwrite(line_.data(), 1, line_.size(), stderr), passed_ += line_.size(), line_.clear(); }
  void end_line() {
    if (line_ == kRule && passed_ == 0) {
      if (is_report_) end_report();
      is_report_ = !is_report_;
    } else if (is_report_) {
      report_ += line_;
    } else if (!may_be_left_out()) {
      pass_on();
    }
    line_.clear(), passed_ = 0;
  }
  // The rank or this reports a rank's end in one line. Only mpirun reports others, such as an unreachable machine.
  void end_report() {
    const size_t rank = report_.find("process rank "), with = report_.find(" with PID "),
                 by = report_.find("exited on signal ");
    if (rank != report_.npos && with != report_.npos && by != report_.npos) {
      death_ = report_.substr(rank + 8, with - rank - 8) + " was ended by " + report_.substr(by + 10);
      while (!death_.empty() && (death_.back() == '\n' || death_.back() == '.')) death_.pop_back();
    } else if (report_.find("non-zero") == report_.npos) {
      std::fputs(report_.c_str(), stderr);
    }
    report_.clear();
  }

  std::string line_, report_, death_;
  size_t passed_ = 0;  // bytes of this line already passed on
  bool is_report_ = false;
};

// Ends the ranks of an mpirun that was killed, which have become children of this process. A restart needs the run
// folder's lock, which rank 0 holds until it ends.
void end_orphans() {
  const std::string own = std::to_string(getpid()), mark = kStarterVariable + ("=" + own) + '\0';
  std::ifstream children("/proc/self/task/" + own + "/children");
  for (pid_t child = 0; children >> child;) {  // a shell that became this process has left it other children
    std::ifstream environment("/proc/" + std::to_string(child) + "/environ");
    const std::string variables{std::istreambuf_iterator<char>(environment), {}};
    if (variables.find(mark) != variables.npos) kill(child, SIGKILL), waitpid(child, nullptr, 0);
  }
}

// In its own process group, as mpirun kills the ranks on Ctrl-C. Ready ranks get stop requests as SIGUSR1.
Ending run_mpirun(std::vector<std::string> command) {
  auto words = mapped(command, [](std::string& word) { return word.data(); });
  words.push_back(nullptr);
  const WaitedSignals signals;
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) fail_errno("cannot make a pipe");
  const pid_t parent = getpid(), child = fork();
  if (child < 0) fail_errno("cannot start " + command[0]);
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
    setenv(kStarterVariable, std::to_string(parent).c_str(), 1);
    if (const TerminalLine terminal; terminal.usable())
      setenv(TerminalLine::kColumns, std::to_string(terminal.room() + 1).c_str(), 1);
    dup2(pipe[1], STDERR_FILENO);
    signals.restore();
    execv(words[0], words.data());
    _exit(127);
  }
  close(pipe[1]);
  MpirunOutput output;
  int requests = 0, first_request = 0, status = 0;
  bool ready = false;
  pollfd sources[] = {{pipe[0], POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
  // The pipe ends with its last writer.
  for (bool is_open = true; is_open;) {
    poll(sources, 2, -1);
    if (sources[1].revents) {
      const int signal = signals.take();
      if (signal == kReady && !ready && requests == 1) kill(child, SIGUSR1);
      ready = ready || signal == kReady;
      if (signal > 0 && signal != kReady) {
        if (requests++ == 0) first_request = signal;
        if (requests > 1 || ready) kill(child, requests == 1 ? SIGUSR1 : SIGTERM);
      }
    }
    if (!sources[0].revents) continue;
    char bytes[4096];
    const ssize_t count = read(pipe[0], bytes, sizeof bytes);
    is_open = count > 0;
    if (is_open) output.take({bytes, static_cast<size_t>(count)});
  }
  close(pipe[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end_orphans();
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (requests > 0 && code == 128 + SIGUSR1) code = 128 + first_request;  // before there was anything to save
  std::string death = output.death();
  if (death.empty() && WIFSIGNALED(status)) death = "mpirun was ended by signal " + std::to_string(WTERMSIG(status));
  return {code, requests > 0, std::move(death)};
}

// A rank was killed or fell silent: a restart may succeed.
bool is_death(int code) { return code >= 128 || code == Communicator::kLostRank; }

// Ends this rank at once, as MPI's thread still runs; the starter ends the others.
[[noreturn]] void end_rank(int rank, const char* message, int code) {
  std::fprintf(stderr, "linnet: rank %d: %s\n", rank, message);
  std::fflush(nullptr);
  _exit(code);
}

constexpr size_t kLeast = size_t{1} << 10, kMost = size_t{1} << 26;  // bytes
constexpr double kSeconds = 0.3;                                     // for each size
constexpr int kRuns = 5;                                             // fewest for each size
constexpr size_t kBesideComputing = size_t{1} << 18;                 // like gradients in training
// At this gain or above messages move while the rank computes; 2 is perfect, 1 is taking turns.
constexpr double kOverlaps = 1.5;

// Every rank sends to the next one and receives from the previous one. Median of the slowest rank's times.
double measured_seconds(Communicator& world, std::span<const std::byte> sent, std::span<std::byte> received) {
  const Communicator::Outgoing outgoing{(world.rank() + 1) % world.size(), sent};
  const Communicator::Incoming incoming{(world.rank() + world.size() - 1) % world.size(), received};
  std::vector<double> times;
  double spent = 0;
  for (int run = 0; run < kRuns || spent < kSeconds; ++run) {
    barrier(world);
    const double begin = now();
    world.exchange({&outgoing, 1}, {&incoming, 1});
    times.push_back(std::ranges::max(all_gather(world, now() - begin)));
    spent += times.back();
  }
  return median(std::move(times));
}

// Threads that compute until the end of their scope.
class BusyThreads {
 public:
  explicit BusyThreads(int threads) : threads_(threads, [this](const std::stop_token& stop) { compute(stop); }) {}
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void compute(const std::stop_token& stop) {
    constexpr int kPart = 20'000;  // some microseconds
    volatile float result = 1;
    while (!stop.stop_requested()) {
      float x = result;
      for (int i = 0; i < kPart; ++i) x = x * 0.5f + 1;
      result = x;
      done_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::atomic<int64_t> done_{0};
  StoppingThreads threads_;
};

// The gain from `threads` of each rank computing during exchanges, over doing one after the other: the sum of the
// shares of their own speed that both keep. Of the rank that gains least.
double gain_of_overlap(
    Communicator& world, int threads, std::span<const std::byte> sent, std::span<std::byte> received) {
  const double exchange_alone = measured_seconds(world, sent, received);
  const BusyThreads busy(threads);
  const auto parts_a_second = [&](const auto& meanwhile) {
    barrier(world);
    const int64_t before = busy.done();
    const double begin = now();
    meanwhile();
    return static_cast<double>(busy.done() - before) / (now() - begin);
  };
  const double computing_alone =
      parts_a_second([] { std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds)); });
  double exchange_beside = 0;
  const double computing_beside = parts_a_second([&] { exchange_beside = measured_seconds(world, sent, received); });
  return std::ranges::min(all_gather(world, exchange_alone / exchange_beside + computing_beside / computing_alone));
}

int measure(Communicator& world, int threads, bool json) {
  if (world.size() == 1) fail_user("a network connects several ranks: linnet bench network --ranks 2");
  std::vector<std::byte> sent(kMost), received(kMost);
  std::vector<TimedExchange> exchanges;
  const bool prints = world.rank() == 0 && !json;
  if (prints) print("{:>12} {:>12} {:>12}\n", "bytes", "us", "GB/s");
  auto rows = Json::array();
  for (size_t bytes = kLeast; bytes <= kMost; bytes *= 4) {
    const double seconds = measured_seconds(world, std::span(sent).first(bytes), std::span(received).first(bytes));
    exchanges.push_back({static_cast<double>(bytes), seconds});
    rows.push_back({{"bytes", bytes}, {"seconds", seconds}});
    if (prints) print("{:12} {:12.1f} {:12.2f}\n", bytes, 1e6 * seconds, static_cast<double>(bytes) / seconds * 1e-9);
  }
  Network network = fit_network(exchanges);
  // Within a machine processors copy the messages. Between machines the network may do so by itself.
  const auto starter = find_starter();
  const bool one_machine = starter && starter->ranks_here == world.size();
  const int computing = threads_or_all(threads);
  const double gain = one_machine ? 1
                                  : gain_of_overlap(world, computing, std::span(sent).first(kBesideComputing),
                                        std::span(received).first(kBesideComputing));
  network.overlaps = gain >= kOverlaps;
  if (world.rank() > 0) return 0;
  if (json) {
    print_json({{"workload", "network"}, {"ranks", world.size()}, {"network", network_text(network)},
        {"bytes_per_second", network.bytes_per_second}, {"latency_seconds", network.latency}, {"gain_of_overlap", gain},
        {"rows", rows}});
  } else {
    if (!one_machine)
      print("beside {} thread{} that compute{}: {:.2f} of 2, where 1 is taking turns\n", computing,
          computing == 1 ? "" : "s", computing == 1 ? "s" : "", gain);
    print("--network {}\n", network_text(network));
  }
  return 0;
}
}  // namespace

int start_ranks(int ranks, int restarts) {
  if (const auto starter = find_starter())
    fail_user("--ranks starts the ranks itself; ", starter->name, " has started this process already");
  std::vector<std::string> arguments = arguments_of_ranks();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // for end_orphans()
  signal(SIGPIPE, SIG_IGN);          // the run goes on where nobody reads what it prints
  for (;; --restarts) {
    const Ending ending = run_mpirun(mpirun_command(ranks, arguments));
    if (!is_death(ending.code) || ending.stopped) return ending.code;
    if (!ending.death.empty()) std::fprintf(stderr, "linnet: %s\n", ending.death.c_str());
    if (restarts > 0) log_info("all ranks go on from the last checkpoint");
    if (restarts == 0) return ending.code;
    if (!contains(arguments, "--resume")) arguments.emplace_back("--resume");
  }
}

int run_as_rank(FunctionRef<int(Communicator& world)> body) {
  const std::optional<Starter> starter = find_starter();
  const bool reports = !starter || starter->rank == 0 || !std::getenv("PMIX_RANK");  // MPI sets it if mpirun has not
  Communicator* joined = nullptr;
  try {
    joined = &join_world();
  } catch (const Error& error) {
    if (reports) throw;
    return exit_code(error.kind());  // all ranks of mpirun have the same error, and rank 0 reports it
  }
  Communicator& world = *joined;
  if (world.size() == 1) return body(world);
  if (world.rank() == 0) tell_starter();
  if (world.rank() > 0) silence_log();
  try {
    const int code = body(world);
    world.leave();
    return code;
  } catch (const AgreedError& error) {
    // mpirun ends all ranks once the first has failed: print before that.
    if (world.rank() == 0) std::fprintf(stderr, "linnet: %s\n", error.what());
    default_stop_signals();
    world.leave();
    return exit_code(error.kind());
  } catch (const Error& error) {
    end_rank(world.rank(), error.what(), exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    end_rank(world.rank(), "out of memory", exit_code(ErrorKind::kSystem));
  } catch (const std::exception& error) {
    end_rank(world.rank(), error.what(), exit_code(ErrorKind::kInternal));
  }
}

int bench_network(int64_t ranks, int threads, bool json) {
  if (ranks > 0) return start_ranks(static_cast<int>(ranks), 0);
  return run_as_rank([&](Communicator& world) { return measure(world, threads, json); });
}
}  // namespace linnet
