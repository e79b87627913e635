// Plain lines for the user on standard error: "linnet: ..." and "linnet: warning: ...". The environment variable
// LINNET_LOG (info, warning, off; info by default) says from which level on.
#pragma once
#include <string>

namespace linnet {

void log_info(const std::string& message);
void log_warning(const std::string& message);

}  // namespace linnet
