// Ending a run in order when somebody asks for it: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal was closed) unless
// nohup has it ignored, or SIGUSR1, which mpirun passes on to all ranks and Slurm sends before a job's time is over.
//
//   announce_stop(text)    a signal prints the text and ends the process at once: nothing is there to be saved yet
//   catch_stop_signals()   the first signal only makes stop_requested() true, the second one ends the process at once
//   default_stop_signals() a signal ends the process at once, as before either of these
//
// After either of the first two a reader of our output that goes away (SIGPIPE) does not end the process.
#pragma once

namespace linnet {

void announce_stop(const char* text);  // a whole line; must outlive the process
void catch_stop_signals();
void default_stop_signals();
// Ends the process at once. For signal handlers.
[[noreturn]] void end_by_signal(int signal);
// For a library in a process whose signals are its own (Python's): from now on the functions above change no handler.
void keep_signal_handlers();
// True once such a signal was caught. Long loops look at it, save and return.
bool stop_requested();

// Thrown where StopPoints (base/thread_pool.h) let work be abandoned. Not an error, and no std::exception: whoever
// makes the StopPoints catches it.
struct Stopped {};

}  // namespace linnet
