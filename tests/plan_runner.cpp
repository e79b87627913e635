// Runs the plans of a file one after another, in a process that knows no model: plan_runner PLANS REGIONS RESULTS.
// REGIONS holds what the regions of memory hold before; RESULTS gets the outputs of each plan and the regions after.
#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "plan_file_check.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    linnet::Store store;
    linnet::LoadedPlans loaded = linnet::read_plans(argv[1], store);
    store.allocate();
    linnet::NamedPlans plans;
    for (const auto& [name, plan] : loaded.plans) plans[name] = &plan;
    linnet::testing::fill_regions(store, linnet::read_file(argv[2]));
    linnet::write_file_atomically(argv[3], linnet::testing::run_plans(plans, store, loaded.shared));
  } catch (const linnet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return linnet::exit_code(error.kind());
  }
}
