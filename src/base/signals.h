// Ends a run in order on SIGINT (Ctrl-C), SIGTERM, SIGHUP (unless nohup ignores it) or SIGUSR1, which mpirun passes on
// to all ranks and Slurm sends before a job's time is over.
//
//   announce_stop(text)    a signal prints the text and ends the process at once: nothing is there to be saved yet
//   catch_stop_signals()   the first signal only makes stop_requested() true, the second one ends the process at once
//   default_stop_signals() a signal ends the process at once, as before either of these
//
// After either of the first two, SIGPIPE (a reader of our output went away) does not end the process.
#pragma once

namespace linnet {
void announce_stop(const char* text);  // a whole line; must outlive the process
void catch_stop_signals();
void default_stop_signals();
[[noreturn]] void end_by_signal(int signal);  // for signal handlers
// For a library in a host process (Python): from now on the functions above change no handler.
void keep_signal_handlers();
// True once such a signal was caught. Long loops check it, save and return.
bool stop_requested();

// Thrown where StopPoints (base/thread_pool.h) allow work to be abandoned. Not a std::exception: only the code that
// made the StopPoints catches it.
struct Stopped {};
}  // namespace linnet
