// This process: memory, time and limits as the system reports them, signals, forks, floating point, shared libraries.
#pragma once
#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace linnet {
// Occupied memory, including shared libraries.
uint64_t resident_bytes();       // now (VmRSS)
uint64_t peak_resident_bytes();  // the most it ever was (VmHWM)
uint64_t own_bytes();            // of resident_bytes(), what is in no file (RssAnon): files' pages the system may drop
// What the process may still take of the machine's free memory and its cgroups' limits. UINT64_MAX: not known.
uint64_t memory_left();

// While one lives, check() throws a user error if the process has taken more than `bytes` of memory.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes);
  ~MemoryLimit();
  static void check();  // by whatever reads data; cheap
};

// For errors about refused memory: "; the address space is limited to 30 MB (ulimit -v)", or "" without a limit.
std::string memory_limit();

// Gives the pages that lie wholly within these bytes back to the system. They read as zeros afterwards.
void give_back_pages(void* begin, size_t bytes);

double process_seconds();  // since its start, to 0.01 s

// Limits of control groups (cgroups, version 1 or 2), in the process's own group and in those above it. `root` and
// `membership` are the contents of /sys/fs/cgroup and /proc/self/cgroup.

// Bytes below the lowest limit; file pages count as free, since the kernel reclaims them. UINT64_MAX: no limit.
uint64_t cgroup_memory_left(
    const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

// The lowest quota in processors; a large number if there is no limit.
double cgroup_processors(
    const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

// Guards an object with threads, which a fork does not copy: a child neither uses nor destroys it.
class ForkGuard {
 public:
  ForkGuard();
  bool is_child() const;  // as quick as a load

 private:
  int forks_;
};

// Sets the default floating-point environment (rounding to nearest, no traps, subnormal numbers) during its lifetime;
// then the host program has its own again.
class DefaultFloats {
 public:
  DefaultFloats() { std::fegetenv(&host_), std::fesetenv(FE_DFL_ENV); }
  ~DefaultFloats() { std::fesetenv(&host_); }
  DefaultFloats(const DefaultFloats&) = delete;

 private:
  std::fenv_t host_{};
};

// Ends a run in order on SIGINT (Ctrl-C), SIGTERM, SIGHUP or SIGUSR1, which mpirun passes on to all ranks and Slurm
// sends before a job's time is over. Those that the program was told to ignore (nohup; `&` in a script) stay ignored.
//
//   announce_stop(text)    a signal prints the text and ends the process at once: nothing is there to be saved yet
//   catch_stop_signals()   the first signal only makes stop_requested() true, the second one ends the process at once
//   default_stop_signals() a signal ends the process at once, as before either of these
//
// After either of the first two, SIGPIPE (a reader of our output went away) does not end the process.
void announce_stop(const char* text);  // a whole line; must outlive the process
void catch_stop_signals();
void default_stop_signals();
[[noreturn]] void end_by_signal(int signal);  // for signal handlers
bool is_ignored(int signal);
// For a library in a host process (Python): from now on the functions above change no handler.
void keep_signal_handlers();
// True once such a signal was caught. Long loops check it, save and return.
bool stop_requested();

// Thrown at StopPoints (base/thread_pool.h). Not a std::exception: only the code that made the StopPoints catches it.
struct Stopped {};

// An environment variable's value, "" if it is unset.
inline std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

// Whether an environment variable switches a feature off, to find the cause of a fault.
inline bool switched_off(const char* variable) { return environment(variable) == "off"; }

// One of Linnet's own shared libraries, which are loaded on demand.
struct ModuleSearch {
  std::filesystem::path found;  // empty: there is none
  std::string looked;           // where it was looked for, for messages
};

// Looks for the file `name` beside the program and in its library folder; the environment variable, if set, overrides.
ModuleSearch search_module(const char* name, const char* variable);

// Loads a module for good: dlopen's handle. `what` it is for messages. User error if it lacks the function `opener`.
void* load_module(const std::filesystem::path& file, const std::string& what, const char* opener, int visibility);
}  // namespace linnet
