// How an op runs: a list of kernels, best first; on the CPU the last is a plain reference kernel, also for float64.
// engine/ops/all_ops.cpp names every list: nothing registers at start-up. Other devices have their own lists (Backend).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include "base/fail.h"
#include "base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/ir/op.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
class Communicator;

// Memory for a kernel. Dense unless the op declares strided operands (OpDef::strided_inputs).
struct TensorView {
  void* data = nullptr;
  TensorType type;
  Shape strides;  // elements

  template <class T> T* as() const { return static_cast<T*>(data); }
  template <class T> std::span<T> numbers() const { return {as<T>(), static_cast<size_t>(elements())}; }
  const Shape& shape() const { return type.shape; }
  int64_t elements() const { return type.shape.elements(); }
  int64_t element_size() const { return static_cast<int64_t>(dtype_size(type.dtype)); }  // bytes
  int64_t rows() const { return type.shape.elements(0, type.shape.rank() - 1); }         // of all axes but the last
};

struct KernelArgs {
  const Node& node;
  std::span<const TensorView> in, out;
  std::byte* workspace;  // 64-byte aligned, as many bytes as Kernel::workspace asked for
  ThreadPool& pool;
  Device* device;                        // the memory above is the device's; on a GPU the kernel only queues its work
  Communicator* tensor_group = nullptr;  // of Store::Groups

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
};

struct KernelQuery {
  const Node& node;
  std::span<const TensorType> in, out;
  int threads;
  Device* device;

  template <class T> const T& attrs() const { return node.attrs.as<T>(); }
};

struct Kernel {
  const char* name;
  void (*run)(const KernelArgs&);
  bool (*supports)(const KernelQuery&) = nullptr;     // nullptr: every type the op infers
  size_t (*workspace)(const KernelQuery&) = nullptr;  // bytes; nullptr: none
  // On a device it touches only its operands and workspace, so it may be queued beside other work (Device::aside).
  bool may_run_aside = false;
};
using KernelList = std::span<const Kernel>;

// Defines NAME_kernels(), an op's list in the table of all ops (engine/ops/op_table.h).
#define LINNET_KERNELS(name, ...)                       \
  KernelList name##_kernels() {                         \
    static constexpr Kernel kKernels[] = {__VA_ARGS__}; \
    return kKernels;                                    \
  }

struct OpEntry {
  const OpDef* op;
  KernelList kernels;
};

std::span<const OpEntry> all_ops();  // with CPU kernels

// A device and its kernels. Ops are matched by name: a loaded module has its own addresses of OpDefs.
struct BackendOp {
  const char* op;
  KernelList kernels;
};
struct Backend {
  Device* device;
  std::span<const BackendOp> ops;
  bool has_references = false;  // each list ends in a reference kernel
};
const Backend& cpu_backend();

enum class KernelSet { kFast, kReference };
// The first kernel of the op's list that supports the node; for kReference the last one. Error(kUser) if none does.
const Kernel& find_kernel(const KernelQuery& query, KernelSet set, const Backend& backend);

// Whether the device has a kernel other than a reference for the node with these types. Passes ask before making it.
bool has_fast_kernel(
    const Node& node, std::span<const TensorType> in, std::span<const TensorType> out, const Backend& backend);

const OpDef* find_op(std::string_view name);  // nullptr if there is none

template <class Fits> bool all_types(const KernelQuery& query, const Fits& fits) {  // fits(dtype) of each
  return std::ranges::all_of(query.in, fits, &TensorType::dtype) &&
         std::ranges::all_of(query.out, fits, &TensorType::dtype);
}
inline bool all_f32(const KernelQuery& query) {  // no floats but float32
  return all_types(query, [](DType dtype) { return !is_float(dtype) || dtype == DType::kF32; });
}
inline bool all_f32_or_bf16(const KernelQuery& query) {  // no floats but float32 and bf16
  return all_types(query, [](DType dtype) { return dtype != DType::kF64; });
}

// Operands of CPU kernels that read and write activations as fp32 or bf16.
inline StoredFloats stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }
inline MutableStoredFloats mutable_stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }

// fits(dtype, what the op's storage rule makes of it) of each operand and result.
template <class Fits> bool all_stored(const KernelQuery& query, const Fits& fits) {
  const StorageRule rule = storage_of(query.node);
  for (size_t i = 0; i < query.in.size(); ++i)
    if (!fits(query.in[i].dtype, rule.operand(i))) return false;
  for (size_t i = 0; i < query.out.size(); ++i)
    if (!fits(query.out[i].dtype, rule.result(i))) return false;
  return true;
}

// Kernel::supports of kernels that take bf16 or fp32 where the storage rule (OpDef::storage) reduces, and else fp32.
inline bool f32_or_reduced(const KernelQuery& query) {
  return all_stored(query, [](DType dtype, Storage storage) {
    return !is_float(dtype) || dtype == DType::kF32 || (dtype == DType::kBF16 && storage == Storage::kReduced);
  });
}
// The same, but the rule reduces all or none.
inline bool f32_or_all_reduced(const KernelQuery& query) {
  const auto is_reduced = [](DType dtype, Storage storage) {
    return storage != Storage::kReduced || dtype == DType::kBF16;
  };
  return all_f32(query) || (all_stored(query, is_reduced) && f32_or_reduced(query));
}

// Copies an operand to a result on the CPU, unless they share memory.
inline void copy_operand(const TensorView& from, const TensorView& to) {
  if (from.data != to.data) std::memcpy(to.data, from.data, to.type.bytes());
}
inline void copy_first(const KernelArgs& args) { copy_operand(args.in[0], args.out[0]); }  // Kernel::run
// The same on args.device.
inline void copy_operand_on_device(const KernelArgs& args, const TensorView& from, const TensorView& to) {
  if (from.data != to.data && to.type.bytes() > 0)
    args.device->copy(to.as<std::byte>(), from.as<const std::byte>(), to.type.bytes());
}

// Calls body.operator()<float>() or <double>(), for reference kernels.
template <class Body> void for_float(DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kF64) return body.template operator()<double>();
  fail_internal("a floating-point kernel was given ", dtype_name(dtype));
}
}  // namespace linnet
