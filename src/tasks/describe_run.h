// A run folder in lines for people.
#pragma once
#include <string>

namespace linnet {

// Task, model, data, how far it was trained and its best evaluation, files; ends with a newline. User error when the
// folder is no run.
std::string describe_run(const std::string& folder);

}  // namespace linnet
