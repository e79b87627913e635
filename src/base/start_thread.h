// Threads whose start may be refused: by `ulimit -u`, a container's limit of processes, or too little address space.
#pragma once
#include <functional>
#include <thread>

namespace linnet {

// A thread that does `work`. System error of one line, which names the limits that are set, when it is refused.
std::thread start_thread(std::function<void()> work);

}  // namespace linnet
