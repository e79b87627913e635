// Ending a run in order: the first SIGINT or SIGTERM asks for it, the second one ends the process at once.
#pragma once

namespace linnet {

void catch_stop_signals();
// True once such a signal came. Long loops look at it, save and return.
bool stop_requested();

}  // namespace linnet
