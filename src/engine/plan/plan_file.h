// Plans in a file: the graphs, which kernel runs each node, where each value lies, and the regions of memory they
// share. A process that knows nothing of the model reads them and runs them to the same bits. What lies in the regions
// (weights, states) is not part of the file.
#pragma once
#include <map>
#include <string>

#include "engine/plan/plan.h"

namespace linnet {

using NamedPlans = std::map<std::string, const Plan*>;

// All plans are of `store`. Error(kSystem) when the disk is full.
void write_plans(const std::string& path, const Store& store, const SharedRegions& shared, const NamedPlans& plans);

struct LoadedPlans {
  SharedRegions shared{};
  std::map<std::string, Plan> plans;
};
// Declares the regions and names in `store`, which is empty, has the CPU's backend and is not allocated yet.
// Error(kUser) in one line for a file that is damaged, was written by another version, or wants kernels that this
// program or machine does not have.
LoadedPlans read_plans(const std::string& path, Store& store);
// The same from the file's bytes; `what` names them in messages.
LoadedPlans parse_plans(std::string_view bytes, Store& store, const std::string& what);
std::string plans_to_bytes(const Store& store, const SharedRegions& shared, const NamedPlans& plans);

}  // namespace linnet
