// How an op runs: an explicit list of kernels, best first. On the CPU it ends in a plain reference kernel which also
// runs in float64. There is no registration at start-up; engine/ops/all_ops.cpp names every list. Other devices bring
// lists of their own (Backend).
#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/ir/op.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

class Communicator;

// Memory as a kernel sees it. Dense unless the op declares strided operands (OpDef::strided_inputs).
struct TensorView {
  void* data = nullptr;
  TensorType type;
  Shape strides;  // elements

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  const Shape& shape() const { return type.shape; }
  int64_t elements() const { return type.shape.elements(); }
  int64_t rows() const { return type.shape.elements(0, type.shape.rank() - 1); }  // of all axes but the last
};

struct KernelArgs {
  const Node& node;
  std::span<const TensorView> in, out;
  std::byte* workspace;  // 64-byte aligned, as many bytes as Kernel::workspace asked for
  ThreadPool& pool;
  Device* device;                        // the memory above is the device's; on a GPU the kernel only queues its work
  Communicator* tensor_group = nullptr;  // of Store::Groups

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
};

// What is known of a node before it runs.
struct KernelQuery {
  const Node& node;
  std::span<const TensorType> in, out;
  int threads;
  Device* device;

  template <class T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
};

struct Kernel {
  const char* name;
  bool (*supports)(const KernelQuery&);     // nullptr: every type the op infers
  size_t (*workspace)(const KernelQuery&);  // bytes; nullptr: none
  void (*run)(const KernelArgs&);
  // What it queues on a device touches its operands and its workspace alone, so that it may be queued beside other work
  // (Device::aside).
  bool may_run_aside = false;
};

using KernelList = std::span<const Kernel>;

// Defines NAME_kernels(), the list of an op in the table of all ops (engine/ops/op_table.h).
#define LINNET_KERNELS(name, ...)                       \
  KernelList name##_kernels() {                         \
    static constexpr Kernel kKernels[] = {__VA_ARGS__}; \
    return kKernels;                                    \
  }

struct OpEntry {
  const OpDef* op;
  KernelList kernels;
};

// Every op with its CPU kernels.
std::span<const OpEntry> all_ops();

// A device and its kernels. Ops are matched by name: a loaded module has addresses of its own for what OpDefs are.
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
// The first kernel of the op's list that supports the node; for kReference the last one. Error(kUser) naming the op
// when none supports the node.
const Kernel& find_kernel(const KernelQuery& query, KernelSet set, const Backend& backend);

// Whether the backend's device has a kernel other than a reference for the node with operands and results of these
// types: what a pass asks before it makes one.
bool has_fast_kernel(const Node& node, std::span<const TensorType> in, std::span<const TensorType> out,
                     const Backend& backend);

// The op of that name, nullptr when there is none.
const OpDef* find_op(std::string_view name);

// No floats but float32.
inline bool all_f32(const KernelQuery& query) {
  for (const auto& types : {query.in, query.out})
    for (const TensorType& type : types)
      if (is_float(type.dtype) && type.dtype != DType::kF32) return false;
  return true;
}

// No floats but float32 and bf16.
inline bool all_f32_or_bf16(const KernelQuery& query) {
  for (const auto& types : {query.in, query.out})
    for (const TensorType& type : types)
      if (type.dtype == DType::kF64) return false;
  return true;
}

// Operands of CPU kernels that read and write activations as fp32 or as bf16.
inline StoredFloats stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }
inline MutableStoredFloats mutable_stored(const TensorView& x) { return {x.data, x.type.dtype == DType::kBF16}; }

// Kernel::supports of kernels that take bf16, or fp32, for each of the operands and results that the op's storage rule
// reduces (OpDef::storage), and fp32 for all others.
inline bool f32_or_reduced(const KernelQuery& query) {
  const StorageRule rule = storage_of(query.node);
  const auto fits = [](const TensorType& type, Storage storage) {
    return !is_float(type.dtype) || type.dtype == DType::kF32 ||
           (type.dtype == DType::kBF16 && storage == Storage::kReduced);
  };
  for (size_t i = 0; i < query.in.size(); ++i)
    if (!fits(query.in[i], rule.operand(i))) return false;
  for (size_t i = 0; i < query.out.size(); ++i)
    if (!fits(query.out[i], rule.result(i))) return false;
  return true;
}

// The same, where they must all be of one type: nothing, or all that the rule reduces.
inline bool f32_or_all_reduced(const KernelQuery& query) {
  if (all_f32(query)) return true;
  const StorageRule rule = storage_of(query.node);
  for (size_t i = 0; i < query.in.size(); ++i)
    if (rule.operand(i) == Storage::kReduced && query.in[i].dtype != DType::kBF16) return false;
  for (size_t i = 0; i < query.out.size(); ++i)
    if (rule.result(i) == Storage::kReduced && query.out[i].dtype != DType::kBF16) return false;
  return f32_or_reduced(query);
}

// An operand's elements as those of a result, on the CPU; nothing where they are in one memory.
inline void copy_operand(const TensorView& from, const TensorView& to) {
  if (from.data != to.data) std::memcpy(to.data, from.data, to.type.bytes());
}
// The same on args.device.
inline void copy_operand_on_device(const KernelArgs& args, const TensorView& from, const TensorView& to) {
  if (from.data != to.data && to.type.bytes() > 0)
    args.device->copy(to.as<std::byte>(), from.as<const std::byte>(), to.type.bytes());
}

// Calls body.operator()<float>() or <double>(): how a reference kernel is written once for both.
template <class Body>
void for_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32: return body.template operator()<float>();
    case DType::kF64: return body.template operator()<double>();
    case DType::kI32:
    case DType::kU8:
    case DType::kBF16: break;
  }
  fail_internal(std::string("a floating-point kernel was given ") + dtype_name(dtype));
}

}  // namespace linnet
