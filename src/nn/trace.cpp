#include "nn/trace.h"

#include "base/error.h"

namespace linnet {
namespace {
thread_local Trace* t_current = nullptr;
}

Trace::Trace(const TraceOptions& options) : options_(options), outer_(t_current) { t_current = this; }
Trace::~Trace() { t_current = outer_; }

Trace& Trace::current() {
  if (!t_current) fail_internal("a module is used outside a Trace");
  return *t_current;
}

Tensor Trace::random() { return graph_.input("random", {DType::kI32, {4}}); }

}  // namespace linnet
