// Runs one command, and turns an error into one line and an exit code.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>
#include "app/cli/commands.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/process.h"
#include "formats/packed_model.h"
#include "linnet_commit.h"  // written by cmake/commit.cmake
#include "models/families/gguf.h"

std::string linnet::build_version() {
  std::string text = "linnet " LINNET_VERSION " (";
  if (const std::string commit = LINNET_COMMIT; !commit.empty()) text += "commit " + commit + ", ";
  text += LINNET_BUILD_TYPE ", ";
#ifdef __clang__
  text += __VERSION__;  // includes the compiler's name
#else
  text += "GCC " __VERSION__;
#endif
  return text + ")";
}

namespace {
int run(int argc, char** argv) {
  rlimit stack{};  // training has crashed with 128 KiB and not with 136
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < 192 << 10)
    linnet::fail_user("the stack is limited to ", stack.rlim_cur >> 10, " KiB; set at least `ulimit -s 192`");
  const int code = linnet::run_command_line(argc, argv, [](linnet::Command& root) {
#define LINNET_ADD(NAME) linnet::add_##NAME##_command(root);
    LINNET_COMMANDS(LINNET_ADD)
#undef LINNET_ADD
  });
  errno = 0;
  // A full disk shows here at the latest.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) linnet::fail_errno("cannot write to standard output");
  linnet::check_lost_pages();
  return code;
}
}  // namespace

int main(int argc, char** argv) {
  // One heap: per-thread heaps would take unplanned memory.
  mallopt(M_ARENA_MAX, 1);
  // Writes beyond `ulimit -f` then fail with "File too large", as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  linnet::catch_lost_pages();
  linnet::use_packed_models();
  linnet::use_gguf_models();
  if (::getpid() == 1)  // in a container: unhandled signals would have no effect
    for (const int signal : {SIGINT, SIGTERM})
      if (!linnet::is_ignored(signal)) std::signal(signal, linnet::end_by_signal);
  try {
    return run(argc, argv);
  } catch (const linnet::Error& error) {
    std::fprintf(stderr, "linnet: %s\n", error.what());
    return linnet::exit_code(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {
    // A failed copy does not say which of both paths it was.
    const std::string to = error.path2().empty() ? "" : "' to '" + error.path2().string();
    std::fprintf(stderr, "linnet: %s'%s%s': %s\n", to.empty() ? "" : "cannot copy ", error.path1().c_str(), to.c_str(),
        error.code().message().c_str());
    return 2;
  } catch (const std::system_error& error) {  // the system refuses something, such as a lock
    std::fprintf(stderr, "linnet: %s%s\n", error.what(), linnet::memory_limit().c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "linnet: out of memory%s\n", linnet::memory_limit().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "linnet: internal error: %s\n", error.what());
    return 70;
  }
}
