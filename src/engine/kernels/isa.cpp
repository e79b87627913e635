#include "engine/kernels/isa.h"
#include <cstdint>
#include "base/fail.h"
#include "base/text.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/isa.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
int64_t this_target() { return HWY_TARGET; }
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if HWY_MAJOR == 1 && HWY_MINOR == 0
// Highway's library measures its benchmark timer's resolution when it is loaded: 5 to 10 ms before main(), for unused
// benchmarks. Its call finds this function first, as our libraries come first for the dynamic linker.
namespace hwy::platform {
uint64_t TimerResolution();
[[gnu::visibility("default"), gnu::used]] uint64_t TimerResolution() { return 1; }
}  // namespace hwy::platform
#endif

namespace linnet {
namespace {
HWY_EXPORT(this_target);

std::string isa_name(int64_t target) {
  std::string name = lower_ascii(hwy::TargetName(target));
  if (name.starts_with("avx3")) name.replace(0, 4, "avx512");
  return name;
}

// What the processor has, whatever is forced; a lower bit is a better target.
std::vector<int64_t> available_targets() {
  static const int64_t supported = [] {
    hwy::SetSupportedTargetsForTest(0);
    return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  }();
  std::vector<int64_t> result;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) result.push_back(rest & -rest);
  return result;
}
}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const int64_t target : available_targets()) names.push_back(isa_name(target));
  return names;
}

std::string current_isa() { return isa_name(HWY_DYNAMIC_DISPATCH(this_target)()); }

void force_isa(const std::string& name) {
  const std::vector<int64_t> targets = available_targets();
  int64_t wanted = name == "auto" ? targets.front() : name == "baseline" ? targets.back() : 0;
  std::string choices = "auto, baseline";
  for (const int64_t target : targets) {
    choices += ", " + isa_name(target);
    if (isa_name(target) == name) wanted = target;
  }
  if (wanted == 0) fail_user("instruction set '", name, "' is not one of: ", choices);
  hwy::SetSupportedTargetsForTest(name == "auto" ? 0 : wanted);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
}  // namespace linnet
#endif
