// Plain lines for the user on standard error: "linnet: ..." and "linnet: warning: ...". The environment variable
// LINNET_LOG (info, warning, off; info by default) says from which level on.
#pragma once
#include <string>

namespace linnet {

void log_info(const std::string& message);
void log_warning(const std::string& message);
// Does log_info() print? Progress and samples follow it.
bool log_shows_info();
// From now on nothing is printed: of processes that train together only the first one tells what happens.
void silence_log();

}  // namespace linnet
